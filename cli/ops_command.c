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
    printf("\n%s\n", kernel_of(kernels_for(PRECISION_F64), op)->backward
                         ? "Differentiable."
                         : "Not differentiable.");
    if (op->traits & OP_STOCHASTIC)
        printf("Draws random numbers in training%s.\n",
               op->traits & OP_PASS_VALUE ? "; the identity otherwise" : "");
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
