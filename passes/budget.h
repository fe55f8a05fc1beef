/* Budgets: how much, as counted by model_measure, a step may leave of a model, as
 * written in recipes: `flops: 0.5`, `bytes: 45MB`. */
#ifndef COMPRESS_PASSES_BUDGET_H
#define COMPRESS_PASSES_BUDGET_H

#include "passes/context.h"
#include "passes/measure.h"

/* There are budgets of parameters, bytes and FLOPs, the first three of MeasureKind; a
 * share is relative to the model before the step, or to the recipe's input model. */
enum { BUDGET_KINDS = MEASURE_FLOPS + 1 };
#define BUDGET_NAMES "flops|parameters|bytes"
enum { SHARE_OF_STEP, SHARE_OF_INPUT };

/* The options, a member of a pass's options; all 0 = none is given. */
typedef struct BudgetOptions {
    double amount[BUDGET_KINDS]; /* by MeasureKind, see measure_bound; 0 = not given */
    int share_of;                /* SHARE_OF_ */
} BudgetOptions;

/* Their rows, for struct S with BudgetOptions `member`. */
#define F_BUDGET(S, member, what)                                                        \
    F_BOUND(S, flops, member.amount[MEASURE_FLOPS], FIELD_COUNTS,                        \
            what ": FLOPs of the model that stay; up to 1: a share"),                    \
        F_BOUND(S, parameters, member.amount[MEASURE_PARAMETERS], FIELD_COUNTS,          \
                what ": parameters of the model that stay; up to 1: a share"),           \
        F_BOUND(S, bytes, member.amount[MEASURE_BYTES], FIELD_BYTES,                     \
                what ": bytes of its weights that stay; up to 1: a share"),              \
    {                                                                                    \
        .name = "share_of", .kind = FIELD_CHOICE,                                        \
        .offset = FIELD_AT(S, member.share_of, int), .choices = "step|input",            \
        .help = "a budget up to 1 is a share of the model that the step gets, or of "    \
                "the recipe's input model"                                               \
    }

/* How many of the three are given. */
int budget_count(const BudgetOptions *options);

/* Fails with STATUS_RECIPE if share_of is given without a budget. */
Status budget_check(const BudgetOptions *options, const StepSource *source, Diag *diag);

/* A given budget, for one model. */
typedef struct Budget {
    MeasureKind kind;
    double whole; /* what a share is of */
    double bound; /* most that may stay */
} Budget;

/* The given budget, for the step's model as it is now. Fails as measuring does. */
Status budget_open(Budget *out, PassContext *ctx, const Model *model,
                   const BudgetOptions *options, Diag *diag);

/* Reports that no choice of the step meets the budget; the least it can leave is
 * `least`, which the model has `with` something. Returns STATUS_MODEL. */
Status budget_fail(const Budget *budget, PassContext *ctx, double least, const char *with,
                   Diag *diag);

/* Records the budget as `budget`, the reached value under its name (`flops`), and as a
 * share (`flops_share`). */
void budget_record(const Budget *budget, PassContext *ctx, double reached);

#endif
