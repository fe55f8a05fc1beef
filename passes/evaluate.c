/* evaluate: accuracy and loss on labelled data, optionally as a gate. */
#include "passes/edit.h"

#include <math.h>
#include <string.h>

typedef enum Metric { METRIC_ACCURACY, METRIC_LOSS } Metric;

typedef struct EvaluateOptions {
    const char *data;
    int metric;
    double min, max;
    int64_t limit, batch_size;
} EvaluateOptions;

static const Field fields[] = {
    {.name = "data",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(EvaluateOptions, data, const char *),
     .required = true,
     .help = "data set to evaluate on"},
    F_CHOICE(EvaluateOptions, metric, "accuracy|loss",
             "what min and max are about: accuracy in percent, or mean cross-entropy in "
             "nats"),
    F_REAL(EvaluateOptions, min, 0, 0, "the step fails when the metric is below this"),
    F_REAL(EvaluateOptions, max, 0, 0, "the step fails when the metric is above this"),
    F_INT(EvaluateOptions, limit, 0, 1000000000000, "first samples only; 0 = all"),
    F_INT(EvaluateOptions, batch_size, 1, 1000000, "samples per run"),
    F_END,
};

static const EvaluateOptions defaults = {
    .min = -INFINITY, .max = INFINITY, .batch_size = 32};

/* What the samples seen so far add up to. */
typedef struct Tally {
    PassContext *ctx;
    int64_t classes;
    int label_column;
    const char *data;
    int64_t samples, correct;
    double loss;
} Tally;

/* Class whose logit is not finite, -1 when all are. */
static int64_t find_nonfinite(const Tally *tally, const float *logits) {
    for (int64_t c = 0; c < tally->classes; c++)
        if (!isfinite(logits[c])) return c;
    return -1;
}

static void tally_sample(Tally *tally, const float *logits, int32_t label) {
    int64_t best = 0;
    double sum = 0;
    for (int64_t c = 1; c < tally->classes; c++)
        if (logits[c] > logits[best]) best = c;
    for (int64_t c = 0; c < tally->classes; c++)
        sum += exp((double)logits[c] - logits[best]);
    tally->loss += log(sum) + logits[best] - logits[label];
    tally->correct += best == label;
    tally->samples++;
}

static Status tally_batch(void *self, const Fetch *what, const float *const *values,
                          const void *const *columns, Diag *diag) {
    Tally *tally = self;
    const int32_t *labels = columns[tally->label_column];
    for (int64_t i = 0; i < what->n; i++) {
        if (labels[i] < 0 || labels[i] >= tally->classes)
            return diag_fail(diag, STATUS_MODEL, LOC_FILE(tally->data), NULL,
                             "sample %lld: expected a label from 0 to %lld, found %d",
                             (long long)what->index[i], (long long)tally->classes - 1,
                             labels[i]);
        const float *logits = values[0] + i * tally->classes;
        const int64_t bad = find_nonfinite(tally, logits);
        if (bad >= 0)
            return edit_fail(tally->ctx, diag,
                             "sample %lld: expected finite logits, found %g for class "
                             "%lld",
                             (long long)what->index[i], logits[bad], (long long)bad);
        tally_sample(tally, logits, labels[i]);
    }
    return STATUS_OK;
}

static Status check_gate(PassContext *ctx, const EvaluateOptions *options, double value,
                         Diag *diag) {
    const char *name = options->metric == METRIC_LOSS ? "loss" : "accuracy";
    if (value >= options->min && value <= options->max) return STATUS_OK;
    const bool below = !(value >= options->min);
    return diag_fail(
        diag, STATUS_GATE, ctx->at, ctx->key, "gate: expected %s %s %g, found %.4f", name,
        below ? "at least" : "at most", below ? options->min : options->max, value);
}

static Status evaluate_data(PassContext *ctx, Model *model,
                            const EvaluateOptions *options, Tally *tally, Diag *diag) {
    Batches *data = NULL;
    TRY(ctx->data(ctx->self, options->data, ctx->at, &data, diag));
    Node *logits = graph_output(model->graph, "logits");
    *tally = (Tally){.ctx = ctx,
                     .classes = logits->type.dim[logits->type.rank - 1],
                     .label_column = batches_column(data, "labels"),
                     .data = data->name};
    if (tally->label_column < 0)
        return edit_fail(ctx, diag, "data set \"%s\" has no labels", options->data);
    if (data->count == 0)
        return edit_fail(ctx, diag, "data set \"%s\" has no samples", options->data);
    return forward_batches(model->graph, &logits, 1, data, options->limit,
                           options->batch_size, ctx->threads, ctx->watch, tally_batch,
                           tally, diag);
}

static Status evaluate_run(PassContext *ctx, Model *model, const void *opaque,
                           Diag *diag) {
    const EvaluateOptions *options = opaque;
    const Node *logits = graph_output(model->graph, "logits");
    if (!logits || logits->type.rank != 2 || logits->type.dim[1] < 1)
        return edit_fail(ctx, diag, "expected an output \"logits\" [N, classes]");
    if (ctx->plan) return STATUS_OK;
    Tally tally;
    TRY(evaluate_data(ctx, model, options, &tally, diag));
    const double count = (double)tally.samples;
    const double accuracy = 100.0 * (double)tally.correct / count;
    const double loss = tally.loss / count;
    tree_put_string(ctx->arena, ctx->record, "data", options->data);
    tree_put_int(ctx->arena, ctx->record, "samples", tally.samples);
    tree_put_real(ctx->arena, ctx->record, "accuracy", accuracy);
    tree_put_real(ctx->arena, ctx->record, "loss", loss);
    return check_gate(ctx, options, options->metric == METRIC_LOSS ? loss : accuracy,
                      diag);
}

static Status evaluate_check(const void *opaque, Loc at, const char *key, Diag *diag) {
    const EvaluateOptions *options = opaque;
    if (options->min <= options->max) return STATUS_OK;
    return diag_fail(diag, STATUS_RECIPE, at, key,
                     "expected min <= max, found min %g and max %g", options->min,
                     options->max);
}

const Pass pass_evaluate = {
    .name = "evaluate",
    .summary = "measure accuracy and loss on a data set; min and max make it a gate",
    .fields = fields,
    .options_size = sizeof(EvaluateOptions),
    .defaults = &defaults,
    .data_options = "data",
    .flags = PASS_MEASURES,
    .exactness = PASS_EXACT,
    .check = evaluate_check,
    .run = evaluate_run,
};
