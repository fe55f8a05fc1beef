/* Shared parts of T2R: see t2r.h. */
#include "passes/t2r/t2r.h"

#include "exec/run/clamp_count.h"

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
    return edit_fail(ctx, diag, "%s: expected a mask that is a column of data set \"%s\"",
                     t2r_place(ctx, probe->node), data->name);
}

static Status find_probes(Probes *probes, PassContext *ctx, const Graph *graph,
                          const Batches *data, Diag *diag) {
    size_t count = 0;
    for (const Node *node = graph->first; node; node = node->next)
        count += node_is(node, &op_linear_attention);
    probes->items = ARENA_ARRAY(ctx->arena, Probe, count);
    probes->results = ARENA_ARRAY(ctx->arena, Node *, 2 * count);
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node_is(node, &op_linear_attention)) continue;
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
    const DataUse use = {
        .graph = graph, .roots = probes.results, .root_count = 2 * probes.count};
    if (probes.count > 0) TRY(step_data(ctx, on->data, &use, &data, diag));
    if (ctx->plan) return STATUS_OK;
    TRY(forward_batches(graph, probes.results, 2 * probes.count, data, on->limit,
                        on->batch_size, ctx->threads, ctx->watch, count_clamped, &probes,
                        diag));
    record_probes(ctx, &probes);
    return STATUS_OK;
}
