/* Shared parts of T2R: see t2r.h. */
#include "passes/t2r/t2r.h"

#include "exec/run/clamp_count.h"
#include "ir/random.h"

#include <math.h>
#include <stdlib.h>

const char *t2r_place(const PassContext *ctx, const Node *node) {
    return arena_printf(ctx->arena, "%s.%d", node->stack ? node->stack : "model",
                        node->layer);
}

/* ---- clamped rows ---- */

/* One linear attention that is measured. */
typedef struct Probe {
    const Node *node;
    int mask;    /* column of its mask; -1 = none */
    bool padded; /* the mask is about the queries too */
    ClampCount count;
} Probe;

typedef struct Probes {
    Probe *items;
    Node **results; /* queries and keys of each */
    int count;
} Probes;

static Status find_mask(Probe *probe, PassContext *ctx, const Batches *data, Diag *diag) {
    const Node *mask = node_operand(probe->node, "mask");
    const Node *q = node_operand(probe->node, "q");
    probe->mask = -1;
    if (!mask) return STATUS_OK;
    if (mask->name) probe->mask = batches_column(data, mask->name);
    probe->padded = mask->type.dim[1] == q->type.dim[1];
    if (probe->mask >= 0) return STATUS_OK;
    return step_fail(ctx, diag, "%s: expected a mask that is a column of data set \"%s\"",
                     t2r_place(ctx, probe->node), data->name);
}

/* With a window no token's denominator is clamped: its own key is near. */
static bool is_clamped(const Node *node) {
    return node_is(node, &op_linear_attention) &&
           !((const LinearAttentionAttrs *)node->attrs)->window;
}

static Status find_probes(Probes *probes, PassContext *ctx, const Graph *graph,
                          const Batches *data, Diag *diag) {
    size_t count = 0;
    for (const Node *node = graph->first; node; node = node->next)
        count += is_clamped(node);
    probes->items = ARENA_ARRAY(ctx->arena, Probe, count);
    probes->results = ARENA_ARRAY(ctx->arena, Node *, 2 * count);
    for (const Node *node = graph->first; node; node = node->next) {
        if (!is_clamped(node)) continue;
        const int i = probes->count++;
        probes->items[i].node = node;
        probes->results[2 * i] = node_operand(node, "q");
        probes->results[2 * i + 1] = node_operand(node, "k");
        TRY(find_mask(&probes->items[i], ctx, data, diag));
    }
    return STATUS_OK;
}

static Status count_clamped(void *self, const Fetch *what, const float *const *values,
                            const void *const *columns, Diag *diag) {
    (void)diag;
    Probes *probes = self;
    const int64_t sizes[DIM_SYMBOLS] = {[DIM_INDEX(DIM_N)] = what->n,
                                        [DIM_INDEX(DIM_T)] = what->tokens,
                                        [DIM_INDEX(DIM_S)] = what->source};
    for (int i = 0; i < probes->count; i++) {
        Probe *probe = &probes->items[i];
        const int32_t *mask = probe->mask < 0 ? NULL : columns[probe->mask];
        linear_attention_count(&probe->count, probe->node, sizes, values[2 * i],
                               values[2 * i + 1], mask, probe->padded ? mask : NULL);
    }
    return STATUS_OK;
}

static void record_probes(PassContext *ctx, const Probes *probes) {
    Tree *list = tree_new(ctx->arena, TREE_LIST, LOC_NONE);
    for (int i = 0; i < probes->count; i++) {
        const ClampCount count = probes->items[i].count;
        Tree *row = tree_new(ctx->arena, TREE_MAP, LOC_NONE);
        tree_put_string(ctx->arena, row, "block", t2r_place(ctx, probes->items[i].node));
        tree_put_int(ctx->arena, row, "rows", count.rows);
        tree_put_real(ctx->arena, row, "share",
                      count.rows ? (double)count.clamped / (double)count.rows : 0);
        tree_append(ctx->arena, list, NULL, LOC_NONE, row);
    }
    tree_append(ctx->arena, ctx->record, "clamped", LOC_NONE, list);
}

Status t2r_record_clamped(PassContext *ctx, Graph *graph, const T2rData *on, Diag *diag) {
    Probes probes = {0};
    Batches *data = NULL;
    TRY(step_data(ctx, on->data, NULL, &data, diag));
    if (!data) return STATUS_OK;
    TRY(find_probes(&probes, ctx, graph, data, diag));
    const DataUse use = {.graph = graph,
                         .roots = probes.results,
                         .root_count = 2 * probes.count,
                         .batch = on->batch_size};
    if (probes.count > 0) TRY(step_data(ctx, on->data, &use, &data, diag));
    if (ctx->plan) return STATUS_OK;
    TRY(forward_batches(graph, probes.results, 2 * probes.count, data, on->limit,
                        on->batch_size, ctx->threads, ctx->watch, count_clamped, &probes,
                        diag));
    record_probes(ctx, &probes);
    return STATUS_OK;
}

/* ---- first weights of feature maps ---- */

Status t2r_draw_identity(Tensor *tensor, Diag *diag) {
    void *data = NULL;
    const int64_t features = tensor->dim[1], width = tensor->dim[2];
    TRY(tensor_create(tensor, DTYPE_F32, 3, tensor->dim, diag));
    TRY(tensor_writable(tensor, &data, diag));
    float *w = data;
    for (int64_t row = 0; row < tensor->dim[0] * features; row++) {
        const int64_t i = row % features;
        w[row * width + i % width] = i / width % 2 ? -1 : 1;
    }
    return STATUS_OK;
}

/* Takes from row w what lies along the rows at `before`, keeping its length. */
static void orthogonalise(double *w, const double *before, int64_t rows, int64_t width) {
    double length = 0, rest = 0;
    for (int64_t j = 0; j < width; j++) length += w[j] * w[j];
    for (int64_t r = 0; r < rows; r++) {
        const double *b = before + r * width;
        double along = 0, square = 0;
        for (int64_t j = 0; j < width; j++) {
            along += w[j] * b[j];
            square += b[j] * b[j];
        }
        for (int64_t j = 0; j < width; j++) w[j] -= along / square * b[j];
    }
    for (int64_t j = 0; j < width; j++) rest += w[j] * w[j];
    const double factor = rest > 0 ? sqrt(length / rest) : 0;
    for (int64_t j = 0; j < width; j++) w[j] *= factor;
}

Status t2r_draw_orthogonal(Tensor *tensor, uint64_t key, Diag *diag) {
    void *data = NULL;
    const int64_t features = tensor->dim[1], width = tensor->dim[2];
    TRY(tensor_create(tensor, DTYPE_F32, 3, tensor->dim, diag));
    TRY(tensor_writable(tensor, &data, diag));
    float *out = data;
    double *w = memory_alloc((size_t)(features * width), sizeof *w);
    for (int64_t g = 0; g < tensor->dim[0]; g++, out += features * width) {
        for (int64_t i = 0; i < features; i++) {
            double *row = w + i * width;
            const int64_t first = (g * features + i) * width, rows = i % width;
            for (int64_t j = 0; j < width; j++)
                row[j] = random_normal(key, (uint64_t)(first + j));
            orthogonalise(row, row - rows * width, rows, width);
        }
        for (int64_t i = 0; i < features * width; i++) out[i] = (float)w[i];
    }
    free(w);
    return STATUS_OK;
}
