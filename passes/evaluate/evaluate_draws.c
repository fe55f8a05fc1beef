/* evaluate: predictions averaged over weights drawn from their Gaussians. */
#include "passes/evaluate/evaluation.h"

#include "ir/random.h"
#include "ir/rewrite.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/* Elements drawn at a time. */
enum { PIECE = 1024 };

typedef struct Draws {
    Evaluation *e;
    Arena *arena; /* of the graph */
    Graph *graph; /* copy of the model's, with drawn weights */
    int64_t count;
    double *probability; /* [count, classes]: sums over the draws */
    int32_t *labels;
    Tally single; /* of each draw by itself */
} Draws;

/* ---- weights ---- */

static Status draw_storage(Storage *storage, uint64_t key, Diag *diag) {
    const Tensor *tensor = storage_tensor(storage);
    const int64_t count = tensor_count(tensor);
    Tensor drawn;
    void *to = NULL;
    TRY(storage_blank(&drawn, &to, storage, DTYPE_F32, tensor->rank, tensor->dim, diag));
    const Gaussian *gaussian = storage_gaussian(storage);
    const uint64_t own = random_key_name(key, storage->name);
    for (int64_t first = 0; to && first < count; first += PIECE) {
        double mean[PIECE], variance[PIECE];
        const int64_t n = count - first < PIECE ? count - first : PIECE;
        gaussian_mean_f64(gaussian, first, n, mean);
        gaussian_variance_f64(gaussian, first, n, variance);
        for (int64_t i = first; i < first + n; i++)
            ((float *)to)[i] =
                (float)(mean[i - first] +
                        sqrt(variance[i - first]) * random_normal(own, (uint64_t)i));
    }
    storage_set_values(storage, drawn);
    return STATUS_OK;
}

/* ---- predictions ---- */

static void add_softmax(double *to, const float *logits, int64_t classes) {
    double largest = (double)logits[0], sum = 0;
    for (int64_t c = 1; c < classes; c++) largest = fmax(largest, (double)logits[c]);
    for (int64_t c = 0; c < classes; c++) sum += exp((double)logits[c] - largest);
    for (int64_t c = 0; c < classes; c++) to[c] += exp((double)logits[c] - largest) / sum;
}

static Status add_samples(void *self, const Fetch *what, const float *const *values,
                          const void *const *columns, Diag *diag) {
    Draws *d = self;
    const int64_t classes = d->e->classes;
    const int32_t *labels = columns[d->e->labels];
    for (int64_t i = 0; i < what->n; i++) {
        const float *logits = values[0] + i * classes;
        const int64_t at = what->index[i];
        TRY(evaluation_add(d->e, &d->single, at, logits, labels[i], diag));
        add_softmax(d->probability + at * classes, logits, classes);
        d->labels[at] = labels[i];
    }
    return STATUS_OK;
}

static Status run_draws(Draws *d, Diag *diag) {
    const Evaluation *e = d->e;
    const EvaluateOptions *o = e->options;
    Node *logits = graph_output(d->graph, OUTPUT_LOGITS);
    for (int64_t draw = 0; draw < o->draws; draw++) {
        const uint64_t key = random_key(e->ctx->seed, (uint64_t)draw);
        for (int i = 0; i < d->graph->storage_count; i++)
            if (storage_gaussian(d->graph->storages[i]))
                TRY(draw_storage(d->graph->storages[i], key, diag));
        TRY(forward_batches(d->graph, &logits, 1, e->data, o->limit, o->batch_size,
                            e->ctx->threads, e->ctx->watch, add_samples, d, diag));
    }
    return STATUS_OK;
}

/* The logarithms of the mean probabilities are logits of that prediction. */
static Status tally_means(const Draws *d, Diag *diag) {
    Evaluation *e = d->e;
    float *logits = memory_alloc((size_t)e->classes, sizeof *logits);
    Status status = STATUS_OK;
    for (int64_t i = 0; i < d->count && status == STATUS_OK; i++) {
        for (int64_t c = 0; c < e->classes; c++) {
            const double mean =
                d->probability[i * e->classes + c] / (double)e->options->draws;
            logits[c] = (float)log(fmax(mean, DBL_MIN));
        }
        status = evaluation_add(e, &e->total, i, logits, d->labels[i], diag);
    }
    free(logits);
    return status;
}

static void record_draws(const Draws *d) {
    const Evaluation *e = d->e;
    Arena *arena = e->ctx->arena;
    Tree *single = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_int(arena, e->ctx->record, "samples", d->count);
    tree_put_int(arena, e->ctx->record, "draws", e->options->draws);
    tally_record(&e->total, arena, e->ctx->record);
    tally_record(&d->single, arena, single);
    tree_append(arena, e->ctx->record, "single_draws", LOC_NONE, single);
    evaluation_time(e, d->count * e->options->draws, 0);
}

Status evaluate_draws(Evaluation *e, Diag *diag) {
    Draws d = {.e = e, .arena = arena_create(), .count = evaluation_samples(e)};
    d.graph = graph_copy(d.arena, e->model->graph);
    Buf *sums = NULL, *labels = NULL;
    tally_open(&d.single, e->ctx->arena, e->classes, false);
    Status status =
        buf_create(&sums, (size_t)(d.count * e->classes) * sizeof(double), diag);
    if (status == STATUS_OK)
        status = buf_create(&labels, (size_t)d.count * sizeof(int32_t), diag);
    if (status == STATUS_OK) {
        d.probability = (double *)(uintptr_t)buf_data(sums);
        d.labels = (int32_t *)(uintptr_t)buf_data(labels);
        status = run_draws(&d, diag);
    }
    if (status == STATUS_OK) status = tally_means(&d, diag);
    if (status == STATUS_OK) record_draws(&d);
    buf_release(sums);
    buf_release(labels);
    graph_release(d.graph);
    arena_destroy(d.arena);
    return status;
}
