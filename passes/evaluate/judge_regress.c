/* Judge of numbers: logits [N, values] against labels f32 of the same shape. */
#include "passes/evaluate/evaluation.h"

typedef struct Regression {
    int64_t values; /* of a sample */
    int64_t count;  /* of all */
    double squares; /* sum of squared errors */
} Regression;

static Status regress_begin(void *self, Evaluation *e, Diag *diag) {
    Regression *r = self;
    const Node *logits = graph_output(e->model->graph, OUTPUT_LOGITS);
    const Type *type = &e->data->columns[batches_column(e->data, DATA_LABELS)].type;
    r->values = logits->type.dim[1];
    if (type->dtype == DTYPE_F32 && type->rank == 1 && type->dim[0] == r->values)
        return STATUS_OK;
    return step_fail(e->ctx, diag,
                     "data set \"%s\": expected labels of %lld real numbers a sample",
                     e->options->data, (long long)r->values);
}

static Status regress_add(void *self, Evaluation *e, const Fetch *what,
                          const float *predictions, const void *const *columns,
                          Diag *diag) {
    Regression *r = self;
    const float *labels = columns[batches_column(e->data, DATA_LABELS)];
    for (int64_t i = 0; i < what->n; i++) {
        const float *row = predictions + i * r->values;
        TRY(evaluation_check_finite(e, what->index[i], row, r->values, diag));
        for (int64_t v = 0; v < r->values; v++) {
            const double error = (double)row[v] - (double)labels[i * r->values + v];
            r->squares += error * error;
        }
    }
    r->count += what->n * r->values;
    return STATUS_OK;
}

static double regress_metric(const void *self, Metric metric) {
    const Regression *r = self;
    (void)metric;
    return r->squares / (double)r->count;
}

static Status regress_end(void *self, Evaluation *e, Tree *record, Diag *diag) {
    (void)diag;
    tree_put_real(e->ctx->arena, record, "mse", regress_metric(self, METRIC_MSE));
    return STATUS_OK;
}

const Judge judge_regress = {
    .task = TASK_REGRESS,
    .output = OUTPUT_LOGITS,
    .columns = {DATA_LABELS},
    .metrics = JUDGE_KNOWS(METRIC_MSE) | JUDGE_KNOWS(METRIC_LOSS),
    .usual = METRIC_MSE,
    .size = sizeof(Regression),
    .begin = regress_begin,
    .add = regress_add,
    .end = regress_end,
    .metric = regress_metric,
};
