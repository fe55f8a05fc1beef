/* compress ops: the list of ops and the manual of one, from the op table. */
#include "cli/commands.h"
#include "cli/text_table.h"
#include "exec/ops/kernel.h"

static void list_ops(Arena *arena) {
    const OpTable *ops = ops_table();
    TextTable table = table_create(arena, "ll");
    for (int i = 0; i < ops->count; i++) {
        table_add(&table, "%s", ops->ops[i]->name);
        table_add(&table, "%s", ops->ops[i]->summary);
    }
    table_print(&table, 0, stdout);
}

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
        {OP_PROPORTIONAL, "A constant times its operand."},
        {OP_ROWWISE, "Row by row."},
        {OP_NORM, "A norm."},
        {OP_PROJECTION, "Linear in x and in the weight."},
        {OP_ATTENTION, "Attention."},
        {OP_PICKS_TOKENS, "Gives tokens of its operand as they are."},
        {OP_LOSS, "A loss: one number."},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (op->traits & rows[i].trait) printf("%s\n", rows[i].text);
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
    const char *nearest = name_nearest(name, names, ops->count);
    if (nearest)
        diag_hint(diag, "did you mean \"%s\"?", nearest);
    else
        diag_hint(diag, "`compress ops` lists the ops");
    return status;
}

Status command_ops(const Cli *cli, Diag *diag) {
    if (cli->arg_count == 0) {
        list_ops(cli->arena);
        return STATUS_OK;
    }
    const Op *op = op_find(ops_table(), cli->args[0]);
    if (!op) return unknown_op(cli->args[0], cli->arena, diag);
    describe_op(cli->arena, op);
    return STATUS_OK;
}
