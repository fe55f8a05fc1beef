/* Sharing of a group's weights: see multiplex.h. */
#include "passes/multiplex/multiplex.h"

#include "ir/rewrite.h"
#include "passes/guess.h"
#include "passes/linears.h"

#include <math.h>

/* What a group shares. Layer norms are not in the list; feed-forward blocks need not be
 * gated, and not all layers attend to an encoder. */
static const Role shared_roles[] = {
    ROLE_Q,       ROLE_K,         ROLE_V,      ROLE_OUT,      ROLE_CROSS_Q, ROLE_CROSS_K,
    ROLE_CROSS_V, ROLE_CROSS_OUT, ROLE_FFN_IN, ROLE_FFN_GATE, ROLE_FFN_OUT};
enum { SHARED_ROLES = sizeof shared_roles / sizeof shared_roles[0] };

/* Projection of a layer whose weight, and bias if it has one, are stored. */
static Status layer_node(Node **out, const Multiplex *m, int layer, Role role,
                         Diag *diag) {
    Node *node = node_find(m->graph, m->options->stack, layer, role, &op_linear);
    if (!node)
        return step_fail(m->ctx, diag, "layer %d has no projection \"%s\" to share",
                         layer, role_name(role));
    const Node *bias = node_operand(node, "bias");
    if (!node_operand(node, "weight")->storage || (bias && !bias->storage))
        return step_fail(m->ctx, diag,
                         "layer %d: the weights of %s are computed, not stored", layer,
                         role_name(role));
    if (linear_first_factor(m->graph, node)) {
        Status status =
            step_fail(m->ctx, diag, "layer %d: %s is two factors, which cannot be shared",
                      layer, role_name(role));
        diag_hint(diag, "merge_factors with all: true makes them one matrix");
        return status;
    }
    *out = node;
    return STATUS_OK;
}

static Status check_same_shape(const Multiplex *m, const Node *a, const Node *b,
                               const char *operand, Diag *diag) {
    const Node *x = node_operand(a, operand), *y = node_operand(b, operand);
    if (!x && !y) return STATUS_OK;
    if (x && y && type_equal(&x->type, &y->type)) return STATUS_OK;
    char left[SHAPE_TEXT_BYTES] = "none", right[SHAPE_TEXT_BYTES] = "none";
    if (x) shape_text(left, x->type.rank, x->type.dim);
    if (y) shape_text(right, y->type.rank, y->type.dim);
    return step_fail(
        m->ctx, diag,
        "layers %d and %d cannot share %s: expected %s of equal shape, found "
        "%s and %s",
        a->layer, b->layer, role_name(a->role), operand, left, right);
}

/* ||a - b||_F / ||a||_F. */
static double deviation(const Tensor *a, const Tensor *b) {
    enum { CHUNK = 1024 };
    double x[CHUNK], y[CHUNK], difference = 0, norm = 0;
    const int64_t total = tensor_count(a);
    for (int64_t at = 0; at < total; at += CHUNK) {
        const int64_t n = total - at < CHUNK ? total - at : CHUNK;
        tensor_read_f64(a, at, n, x);
        tensor_read_f64(b, at, n, y);
        for (int64_t i = 0; i < n; i++) {
            difference += (x[i] - y[i]) * (x[i] - y[i]);
            norm += x[i] * x[i];
        }
    }
    if (difference == 0) return 0;
    return norm > 0 ? sqrt(difference / norm) : INFINITY;
}

/* Shares one operand of one role over the layers of a group, and measures what that costs
 * each of them. Layers outside the group that use the same weights keep theirs. */
static Status share_operand(Multiplex *m, Node *const *nodes, int count,
                            const char *operand, Diag *diag) {
    const StorageUsers users = {nodes, count};
    if (!node_operand(nodes[0], operand)) return STATUS_OK;
    Tensor *before = ARENA_ARRAY(m->ctx->arena, Tensor, (size_t)count);
    for (int l = 0; l < count; l++)
        before[l] =
            tensor_retain(storage_tensor(node_operand(nodes[l], operand)->storage));
    Status status = STATUS_OK;
    if (m->options->init == SHARE_FIRST)
        storage_share(users, operand);
    else
        status = storage_merge(m->graph, users, operand, diag);
    const Storage *merged = node_operand(nodes[0], operand)->storage;
    for (int l = 0; l < count; l++) {
        if (status == STATUS_OK && storage_has_data(merged))
            m->deviation =
                fmax(m->deviation, deviation(&before[l], storage_tensor(merged)));
        tensor_release(&before[l]);
    }
    return status;
}

/* What a plan does not know: whether the layers of a group still are equal then. */
static void warn_guessed(Multiplex *m, int first, int count, Diag *diag) {
    PassContext *ctx = m->ctx;
    bool guessed = false;
    for (int i = 0; i < SHARED_ROLES; i++)
        for (int l = 1; l < count; l++) {
            const Node *a =
                graph_find(m->graph, m->options->stack, first, shared_roles[i]);
            const Node *b =
                graph_find(m->graph, m->options->stack, first + l, shared_roles[i]);
            if (!a || !b) continue;
            const Node *x = node_operand(a, "weight"), *y = node_operand(b, "weight");
            guessed |=
                x != y && (guess_has(ctx, x->storage) || guess_has(ctx, y->storage));
        }
    if (!guessed || m->warned) return;
    m->warned = ctx->guessed = true;
    diag_warn(
        diag, ctx->source.at, ctx->source.key,
        "how many heads or units each layer has by then is guessed: the run is "
        "refused where layers of a group differ, and sizes and FLOPs after this step are "
        "approximate");
}

/* Whether no layer of a group has a role that layers may do without. */
static bool is_absent(const Multiplex *m, int first, int count, Role role) {
    bool absent = role == ROLE_FFN_GATE || role == ROLE_CROSS_Q || role == ROLE_CROSS_K ||
                  role == ROLE_CROSS_V || role == ROLE_CROSS_OUT;
    for (int l = 0; l < count && absent; l++)
        absent = !graph_find(m->graph, m->options->stack, first + l, role);
    return absent;
}

static Status check_role(const Multiplex *m, int first, int count, Role role,
                         Diag *diag) {
    Node *reference = NULL;
    if (is_absent(m, first, count, role)) return STATUS_OK;
    TRY(layer_node(&reference, m, first, role, diag));
    for (int l = 1; l < count; l++) {
        Node *node = NULL;
        TRY(layer_node(&node, m, first + l, role, diag));
        /* Rows of a weight that is used transposed are its inputs: square matrices must
         * not be mixed up. */
        if (((const LinearAttrs *)reference->attrs)->transposed !=
            ((const LinearAttrs *)node->attrs)->transposed)
            return step_fail(m->ctx, diag,
                             "layers %d and %d cannot share %s: one of them uses its "
                             "weight transposed",
                             first, first + l, role_name(role));
        TRY(check_same_shape(m, reference, node, "weight", diag));
        TRY(check_same_shape(m, reference, node, "bias", diag));
    }
    return STATUS_OK;
}

static Status share_role(Multiplex *m, int first, int count, Role role, Diag *diag) {
    if (is_absent(m, first, count, role)) return STATUS_OK;
    Node **nodes = ARENA_ARRAY(m->ctx->arena, Node *, (size_t)count);
    for (int l = 0; l < count; l++)
        nodes[l] = graph_find(m->graph, m->options->stack, first + l, role);
    TRY(share_operand(m, nodes, count, "weight", diag));
    return share_operand(m, nodes, count, "bias", diag);
}

static Status check_heads(const Multiplex *m, int first, int count, Diag *diag) {
    const Node *reference = NULL;
    for (int l = 0; l < count; l++) {
        const Node *node = node_find(m->graph, m->options->stack, first + l,
                                     ROLE_ATTENTION, &op_attention);
        if (l == 0) reference = node;
        if (!node) return step_fail(m->ctx, diag, "layer %d has no attention", first + l);
        const AttentionAttrs *a = reference->attrs, *b = node->attrs;
        if (a->heads != b->heads)
            return step_fail(m->ctx, diag,
                             "layers %d and %d cannot be grouped: %lld and %lld heads",
                             first, first + l, (long long)a->heads, (long long)b->heads);
        if (a->window != b->window)
            return step_fail(m->ctx, diag,
                             "layers %d and %d cannot be grouped: they attend in windows "
                             "of %lld and %lld (0 = none)",
                             first, first + l, (long long)a->window,
                             (long long)b->window);
        if (a->reach != b->reach || a->cap != b->cap)
            return step_fail(m->ctx, diag,
                             "layers %d and %d cannot be grouped: they see keys up to "
                             "%lld and %lld tokens away (0 = all), with caps %g and %g",
                             first, first + l, (long long)a->reach, (long long)b->reach,
                             a->cap, b->cap);
        if (a->kv_heads != b->kv_heads)
            return step_fail(
                m->ctx, diag,
                "layers %d and %d cannot be grouped: they differ in kv_heads", first,
                first + l);
    }
    return STATUS_OK;
}

/* Tables of biases by relative position: of one shape, stored, or there are none. */
static Status check_tables(const Multiplex *m, Node *const *attention, int count,
                           Diag *diag) {
    for (int l = 0; l < count; l++) {
        const Node *table = node_operand(attention[l], "rel_bias");
        TRY(check_same_shape(m, attention[0], attention[l], "rel_bias", diag));
        if (table && !table->storage)
            return step_fail(m->ctx, diag, "layer %d: rel_bias is computed, not stored",
                             attention[l]->layer);
    }
    return STATUS_OK;
}

Status multiplex_share(Multiplex *m, int first, int count, Diag *diag) {
    static const Role attention[] = {ROLE_Q, ROLE_K, ROLE_V}, ffn[] = {ROLE_FFN_IN};
    m->deviation = 0;
    TRY(check_heads(m, first, count, diag));
    Node **nodes = ARENA_ARRAY(m->ctx->arena, Node *, (size_t)count);
    for (int l = 0; l < count; l++)
        nodes[l] = graph_find(m->graph, m->options->stack, first + l, ROLE_ATTENTION);
    TRY(check_tables(m, nodes, count, diag));
    for (int i = 0; i < SHARED_ROLES; i++)
        TRY(check_role(m, first, count, shared_roles[i], diag));
    if (count == 1) return STATUS_OK;
    warn_guessed(m, first, count, diag);
    if (m->options->init == SHARE_LSQ) {
        TRY(multiplex_lsq(m, first, count, ROLE_NORM1, attention, 3, diag));
        TRY(multiplex_lsq(m, first, count, ROLE_NORM2, ffn, 1, diag));
    }
    for (int i = 0; i < SHARED_ROLES; i++)
        TRY(share_role(m, first, count, shared_roles[i], diag));
    return share_operand(m, nodes, count, "rel_bias", diag);
}
