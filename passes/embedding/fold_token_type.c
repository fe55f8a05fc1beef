/* fold_token_type: token types leave the model; type 0 becomes part of the positions.
 *
 * For a word w at position t with all types 0: E[w] + S[0] + P[t] = E[w] + (P[t] + S[0]),
 * so the table P + S[0] gives the same sum without the types' input and embedding S. */
#include "ir/storage.h"
#include "passes/fault.h"
#include "passes/nodes.h"

#include "ir/rewrite.h"

#include <math.h>
#include <stdlib.h>

/* The nodes that are involved. */
typedef struct TokenTypes {
    Node *sum;    /* x + embedding */
    Node *x;      /* its other operand */
    Node *lookup; /* embedding(ids, types) */
    Node *ids, *types;
    Node *position; /* add_position(x, table) */
    Node *table;
} TokenTypes;

static bool is_lookup(const Node *node) {
    return node_is(node, &op_embedding);
}

/* The sum that adds token types, and which of its operands does. */
static Status find_types(TokenTypes *t, PassContext *ctx, const Graph *graph,
                         Diag *diag) {
    t->sum = graph_find(graph, NULL, -1, ROLE_TOKEN_TYPE);
    if (!t->sum)
        return step_fail(ctx, diag, "expected a model with token types, found none");
    const bool pair = t->sum->in_count == 2 && node_is(t->sum, &op_add);
    const int at = pair && is_lookup(t->sum->in[1]) ? 1 : 0;
    if (!pair || !is_lookup(t->sum->in[at]))
        return step_fail(ctx, diag,
                         "expected token types added by add(x, embedding(ids, weight)), "
                         "found op %s",
                         t->sum->op->name);
    t->x = t->sum->in[1 - at];
    t->lookup = t->sum->in[at];
    t->ids = t->lookup->in[0];
    t->types = t->lookup->in[1];
    if (!t->types->storage || !type_equal(&t->sum->type, &t->x->type) ||
        !type_equal(&t->sum->type, &t->lookup->type))
        return step_fail(ctx, diag,
                         "expected a table of token types as wide as the tokens");
    return STATUS_OK;
}

/* The position table, which must be added right before or after the types and have no
 * other user. */
static Status find_positions(TokenTypes *t, PassContext *ctx, const Graph *graph,
                             Diag *diag) {
    t->position = graph_find(graph, NULL, -1, ROLE_POSITION);
    if (!node_is(t->position, &op_add_position))
        return step_fail(ctx, diag, "expected a model with a position table, found %s",
                         t->position ? t->position->op->name : "none");
    if (t->position->in[0] != t->sum && t->x != t->position)
        return step_fail(ctx, diag,
                         "expected positions added right before or after token types");
    Node *between = t->x == t->position ? t->position : t->sum;
    t->table = t->position->in[1];
    if (!t->table->storage || graph_use_count(graph, t->table) != 1 ||
        graph_use_count(graph, between) != 1)
        return step_fail(ctx, diag,
                         "expected a position table with one user and no other use of "
                         "the sum that it goes into");
    return STATUS_OK;
}

/* The table plus row 0 of the types, as float32. */
static Status fold_row(Tensor *out, const Storage *positions, const Tensor *types,
                       Diag *diag) {
    const Tensor *table = storage_tensor(positions);
    const int64_t rows = table->dim[0], width = table->dim[1];
    void *data = NULL;
    TRY(storage_blank(out, &data, positions, DTYPE_F32, table->rank, table->dim, diag));
    if (!data) return STATUS_OK;
    float *folded = data;
    double *row = memory_alloc((size_t)width, sizeof *row);
    double *position = memory_alloc((size_t)width, sizeof *position);
    tensor_read_f64(types, 0, width, row);
    for (int64_t p = 0; p < rows; p++) {
        tensor_read_f64(table, p * width, width, position);
        for (int64_t i = 0; i < width; i++)
            folded[p * width + i] = (float)(position[i] + row[i]);
    }
    free(row);
    free(position);
    return STATUS_OK;
}

/* Largest |S[r] - S[0]|: how much an embedding changes whose type was not 0. */
static double largest_difference(const Tensor *types) {
    const int64_t count = types->dim[0], width = types->dim[1];
    double *first = memory_alloc((size_t)width, sizeof *first), largest = 0;
    double *row = memory_alloc((size_t)width, sizeof *row);
    tensor_read_f64(types, 0, width, first);
    for (int64_t r = 1; r < count; r++) {
        tensor_read_f64(types, r * width, width, row);
        for (int64_t i = 0; i < width; i++)
            largest = fmax(largest, fabs(row[i] - first[i]));
    }
    free(first);
    free(row);
    return largest;
}

static Status fold_run(PassContext *ctx, Model *model, const void *opaque, Diag *diag) {
    (void)opaque;
    Graph *graph = model->graph;
    TokenTypes t = {0};
    TRY(find_types(&t, ctx, graph, diag));
    TRY(find_positions(&t, ctx, graph, diag));
    Tensor folded;
    const Tensor *types = storage_tensor(t.types->storage);
    const int64_t type_count = types->dim[0];
    TRY(fold_row(&folded, t.table->storage, types, diag));
    TRY(storage_replace(graph, t.table, STORAGE_USER(t.position), folded, -1, diag));
    tree_put_int(ctx->arena, ctx->record, "types", type_count);
    if (storage_has_data(t.types->storage))
        tree_put_real(ctx->arena, ctx->record, "largest_difference",
                      largest_difference(types));
    graph_replace_uses(graph, t.sum, t.x);
    graph_remove_dead(graph);
    if (t.ids->name && graph_use_count(graph, t.ids) == 0) graph_erase(graph, t.ids);
    ctx->exact = type_count == 1;
    return graph_infer(graph, diag);
}

const Pass pass_fold_token_type = {
    .name = "fold_token_type",
    .summary = "add token type 0 to the positions and drop token types",
    .paper = "DistilBERT, a distilled version of BERT (2019), section 3",
    .exactness = PASS_LOSSY,
    .effects = {.needs = MODEL_TOKEN_TYPES, .takes = MODEL_TOKEN_TYPES},
    .run = fold_run,
};
