/* What the functions that write ops share: see onnx_export.h. */
#include "io/onnx/write/onnx_export.h"

#include <string.h>

/* ---- the table ---- */

static const struct {
    const char *name;
    OnnxOp *write;
} OPS[] = {
#define ONNX_OP(name) {#name, onnx_op_##name},
#include "io/onnx/write/onnx_ops.def"
#undef ONNX_OP
};

OnnxOp *onnx_op_find(const char *name) {
    for (size_t i = 0; i < sizeof OPS / sizeof *OPS; i++)
        if (strcmp(OPS[i].name, name) == 0) return OPS[i].write;
    return NULL;
}

const char *onnx_export_node(OnnxExport *x, const Node *node) {
    if (x->values[node->id]) return x->values[node->id];
    /* where a node stands, as PyTorch's exporter names modules: "/encoder.3/attention" */
    const char *role = node->role != ROLE_NONE ? role_name(node->role) : node->op->name;
    const char *around = x->b->scope;
    if (!node->stack)
        x->b->scope = arena_printf(x->b->arena, "/%s", role);
    else if (node->layer < 0)
        x->b->scope = arena_printf(x->b->arena, "/%s/%s", node->stack, role);
    else
        x->b->scope =
            arena_printf(x->b->arena, "/%s.%d/%s", node->stack, node->layer, role);
    const char *value = onnx_op_find(node->op->name)(x, node);
    x->b->scope = around;
    return x->values[node->id] = value;
}

void onnx_mark(const Node *node, bool *needed) {
    if (needed[node->id]) return;
    needed[node->id] = true;
    for (int i = 0; i < node->in_count; i++)
        if (node->in[i]) onnx_mark(node->in[i], needed);
}

/* ---- operands ---- */

const Storage *onnx_storage(const Node *node, int i) {
    return node_has(node, i) ? node->in[i]->storage : NULL;
}

const char *onnx_operand(OnnxExport *x, const Node *node, int i) {
    if (!node_has(node, i)) return NULL;
    const Storage *storage = node->in[i]->storage;
    return storage ? onnx_weight(x->b, storage, ONNX_AS_IT_IS, NULL, 0)
                   : x->values[node->in[i]->id];
}

const char *onnx_named(OnnxExport *x, const Node *node, const char *name) {
    return onnx_operand(x, node, op_operand_index(node->op, name));
}

/* ---- lengths and positions ---- */

const char *onnx_length(OnnxExport *x, int64_t dim) {
    if (dim >= 0) return ONNX_VECTOR(x->b, dim);
    const char *key = arena_printf(x->b->arena, "length %d", (int)dim);
    const char *kept = onnx_kept(x->b, key);
    for (const Node *node = x->graph->first; node && !kept; node = node->next)
        for (int i = 1; node_is_input(node) && !kept && i < node->type.rank; i++)
            if (node->type.dim[i] == dim && x->values[node->id])
                kept = onnx_keep(x->b, key, onnx_dim(x->b, x->values[node->id], i));
    return kept;
}

const char *onnx_past(OnnxExport *x, int64_t dim) {
    OnnxBuild *b = x->b;
    if (!x->cached || dim != DIM_T) return ONNX_VECTOR(b, 0);
    const char *kept = onnx_kept(b, "past");
    if (kept) return kept;
    if (!x->key_mask) return onnx_keep(b, "past", onnx_dim(b, x->first_key, 2));
    const char *length = onnx_length(x, dim);
    const char *total = onnx_keep(b, "total", onnx_dim(b, x->key_mask, 1));
    return onnx_keep(b, "past", ONNX_NODE(b, "Sub", total, length));
}

/* Tokens before and those of `dim` together. */
static const char *total_of(OnnxExport *x, int64_t dim) {
    const char *length = onnx_length(x, dim);
    if (!x->cached || dim != DIM_T) return length;
    const char *past = onnx_past(x, dim), *kept = onnx_kept(x->b, "total");
    return kept ? kept : onnx_keep(x->b, "total", ONNX_NODE(x->b, "Add", past, length));
}

/* 0, 1, ... along the last dimension of integers [N, T], `more` added. Values that come
 * out of the integers themselves keep the names of their dimensions, which onnxruntime
 * needs to see that shapes are equal. */
static const char *count_along(OnnxBuild *b, const char *integers, const char *more) {
    const char *ones = ONNX_NODE(b, "Sub", integers, integers);
    ones = ONNX_NODE(b, "Add", ones, onnx_i64(b, 1));
    const char *numbers = ONNX_NODE(b, "CumSum", ones, onnx_i64(b, 1));
    onnx_set_int(b, "exclusive", 1);
    return more ? ONNX_NODE(b, "Add", numbers, more) : numbers;
}

/* Places of the tokens of `dim` among all of their text, [N or 1, T]. */
static const char *places_of(OnnxExport *x, int64_t dim) {
    OnnxBuild *b = x->b;
    const char *key = arena_printf(b->arena, "places %lld %d", (long long)dim, x->cached);
    const char *value = onnx_kept(b, key), *ids = NULL;
    if (value) return value;
    const char *past = x->cached && dim == DIM_T ? onnx_past(x, dim) : NULL;
    for (const Node *node = x->graph->first; node; node = node->next)
        if (node_is_input(node) && node->type.dtype == DTYPE_I32 &&
            node->type.rank == 2 && node->type.dim[1] == dim && !ids)
            ids = x->values[node->id];
    if (ids && dim < 0) return onnx_keep(b, key, count_along(b, ids, past));
    value = onnx_range(b, ONNX_VECTOR(b, 0), onnx_length(x, dim));
    return onnx_keep(b, key, onnx_unsqueeze(b, value, 0));
}

const char *onnx_positions(OnnxExport *x, int64_t dim, int64_t offset) {
    OnnxBuild *b = x->b;
    const char *key =
        arena_printf(b->arena, "positions %lld %lld", (long long)dim, (long long)offset);
    const char *value = onnx_kept(b, key);
    if (value) return value;
    value = places_of(x, dim);
    if (x->cached && dim == DIM_T && x->key_mask) {
        /* A token's number is that of the tokens before it that count. */
        const char *numbers = ONNX_NODE(b, "CumSum", x->key_mask, onnx_i64(b, 1));
        numbers = ONNX_NODE(b, "Sub", numbers, onnx_i64(b, 1));
        numbers = ONNX_NODE(b, "Max", numbers, onnx_i64(b, 0));
        value = ONNX_NODE(b, "GatherElements", numbers, value);
        onnx_set_int(b, "axis", 1);
    }
    if (offset) value = ONNX_NODE(b, "Add", value, onnx_i64(b, offset));
    return onnx_keep(b, key, value);
}

/* Places of the tokens of `dim` [N or 1, 1, T, 1] and of the keys that they may see [N or
 * 1, 1, 1, S]. */
static void places_of_pairs(OnnxExport *x, int64_t dim, const char **queries_out,
                            const char **keys_out) {
    OnnxBuild *b = x->b;
    const char *queries = places_of(x, dim), *keys = queries;
    if (x->cached && dim == DIM_T)
        keys = x->key_mask
                   ? count_along(b, x->key_mask, NULL)
                   : onnx_unsqueeze(b, onnx_range(b, ONNX_VECTOR(b, 0), total_of(x, dim)),
                                    0);
    *queries_out = onnx_unsqueeze(b, onnx_unsqueeze(b, queries, 1), 3);
    *keys_out = onnx_unsqueeze(b, onnx_unsqueeze(b, keys, 1), 1);
}

const char *onnx_causal(OnnxExport *x, int64_t dim) {
    OnnxBuild *b = x->b;
    const char *key = arena_printf(b->arena, "causal %lld %d", (long long)dim, x->cached);
    const char *value = onnx_kept(b, key), *queries, *keys;
    if (value) return value;
    places_of_pairs(x, dim, &queries, &keys);
    return onnx_keep(b, key, ONNX_NODE(b, "LessOrEqual", keys, queries));
}

const char *onnx_near(OnnxExport *x, int64_t dim, int64_t reach, bool both) {
    OnnxBuild *b = x->b;
    const char *key = arena_printf(b->arena, "near %lld %lld %d %d", (long long)dim,
                                   (long long)reach, both, x->cached);
    const char *value = onnx_kept(b, key), *queries, *keys;
    if (value) return value;
    places_of_pairs(x, dim, &queries, &keys);
    const char *distance = ONNX_NODE(b, "Sub", queries, keys);
    if (both) distance = ONNX_NODE(b, "Abs", distance);
    return onnx_keep(b, key, ONNX_NODE(b, "Less", distance, onnx_i64(b, reach)));
}

const char *onnx_offsets(OnnxExport *x, int64_t queries, int64_t keys) {
    OnnxBuild *b = x->b;
    const char *past = onnx_past(x, queries), *zero = ONNX_VECTOR(b, 0);
    const char *from = onnx_range(b, past, total_of(x, queries));
    const char *to = onnx_range(b, zero, total_of(x, keys));
    return ONNX_NODE(b, "Sub", onnx_unsqueeze(b, to, 0), onnx_unsqueeze(b, from, 1));
}

const char *onnx_mask_real(OnnxExport *x, const char *mask) {
    const char *key = arena_printf(x->b->arena, "real %s", mask);
    const char *kept = onnx_kept(x->b, key);
    return kept ? kept : onnx_keep(x->b, key, onnx_cast(x->b, mask, x->b->real));
}

/* ---- heads ---- */

const char *onnx_split_heads(OnnxBuild *b, const char *x, int64_t heads, int64_t width) {
    return ONNX_TRANSPOSE(b, ONNX_RESHAPE(b, x, 0, 0, heads, width), 0, 2, 1, 3);
}

const char *onnx_join_heads(OnnxBuild *b, const char *x, int64_t width) {
    return ONNX_RESHAPE(b, ONNX_TRANSPOSE(b, x, 0, 2, 1, 3), 0, 0, width);
}

const char *onnx_repeat_heads(OnnxBuild *b, const char *x, int64_t groups, int64_t heads,
                              int64_t width) {
    if (groups == heads) return x;
    x = onnx_unsqueeze(b, x, 2);
    x = ONNX_NODE(b, "Expand", x, ONNX_VECTOR(b, 1, 1, heads / groups, 1, 1));
    return ONNX_RESHAPE(b, x, 0, heads, -1, width);
}

/* ---- states ---- */

const char *onnx_state_in(OnnxExport *x, const char *name, const int64_t *dim,
                          const char *const *names, int rank) {
    OnnxBuild *root = onnx_build_root(x->b);
    onnx_input(root, name, x->b->real, dim, names, rank);
    return arena_strdup(x->b->arena, name);
}

const char *onnx_state_out(OnnxExport *x, const char *name, const char *value,
                           const int64_t *dim, const char *const *names, int rank) {
    onnx_output(onnx_build_root(x->b), name, x->b->real, dim, names, rank);
    return onnx_rename(x->b, value, name);
}
