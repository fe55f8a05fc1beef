/* Judge of embeddings by classes: with `fit`, a labelled data set, the classes of `data`
 * are told from embeddings alone, by nearest neighbours and by a linear classifier that
 * are made from those of `fit`. */
#include "passes/evaluate/features.h"
#include "passes/evaluate/probe.h"

#include <stdlib.h>

typedef struct ProbeJudge {
    Features fit, test;
    int64_t classes;
    double nearest, linear; /* percent */
} ProbeJudge;

static Status check_classes(const Evaluation *e, const char *name, const Batches *data,
                            Diag *diag) {
    const Type *type = evaluation_label_type(data);
    if (type && type->dtype == DTYPE_I32 && type->rank == 0 && data->classes > 0)
        return STATUS_OK;
    return step_fail(e->ctx, diag,
                     "data set \"%s\": expected labels of one class for each sample",
                     name);
}

static Status probe_begin(void *self, Evaluation *e, Diag *diag) {
    ProbeJudge *p = self;
    Batches *fit = NULL;
    Node *embedding = graph_output(e->model->graph, OUTPUT_EMBEDDING);
    const DataUse use = {.graph = e->model->graph,
                         .roots = &embedding,
                         .root_count = 1,
                         .option = "fit",
                         .batch = e->options->batch_size};
    TRY(check_classes(e, e->options->data, e->data, diag));
    TRY(step_data(e->ctx, e->options->fit, &use, &fit, diag));
    if (!fit) return STATUS_OK;
    if (fit->count == 0)
        return step_fail(e->ctx, diag, "data set \"%s\" has no samples", e->options->fit);
    TRY(check_classes(e, e->options->fit, fit, diag));
    p->classes = fit->classes;
    if (e->data->classes > fit->classes)
        return step_fail(e->ctx, diag,
                         "expected at most the %lld classes of data set \"%s\", found "
                         "%lld",
                         (long long)fit->classes, e->options->fit,
                         (long long)e->data->classes);
    TRY(features_open(&p->test, e, embedding, e->data, evaluation_samples(e), diag));
    return features_open(&p->fit, e, embedding, fit, fit->count, diag);
}

static Status probe_add(void *self, Evaluation *e, const Fetch *what,
                        const float *predictions, const void *const *columns,
                        Diag *diag) {
    ProbeJudge *p = self;
    (void)e;
    return features_add(&p->test, what, predictions, columns, diag);
}

static Status probe_end(void *self, Evaluation *e, Tree *record, Diag *diag) {
    ProbeJudge *p = self;
    const EvaluateOptions *o = e->options;
    Node *embedding = graph_output(e->model->graph, OUTPUT_EMBEDDING);
    TRY(features_run(&p->fit, e->model->graph, embedding, diag));
    const ProbeSet set = {.rows = features_row(&p->fit, 0),
                          .labels = features_labels(&p->fit),
                          .count = p->fit.count,
                          .width = p->fit.width,
                          .classes = p->classes};
    LinearProbe linear;
    int64_t right[2] = {0};
    probe_fit(&linear, &set, o->l2);
    for (int64_t i = 0; i < p->test.count; i++) {
        const float *row = features_row(&p->test, i);
        const int32_t label = features_labels(&p->test)[i];
        right[0] += probe_nearest(&set, row, o->neighbours, o->temperature) == label;
        right[1] += probe_classify(&linear, row) == label;
    }
    free(linear.weights);
    p->nearest = 100 * (double)right[0] / (double)p->test.count;
    p->linear = 100 * (double)right[1] / (double)p->test.count;
    tree_put_string(e->ctx->arena, record, "fit", o->fit);
    tree_put_real(e->ctx->arena, record, "accuracy", p->linear);
    tree_put_real(e->ctx->arena, record, "nearest_accuracy", p->nearest);
    tree_put_int(e->ctx->arena, record, "linear_steps", linear.steps);
    return STATUS_OK;
}

static double probe_metric(const void *self, Metric metric) {
    (void)metric;
    return ((const ProbeJudge *)self)->linear;
}

static void probe_close(void *self) {
    ProbeJudge *p = self;
    features_close(&p->fit);
    features_close(&p->test);
}

const Judge judge_probe = {
    .task = TASK_EMBED,
    .output = OUTPUT_EMBEDDING,
    .columns = {DATA_LABELS},
    .metrics = JUDGE_KNOWS(METRIC_ACCURACY),
    .usual = METRIC_ACCURACY,
    .size = sizeof(ProbeJudge),
    .begin = probe_begin,
    .add = probe_add,
    .end = probe_end,
    .metric = probe_metric,
    .close = probe_close,
};
