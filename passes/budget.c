/* Budgets: see budget.h. */
#include "passes/budget.h"

#include "passes/fault.h"

int budget_count(const BudgetOptions *options) {
    int count = 0;
    for (int kind = 0; kind < BUDGET_KINDS; kind++) count += options->amount[kind] > 0;
    return count;
}

Status budget_check(const BudgetOptions *options, const StepSource *source, Diag *diag) {
    if (budget_count(options) > 0 || options->share_of == SHARE_OF_STEP) return STATUS_OK;
    return option_fail(source, "share_of", STATUS_RECIPE, diag,
                       "expected a budget with it");
}

Status budget_open(Budget *out, PassContext *ctx, const Model *model,
                   const BudgetOptions *options, Diag *diag) {
    Measure measure;
    Model *whole = (Model *)model;
    int kind = 0;
    while (options->amount[kind] <= 0) kind++;
    if (options->share_of == SHARE_OF_INPUT) TRY(step_teacher(ctx, NULL, &whole, diag));
    TRY(model_measure(&measure, whole, diag));
    out->kind = (MeasureKind)kind;
    out->whole = measure_get(&measure, out->kind);
    out->bound = measure_bound(options->amount[kind], out->whole);
    return STATUS_OK;
}

Status budget_fail(const Budget *budget, PassContext *ctx, double least, const char *with,
                   Diag *diag) {
    return step_fail_option(ctx, BUDGET_NAMES, diag,
                            "expected at least %.0f %s (%.4f of %.0f), which the model "
                            "has with %s, found %.0f",
                            least, measure_name(budget->kind), least / budget->whole,
                            budget->whole, with, budget->bound);
}

void budget_record(const Budget *budget, PassContext *ctx, double reached) {
    Arena *arena = ctx->arena;
    const char *name = measure_name(budget->kind);
    tree_put_real(arena, ctx->record, "budget", budget->bound);
    tree_put_real(arena, ctx->record, name, reached);
    tree_put_real(arena, ctx->record, arena_printf(arena, "%s_share", name),
                  reached / budget->whole);
}
