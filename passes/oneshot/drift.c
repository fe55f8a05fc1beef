/* Drift: see drift.h. The rows of the value before are kept, in float, while those of now
 * are gone over. */
#include "passes/oneshot/drift.h"

#include "exec/linalg/gemm.h"
#include "exec/ops.h"
#include "ir/rewrite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_ROWS = 256 };

Node *drift_value(const Graph *graph, Node *projection) {
    Node *value = projection;
    for (Node *node = value->next; node && graph_use_count(graph, value) == 1;
         node = node->next) {
        bool reads = false;
        for (int i = 0; i < node->in_count; i++) reads |= node->in[i] == value;
        if (!reads) continue;
        if (node_is(node, &op_add) && type_equal(&node->type, &projection->type))
            return node;
        if (!node_has_trait(node, OP_PASS_VALUE)) break;
        value = node;
    }
    return projection;
}

void drift_free(Drift *drift) {
    free(drift->cross);
    free(drift->mean);
    *drift = (Drift){0};
}

/* ---- the model before ---- */

Status before_open(Before *b, const PassContext *ctx, Graph *graph, Node *const *values,
                   int count, const CalibrationOptions *options, Diag *diag) {
    *b = (Before){.ctx = *ctx, .arena = arena_create()};
    if (ctx->watch) b->watch = (Watch){ctx->watch->self, NULL, ctx->watch->cancelled};
    b->ctx.watch = &b->watch;
    b->graph = graph_copy(b->arena, graph);
    graph_number(graph);
    b->twins = ARENA_ARRAY(b->arena, Node *, (size_t)graph_number(b->graph));
    for (Node *node = b->graph->first; node; node = node->next) b->twins[node->id] = node;
    Node **twins = ARENA_ARRAY(b->arena, Node *, (size_t)count);
    for (int i = 0; i < count; i++) twins[i] = b->twins[values[i]->id];
    return calibration_open(&b->calibration, &b->ctx, b->graph, twins, count, options,
                            diag);
}

void before_close(Before *b) {
    calibration_close(b->calibration);
    graph_release(b->graph);
    arena_destroy(b->arena);
}

/* ---- the value before ---- */

typedef struct KeptRows {
    float *x; /* [room, width] */
    int64_t count, room, width;
} KeptRows;

static Status fail_memory(Diag *diag) {
    return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                     "out of memory for the values of calibration samples");
}

/* CalibrationSink. */
static Status keep_rows(void *self, const CalibrationRows *rows, Diag *diag) {
    KeptRows *kept = self;
    const int64_t width = rows->width, count = kept->count + rows->count;
    if (count > kept->room) {
        const int64_t room = 2 * count;
        float *x = realloc(kept->x, (size_t)(room * width) * sizeof *x);
        if (!x) return fail_memory(diag);
        kept->x = x;
        kept->room = room;
    }
    memcpy(kept->x + kept->count * width, rows->x,
           (size_t)(rows->count * width) * sizeof *kept->x);
    kept->count = count;
    return STATUS_OK;
}

/* ---- now ---- */

typedef struct Gathering {
    Drift *drift;
    Gram *gram;
    const KeptRows *before;
    int64_t row; /* of `before`, that comes next */
    int threads;
    float *t;       /* [BLOCK_ROWS, M] */
    float *product; /* [M, K] */
} Gathering;

/* Adds t x^T of rows x[count, K] and y[count, M], no more than a block. */
static void add_block(Gathering *g, const float *x, const float *y, int64_t count) {
    const int64_t M = g->drift->outputs, K = g->drift->inputs;
    const float *before = g->before->x + g->row * M;
    for (int64_t i = 0; i < count * M; i++) {
        g->t[i] = before[i] - y[i];
        g->drift->mean[i % M] += (double)g->t[i];
    }
    gemm_f32(true, false, M, K, count, 1, g->t, M, x, K, 0, g->product, K);
    for (int64_t i = 0; i < M * K; i++) g->drift->cross[i] += (double)g->product[i];
    g->row += count;
}

/* CalibrationSink: rows of x and of the value. */
static Status add_rows(void *self, const CalibrationRows *rows, Diag *diag) {
    Gathering *g = self;
    const int64_t M = g->drift->outputs, K = g->drift->inputs;
    (void)diag;
    gram_add(g->gram, rows[0].x, rows[0].count, g->threads);
    for (int64_t row = 0; row < rows[0].count; row += BLOCK_ROWS) {
        const int64_t left = rows[0].count - row;
        add_block(g, rows[0].x + row * K, rows[1].x + row * M,
                  left < BLOCK_ROWS ? left : BLOCK_ROWS);
    }
    return STATUS_OK;
}

static Status gather_now(Gathering *g, Calibration *now, Node *x, Node *value,
                         Diag *diag) {
    Drift *drift = g->drift;
    const size_t M = (size_t)drift->outputs, K = (size_t)drift->inputs;
    drift->cross = calloc(M * K, sizeof *drift->cross);
    drift->mean = calloc(M, sizeof *drift->mean);
    g->t = calloc(BLOCK_ROWS * M, sizeof *g->t);
    g->product = calloc(M * K, sizeof *g->product);
    Status status = STATUS_OK;
    if (!drift->cross || !drift->mean || !g->t || !g->product) status = fail_memory(diag);
    if (status == STATUS_OK)
        status = calibration_rows(now, (Node *[]){x, value}, 2, add_rows, g, diag);
    free(g->t);
    free(g->product);
    for (size_t m = 0; status == STATUS_OK && m < M && g->row > 0; m++)
        drift->mean[m] /= (double)g->row;
    return status;
}

Status drift_gather(Drift *drift, Gram *gram, Calibration *now, Node *x, Node *value,
                    const Before *before, Diag *diag) {
    Node *twin = before->twins[value->id];
    KeptRows kept = {.width = node_width(value)};
    Gathering g = {.drift = drift,
                   .gram = gram,
                   .before = &kept,
                   .threads = calibration_threads(now)};
    *drift = (Drift){.outputs = kept.width, .inputs = node_width(x)};
    TRY(gram_create(gram, drift->inputs, diag));
    Status status =
        calibration_rows(before->calibration, &twin, 1, keep_rows, &kept, diag);
    if (status == STATUS_OK) status = gather_now(&g, now, x, value, diag);
    if (status == STATUS_OK) status = calibration_finish(now, gram, x, diag);
    free(kept.x);
    if (status != STATUS_OK) {
        gram_destroy(gram);
        drift_free(drift);
    }
    return status;
}
