/* Judge of choices: scores [N, 1] of the samples of a group (Batches.group), of which the
 * one labelled 1 should have the largest; equal ones count as the first. */
#include "passes/evaluate/evaluation.h"

#include <math.h>

typedef struct Choices {
    float *scores;   /* by sample; NAN = not seen */
    int32_t *labels; /* by sample */
    double accuracy; /* percent */
    double loss;     /* mean of -log softmax over a group, of the right one */
} Choices;

static Status choice_begin(void *self, Evaluation *e, Diag *diag) {
    Choices *c = self;
    const Type *type = evaluation_label_type(e->data);
    if (e->data->group < 2 || type->dtype != DTYPE_I32 || type->rank != 0) {
        step_fail(e->ctx, diag, "data set \"%s\": expected questions with choices",
                  e->options->data);
        diag_hint(diag, "data sets of format choices have them");
        return STATUS_MODEL;
    }
    const size_t count = (size_t)e->data->count;
    c->scores = ARENA_ARRAY(e->ctx->arena, float, count);
    c->labels = ARENA_ARRAY(e->ctx->arena, int32_t, count);
    for (size_t i = 0; i < count; i++) c->scores[i] = NAN;
    return STATUS_OK;
}

static Status choice_add(void *self, Evaluation *e, const Fetch *what,
                         const float *predictions, const void *const *columns,
                         Diag *diag) {
    Choices *c = self;
    const int32_t *labels = columns[batches_column(e->data, DATA_LABELS)];
    for (int64_t i = 0; i < what->n; i++) {
        TRY(evaluation_check_finite(e, what->index[i], predictions + i, 1, diag));
        c->scores[what->index[i]] = predictions[i];
        c->labels[what->index[i]] = labels[i];
    }
    return STATUS_OK;
}

/* Adds a question; false when its samples were not all seen. */
static bool add_question(Choices *c, int64_t first, int64_t choices) {
    int64_t best = first, right = first;
    double sum = 0;
    for (int64_t i = first; i < first + choices; i++) {
        if (isnan(c->scores[i])) return false;
        if (c->scores[i] > c->scores[best]) best = i;
        if (c->labels[i]) right = i;
    }
    for (int64_t i = first; i < first + choices; i++)
        sum += exp((double)c->scores[i] - (double)c->scores[best]);
    c->accuracy += best == right;
    c->loss += log(sum) + (double)c->scores[best] - (double)c->scores[right];
    return true;
}

static Status choice_end(void *self, Evaluation *e, Tree *record, Diag *diag) {
    Choices *c = self;
    const int64_t choices = e->data->group;
    int64_t count = 0;
    for (int64_t i = 0; i < e->data->count; i += choices)
        count += add_question(c, i, choices);
    if (count == 0)
        return step_fail_option(e->ctx, "limit", diag,
                                "expected at least the %lld choices of one question",
                                (long long)choices);
    c->accuracy *= 100 / (double)count;
    c->loss /= (double)count;
    tree_put_int(e->ctx->arena, record, "questions", count);
    tree_put_real(e->ctx->arena, record, "accuracy", c->accuracy);
    tree_put_real(e->ctx->arena, record, "loss", c->loss);
    return STATUS_OK;
}

static double choice_metric(const void *self, Metric metric) {
    const Choices *c = self;
    return metric == METRIC_LOSS ? c->loss : c->accuracy;
}

const Judge judge_choice = {
    .task = TASK_CHOOSE,
    .output = OUTPUT_LOGITS,
    .columns = {DATA_LABELS, DATA_CHOICE_PLACE},
    .metrics = JUDGE_KNOWS(METRIC_ACCURACY) | JUDGE_KNOWS(METRIC_LOSS),
    .usual = METRIC_ACCURACY,
    .size = sizeof(Choices),
    .begin = choice_begin,
    .add = choice_add,
    .end = choice_end,
    .metric = choice_metric,
};
