/* Judge of numbers: logits [N, values] against labels f32 of the same shape. Correlations
 * of several values are the mean of those of each. */
#include "passes/evaluate/correlation.h"
#include "passes/evaluate/evaluation.h"

typedef struct Regression {
    int64_t values, samples, room; /* of a sample; so far; of all */
    double *predicted, *labels;    /* [values, room] */
    double squares;                /* sum of squared errors */
} Regression;

static Status regress_begin(void *self, Evaluation *e, Diag *diag) {
    Regression *r = self;
    const Node *logits = graph_output(e->model->graph, OUTPUT_LOGITS);
    const Type *type = evaluation_label_type(e->data);
    r->values = logits->type.dim[1];
    if (type->dtype != DTYPE_F32 || type->rank != 1 || type->dim[0] != r->values) {
        step_fail(e->ctx, diag,
                  "data set \"%s\": expected labels of %lld real numbers a sample",
                  e->options->data, (long long)r->values);
        diag_hint(diag, "format text reads them with targets: values");
        return STATUS_MODEL;
    }
    if (e->ctx->plan) return STATUS_OK;
    r->room = evaluation_samples(e);
    const size_t size = (size_t)r->room * (size_t)r->values;
    r->predicted = ARENA_ARRAY(e->ctx->arena, double, size);
    r->labels = ARENA_ARRAY(e->ctx->arena, double, size);
    return STATUS_OK;
}

static Status regress_add(void *self, Evaluation *e, const Fetch *what,
                          const float *predictions, const void *const *columns,
                          Diag *diag) {
    Regression *r = self;
    const float *labels = columns[batches_column(e->data, DATA_LABELS)];
    for (int64_t i = 0; i < what->n; i++, r->samples++) {
        const float *row = predictions + i * r->values;
        TRY(evaluation_check_finite(e, what->index[i], row, r->values, diag));
        for (int64_t v = 0; v < r->values; v++) {
            const double predicted = (double)row[v];
            const double label = (double)labels[i * r->values + v];
            r->predicted[v * r->room + r->samples] = predicted;
            r->labels[v * r->room + r->samples] = label;
            r->squares += (predicted - label) * (predicted - label);
        }
    }
    return STATUS_OK;
}

static double mean_correlation(const Regression *r,
                               double (*correlation)(const double *x, const double *y,
                                                     int64_t n)) {
    double sum = 0;
    for (int64_t v = 0; v < r->values; v++)
        sum +=
            correlation(r->predicted + v * r->room, r->labels + v * r->room, r->samples);
    return sum / (double)r->values;
}

static double regress_metric(const void *self, Metric metric) {
    const Regression *r = self;
    if (metric == METRIC_PEARSON) return mean_correlation(r, correlation_pearson);
    if (metric == METRIC_SPEARMAN) return mean_correlation(r, correlation_spearman);
    return r->squares / (double)(r->samples * r->values);
}

static Status regress_end(void *self, Evaluation *e, Tree *record, Diag *diag) {
    (void)diag;
    Arena *arena = e->ctx->arena;
    tree_put_real(arena, record, "mse", regress_metric(self, METRIC_MSE));
    tree_put_real(arena, record, "pearson", regress_metric(self, METRIC_PEARSON));
    tree_put_real(arena, record, "spearman", regress_metric(self, METRIC_SPEARMAN));
    return STATUS_OK;
}

const Judge judge_regress = {
    .task = TASK_REGRESS,
    .output = OUTPUT_LOGITS,
    .columns = {DATA_LABELS},
    .exits = true,
    .metrics = JUDGE_KNOWS(METRIC_MSE) | JUDGE_KNOWS(METRIC_LOSS) |
               JUDGE_KNOWS(METRIC_PEARSON) | JUDGE_KNOWS(METRIC_SPEARMAN),
    .usual = METRIC_MSE,
    .size = sizeof(Regression),
    .begin = regress_begin,
    .add = regress_add,
    .end = regress_end,
    .metric = regress_metric,
};
