/* Shared parts of T2R: see t2r.h.
 *
 * The denominator q . z of linear attention is no value of the graph. But with values of
 * ones its result is (q . z) / max(q . z, eps): 1, and less than 1 where eps took the
 * denominator's place. So a copy of the model gets, beside each linear attention, a probe
 * that reads the same queries, keys and mask, and values of width 1 per head that are all
 * ones. */
#include "passes/t2r.h"

#include <stdlib.h>
#include <string.h>

const char *t2r_place(const PassContext *ctx, const Node *node) {
    return arena_printf(ctx->arena, "%s.%d", node->stack ? node->stack : "model",
                        node->layer);
}

bool t2r_is(const Node *node, const char *op) {
    return node && strcmp(node->op->name, op) == 0;
}

int64_t t2r_groups(int64_t heads, int64_t kv_heads) {
    return kv_heads > 0 ? kv_heads : heads;
}

/* ---- clamped rows ---- */

/* One linear attention that is measured. */
typedef struct Probe {
    const Node *node; /* in the copy */
    int mask;         /* column that tells padding apart; -1 = all rows count */
    int64_t rows, clamped;
} Probe;

typedef struct Probes {
    Probe *items;
    Node **results;
    int count;
} Probes;

/* A denominator this close below eps is taken for eps: rounding of the probe. */
static const float NEARLY_ONE = 0.9999f;

/* Ones [N, S, G]: what no weights but a bias of ones make of the keys. */
static Status add_ones(Node **out, Graph *graph, Node *keys, int64_t groups, Diag *diag) {
    const int64_t width = keys->type.dim[keys->type.rank - 1];
    Node *weight = NULL, *bias = NULL;
    TRY(edit_param(&weight, graph, "probe.weight", (Init){INIT_ZEROS, 0}, 2,
                   (int64_t[]){groups, width}, diag));
    TRY(edit_param(&bias, graph, "probe.bias", (Init){INIT_ONES, 0}, 1, &groups, diag));
    return edit_node(out, graph, NULL, "linear", (Node *[]){keys, weight, bias}, 3, diag,
                     NULL);
}

static Status add_probe(Node **out, Graph *graph, const Node *node, Diag *diag) {
    const LinearAttentionAttrs *attrs = node->attrs;
    Node *in[4] = {node_operand(node, "q"), node_operand(node, "k"), NULL,
                   node_operand(node, "mask")};
    TRY(add_ones(&in[2], graph, in[1], t2r_groups(attrs->heads, attrs->kv_heads), diag));
    return edit_node(out, graph, NULL, "linear_attention", in, in[3] ? 4 : 3, diag,
                     "heads=%lld kv_heads=%lld causal=%s eps=%.17g",
                     (long long)attrs->heads, (long long)attrs->kv_heads,
                     attrs->causal ? "true" : "false", attrs->eps);
}

/* Column whose zeros are padding among the queries: the mask, where it is an input and
 * queries and keys are the same tokens. */
static int padding_column(const Node *node, const Batches *data) {
    const Node *mask = node_operand(node, "mask"), *q = node_operand(node, "q");
    if (!mask || !mask->name || mask->type.dim[1] != q->type.dim[1]) return -1;
    return batches_column(data, mask->name);
}

static Status add_probes(Probes *probes, PassContext *ctx, Graph *graph,
                         const Batches *data, Diag *diag) {
    size_t count = 0;
    for (const Node *node = graph->first; node; node = node->next)
        count += t2r_is(node, "linear_attention");
    probes->items = ARENA_ARRAY(ctx->arena, Probe, count);
    probes->results = ARENA_ARRAY(ctx->arena, Node *, count);
    for (const Node *node = graph->first; probes->count < (int)count; node = node->next) {
        if (!t2r_is(node, "linear_attention")) continue;
        const int i = probes->count++;
        probes->items[i] = (Probe){.node = node, .mask = padding_column(node, data)};
        TRY(add_probe(&probes->results[i], graph, node, diag));
    }
    return STATUS_OK;
}

static void count_rows(Probe *probe, const float *values, const int32_t *mask,
                       int64_t tokens, int64_t heads) {
    for (int64_t t = 0; t < tokens; t++) {
        if (mask && mask[t] == 0) continue;
        probe->rows += heads;
        for (int64_t h = 0; h < heads; h++)
            probe->clamped += values[t * heads + h] < NEARLY_ONE;
    }
}

static Status count_clamped(void *self, const Fetch *what, const float *const *values,
                            const void *const *columns, Diag *diag) {
    (void)diag;
    Probes *probes = self;
    for (int i = 0; i < probes->count; i++) {
        Probe *probe = &probes->items[i];
        const Type *type = &probes->results[i]->type;
        const int64_t tokens = type->dim[1] < 0 ? what->tokens : type->dim[1];
        count_rows(probe, values[i], probe->mask < 0 ? NULL : columns[probe->mask],
                   what->n * tokens, type->dim[2]);
    }
    return STATUS_OK;
}

static void record_probes(PassContext *ctx, const Probes *probes) {
    Tree *list = tree_new(ctx->arena, TREE_LIST, LOC_NONE);
    for (int i = 0; i < probes->count; i++) {
        const Probe *probe = &probes->items[i];
        Tree *row = tree_new(ctx->arena, TREE_MAP, LOC_NONE);
        tree_put_string(ctx->arena, row, "block", t2r_place(ctx, probe->node));
        tree_put_int(ctx->arena, row, "rows", probe->rows);
        tree_put_real(ctx->arena, row, "share",
                      probe->rows ? (double)probe->clamped / (double)probe->rows : 0);
        tree_append(ctx->arena, list, NULL, LOC_NONE, row);
    }
    tree_append(ctx->arena, ctx->record, "clamped", LOC_NONE, list);
}

Status t2r_record_clamped(PassContext *ctx, const Model *model, const T2rData *on,
                          Diag *diag) {
    Model *copy = model_copy(model);
    Probes probes = {0};
    Status status = add_probes(&probes, ctx, copy->graph, on->data, diag);
    if (status == STATUS_OK) status = model_init_weights(copy, ctx->seed, diag);
    if (status == STATUS_OK)
        status = forward_batches(copy->graph, probes.results, probes.count, on->data,
                                 on->limit, on->batch_size, ctx->threads, ctx->watch,
                                 count_clamped, &probes, diag);
    if (status == STATUS_OK) record_probes(ctx, &probes);
    model_destroy(copy);
    return status;
}
