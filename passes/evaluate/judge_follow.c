/* Judge of embeddings by those of another model: with `teacher`. */
#include "passes/evaluate/correlation.h"
#include "passes/evaluate/features.h"
#include "passes/fault.h"

#include <stdlib.h>

typedef struct Following {
    Features own, theirs;
    Model *teacher;
    double cosine, spearman;
} Following;

static Status follow_begin(void *self, Evaluation *e, Diag *diag) {
    Following *f = self;
    const Node *node = graph_output(e->model->graph, OUTPUT_EMBEDDING);
    TRY(step_teacher(e->ctx, e->options->teacher, &f->teacher, diag));
    const Node *other = graph_output(f->teacher->graph, OUTPUT_EMBEDDING);
    if (!other)
        return step_fail_option(e->ctx, "teacher", diag,
                                "expected a model with an output \"%s\"",
                                OUTPUT_EMBEDDING);
    if (e->metric == METRIC_COSINE && node_width(node) != node_width(other))
        return step_fail_option(e->ctx, "metric", diag,
                                "cosine needs embeddings of equal width, found %lld and "
                                "the teacher's %lld: spearman compares any",
                                (long long)node_width(node),
                                (long long)node_width(other));
    TRY(step_check_teacher(e->ctx, e->options->teacher, f->teacher, e->options->data,
                           false, diag));
    const int64_t count = evaluation_samples(e);
    TRY(features_open(&f->own, e, node, e->data, count, diag));
    return features_open(&f->theirs, e, other, e->data, count, diag);
}

static Status follow_add(void *self, Evaluation *e, const Fetch *what,
                         const float *predictions, const void *const *columns,
                         Diag *diag) {
    (void)e;
    return features_add(&((Following *)self)->own, what, predictions, columns, diag);
}

/* Whether cosines between neighbours in the data set keep their order. */
static double order_kept(const Following *f) {
    const int64_t pairs = f->own.count - 1;
    double *own = memory_alloc((size_t)pairs + 1, sizeof *own);
    double *theirs = memory_alloc((size_t)pairs + 1, sizeof *theirs);
    for (int64_t i = 0; i < pairs; i++) {
        own[i] = features_cosine(&f->own, i, &f->own, i + 1);
        theirs[i] = features_cosine(&f->theirs, i, &f->theirs, i + 1);
    }
    const double order = correlation_spearman(own, theirs, pairs);
    free(own);
    free(theirs);
    return order;
}

static Status follow_end(void *self, Evaluation *e, Tree *record, Diag *diag) {
    Following *f = self;
    Graph *graph = f->teacher->graph;
    TRY(features_run(&f->theirs, graph, graph_output(graph, OUTPUT_EMBEDDING), diag));
    f->spearman = order_kept(f);
    if (f->own.width == f->theirs.width) {
        for (int64_t i = 0; i < f->own.count; i++)
            f->cosine += features_cosine(&f->own, i, &f->theirs, i);
        f->cosine /= (double)f->own.count;
        tree_put_real(e->ctx->arena, record, "cosine", f->cosine);
    }
    tree_put_real(e->ctx->arena, record, "spearman", f->spearman);
    return STATUS_OK;
}

static double follow_metric(const void *self, Metric metric) {
    const Following *f = self;
    return metric == METRIC_COSINE ? f->cosine : f->spearman;
}

static void follow_close(void *self) {
    Following *f = self;
    features_close(&f->own);
    features_close(&f->theirs);
}

const Judge judge_follow = {
    .task = TASK_EMBED,
    .output = OUTPUT_EMBEDDING,
    .metrics = JUDGE_KNOWS(METRIC_COSINE) | JUDGE_KNOWS(METRIC_SPEARMAN),
    .usual = METRIC_COSINE,
    .size = sizeof(Following),
    .begin = follow_begin,
    .add = follow_add,
    .end = follow_end,
    .metric = follow_metric,
    .close = follow_close,
};
