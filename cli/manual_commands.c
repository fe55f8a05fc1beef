/* compress passes: the list of passes, the manual of one, the schema of recipes; compress
 * ops: the list of ops and the manual of one, from the op table. */
#include "cli/command.h"
#include "cli/terminal.h"
#include "cli/text_table.h"
#include "exec/ops/kernel.h"
#include "io/datasets/dataset.h"
#include "io/formats/save.h"
#include "passes/pipeline/recipe.h"

#include <string.h>

/* ---- passes ---- */

static void print_text(Text *text) {
    if (text->data) terminal_print(stdout, text->data);
    text_free(text);
}

static void list_passes(Arena *arena) {
    TextTable table = table_create(arena, "lll");
    for (const Pass *const *pass = pass_list(); *pass; pass++) {
        table_add(&table, "%s", (*pass)->name);
        table_add(&table, "%s", exactness_name((*pass)->exactness));
        table_add(&table, "%s", (*pass)->summary);
    }
    table_print(&table, 0, stdout);
    Text text = {0};
    text_add(&text, "\n`compress passes NAME` prints the options of one.\n\n");
    recipe_document(&text);
    print_text(&text);
}

/* What the pass declares with its default options. */
static void describe_effects(Text *text, const Pass *pass) {
    const PassEffects effects = pass_effects(pass, pass->defaults);
    const struct {
        const char *what;
        unsigned properties;
    } rows[] = {{"Needs", effects.needs},
                {"Refuses", effects.refuses},
                {"May give", effects.gives},
                {"May take away", effects.takes}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].properties) continue;
        text_add(text, "%s: ", rows[i].what);
        properties_print(text, rows[i].properties);
        text_add(text, "\n");
    }
}

static void describe_pass(const Pass *pass) {
    static const char *const promises[] = {
        "the model's outputs stay equal up to rounding",
        "the outputs change by an amount that the step's record states",
        "the outputs may change in any way; training usually follows"};
    Text text = {0};
    text_add(&text, "%s: %s\n\n", pass->name, pass->summary);
    if (pass->paper) text_add(&text, "Source: %s\n", pass->paper);
    text_add(&text, "Exactness: %s (%s)\n", exactness_name(pass->exactness),
             promises[pass->exactness]);
    if (pass->flags & PASS_MEASURES) text_add(&text, "May leave the model as it was.\n");
    if (pass->flags & PASS_TRAINS) text_add(&text, "Trains the model.\n");
    describe_effects(&text, pass);
    if (pass->data_options) {
        text_add(&text, "Data sets are named by: ");
        for (const char *c = pass->data_options; *c; c++)
            text_bytes(&text, *c == '|' ? ", " : c, *c == '|' ? 2 : 1);
        text_add(&text, "\n");
    }
    text_add(&text, "\nOptions:\n");
    if (pass->fields)
        fields_document(&text, pass->fields, pass->defaults);
    else
        text_add(&text, "none\n");
    print_text(&text);
}

Status command_passes(const Cli *cli, Diag *diag) {
    if (cli->flags.schema) {
        Text text = {0};
        recipe_schema(&text);
        print_text(&text);
        return STATUS_OK;
    }
    if (cli->arg_count == 0) {
        list_passes(cli->arena);
        return STATUS_OK;
    }
    const Pass *pass = pass_find(cli->args[0]);
    if (!pass) return pass_fail_unknown(cli->args[0], STATUS_USAGE, LOC_NONE, NULL, diag);
    describe_pass(pass);
    return STATUS_OK;
}

/* ---- ops ---- */

static void list_operands(Arena *arena, const Op *op) {
    if (!op->operands || !op->operands->name) return;
    TextTable table = table_create(arena, "lll");
    for (const Operand *operand = op->operands; operand->name; operand++) {
        table_add(&table, "%s", operand->name);
        table_add(&table, "%s%s",
                  operand->flags & OPERAND_OPTIONAL   ? "optional"
                  : operand->flags & OPERAND_VARIADIC ? "one or more"
                                                      : "required",
                  operand->flags & OPERAND_INTEGER ? ", integer" : "");
        table_add(&table, "%s", operand->help ? operand->help : "");
    }
    printf("\nOperands:\n");
    table_print(&table, 2, stdout);
}

/* What holds of an op whatever its attributes. */
static void describe_traits(const Op *op) {
    static const struct {
        OpTrait trait;
        const char *text;
    } rows[] = {
        {OP_ELEMENTWISE, "Element by element."},
        {OP_PROPORTIONAL, "Its first operand times constants or weights."},
        {OP_ROWWISE, "Row by row."},
        {OP_NORM, "A norm."},
        {OP_PROJECTION, "Linear in x and in the weight."},
        {OP_ATTENTION, "Attention."},
        {OP_PICKS_TOKENS, "Gives tokens of its operand as they are."},
        {OP_LOSS, "A loss: one number."},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (op->traits & (int)rows[i].trait) printf("%s\n", rows[i].text);
    const bool identity = op->traits & OP_PASS_VALUE;
    if (op->traits & OP_STOCHASTIC)
        printf("Draws random numbers in training%s.\n",
               identity ? "; the identity otherwise" : "");
    else if (identity)
        printf("The identity.\n");
}

static void describe_op(Arena *arena, const Op *op) {
    printf("%s: %s\n", op->name, op->summary);
    list_operands(arena, op);
    if (op->fields && op->fields->name) {
        Text text = {0};
        fields_document(&text, op->fields, op->defaults);
        printf("\nAttributes:\n%s", text.data);
        text_free(&text);
    }
    if (op->traits & OP_LEAF) return;
    const Kernel *kernel = kernel_of(kernels_for(PRECISION_F32), op);
    printf("\n%s\n", kernel->backward ? "Differentiable." : "Not differentiable.");
    describe_traits(op);
    if (kernel->step) printf("Can run token by token.\n");
}

static Status unknown_op(const char *name, Arena *arena, Diag *diag) {
    const OpTable *ops = ops_table();
    const char **names = ARENA_ARRAY(arena, const char *, (size_t)ops->count + 1);
    for (int i = 0; i < ops->count; i++) names[i] = ops->ops[i]->name;
    Status status =
        diag_fail(diag, STATUS_USAGE, LOC_NONE, NULL, "unknown op \"%s\"", name);
    name_hint(diag, name, names, ops->count, "`compress ops` lists the ops");
    return status;
}

Status command_ops(const Cli *cli, Diag *diag) {
    const OpTable *ops = ops_table();
    if (cli->arg_count > 0) {
        const Op *op = op_find(ops, cli->args[0]);
        if (!op) return unknown_op(cli->args[0], cli->arena, diag);
        describe_op(cli->arena, op);
        return STATUS_OK;
    }
    TextTable table = table_create(cli->arena, "ll");
    for (int i = 0; i < ops->count; i++) {
        table_add(&table, "%s", ops->ops[i]->name);
        table_add(&table, "%s", ops->ops[i]->summary);
    }
    table_print(&table, 0, stdout);
    return STATUS_OK;
}

/* ---- help ---- */

static void describe_data_format(const DataFormat *format) {
    Text text = {0};
    text_add(&text, "%s: %s\n\nKeys beside `format: %s`:\n", format->name,
             format->summary, format->name);
    fields_document(&text, format->fields, format->defaults);
    print_text(&text);
}

static void describe_model_format(const ModelFormat *format) {
    Text text = {0};
    output_document_format(&text, format);
    if (format->write)
        text_add(&text,
                 "\nKeys of a recipe's `output:` beside `path`; `compress convert` "
                 "takes them by --dtype and --option.\n");
    print_text(&text);
}

static void topic_recipe(Arena *arena) {
    Text text = {0};
    (void)arena;
    recipe_document(&text);
    print_text(&text);
}

static void topic_data(Arena *arena) {
    TextTable table = table_create(arena, "ll");
    for (const DataFormat *const *format = dataformat_list(); *format; format++) {
        table_add(&table, "%s", (*format)->name);
        table_add(&table, "%s", (*format)->summary);
    }
    table_print(&table, 0, stdout);
    printf("\n`compress help NAME` prints the keys of one.\n");
}

static void topic_exit_codes(Arena *arena) {
    (void)arena;
    help_exit_codes(stdout);
}

static void topic_man(Arena *arena) {
    (void)arena;
    help_man_page(stdout);
}

static const struct {
    const char *name;
    void (*print)(Arena *arena);
} topics[] = {{"recipe", topic_recipe},
              {"data", topic_data},
              {"exit-codes", topic_exit_codes},
              {"man", topic_man}};
enum { TOPICS = sizeof topics / sizeof *topics };

static Status unknown_help(const char *name, Arena *arena, Diag *diag) {
    const OpTable *ops = ops_table();
    enum { OTHERS_MAX = 512 };
    const char **names =
        ARENA_ARRAY(arena, const char *, (size_t)ops->count + OTHERS_MAX);
    int count = 0;
    for (const Command *c = command_list() + 1; c->run; c++) names[count++] = c->name;
    for (int i = 0; i < TOPICS; i++) names[count++] = topics[i].name;
    for (const Pass *const *p = pass_list(); *p && count < OTHERS_MAX; p++)
        names[count++] = (*p)->name;
    for (const DataFormat *const *f = dataformat_list(); *f && count < OTHERS_MAX; f++)
        names[count++] = (*f)->name;
    for (const ModelFormat *const *f = model_format_list(); *f && count < OTHERS_MAX; f++)
        names[count++] = (*f)->name;
    for (int i = 0; i < ops->count; i++) names[count++] = ops->ops[i]->name;
    diag_fail(
        diag, STATUS_USAGE, LOC_NONE, NULL,
        "expected the name of a command, a pass, an op, a format, or one of " HELP_TOPICS
        ", found \"%s\"",
        name);
    name_hint(diag, name, names, count, NULL);
    return STATUS_USAGE;
}

/* Prints the manual of what has the name, formats of models left out. False: nothing has.
 */
static bool describe_name(Arena *arena, const char *name) {
    const Command *command = command_find(name);
    const Pass *pass = pass_find(name);
    const DataFormat *format = dataformat_find(name);
    const Op *op = op_find(ops_table(), name);
    for (int i = 0; i < TOPICS; i++) {
        if (strcmp(topics[i].name, name) != 0) continue;
        topics[i].print(arena);
        return true;
    }
    if (command)
        cli_help(command, stdout);
    else if (pass)
        describe_pass(pass);
    else if (format)
        describe_data_format(format);
    else if (op)
        describe_op(arena, op);
    return command || pass || format || op;
}

/* A format of models may have the name of something else, whose manual stands first then.
 */
Status command_help(const Cli *cli, Diag *diag) {
    const char *name = cli->arg_count > 0 ? cli->args[0] : "";
    const ModelFormat *format = model_format_find(name);
    const bool other = describe_name(cli->arena, name);
    if (!other && !format) return unknown_help(name, cli->arena, diag);
    if (other && format) printf("\n");
    if (format) describe_model_format(format);
    return STATUS_OK;
}
