/* compress passes: the list of passes, the manual of one, the schema of recipes. */
#include "cli/commands.h"
#include "cli/text_table.h"
#include "passes/pipeline/recipe.h"

static void print_text(Text *text) {
    if (text->data) fwrite(text->data, 1, text->length, stdout);
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

static void describe_data(Text *text, const Pass *pass) {
    if (!pass->data_options) return;
    text_add(text, "Data sets are named by: ");
    for (const char *c = pass->data_options; *c; c++)
        text_bytes(text, *c == '|' ? ", " : c, *c == '|' ? 2 : 1);
    text_add(text, "\n");
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
    describe_data(&text, pass);
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
