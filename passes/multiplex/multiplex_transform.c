/* Per-layer transformations and mean pooling of weight multiplexing: see multiplex.h. */
#include "passes/multiplex/multiplex.h"

#include "ir/rewrite.h"
#include "passes/patches.h"

/* Buckets of the relative-position table: 7 x 7 offsets, see exec/ops.h. */
enum { POSITION_BUCKETS = 49 };

static const char *storage_name(const Multiplex *m, int layer, const char *part) {
    return arena_printf(m->graph->arena, "%s.layer.%d.%s", m->options->stack, layer,
                        part);
}

static Status fail_multiplexed(const Multiplex *m, int layer, const char *part,
                               Diag *diag) {
    return step_fail(m->ctx, diag, "layer %d is multiplexed already (it has %s)", layer,
                     part);
}

/* Gives attention a parameter of its own as an operand. */
static Status add_operand(Multiplex *m, Node *attention, const char *operand, Init init,
                          int rank, const int64_t *shape, Diag *diag) {
    Node *leaf = NULL;
    if (node_operand(attention, operand))
        return fail_multiplexed(m, attention->layer, operand, diag);
    TRY(storage_create(&leaf, m->graph, storage_name(m, attention->layer, operand), init,
                       rank, shape, diag));
    node_set_operand(m->graph, attention, operand, leaf);
    return STATUS_OK;
}

static Status add_mixing(Multiplex *m, Node *attention, const char *operand,
                         const char *bias, Diag *diag) {
    const AttentionAttrs *attrs = attention->attrs;
    const int64_t shape[2] = {attrs->heads, attrs->heads};
    if (attrs->kv_heads && attrs->kv_heads != attrs->heads) {
        step_fail_option(m->ctx, "mixing", diag,
                         "expected keys for each of the %lld heads to mix, found %lld in "
                         "layer %d",
                         (long long)attrs->heads, (long long)attrs->kv_heads,
                         attention->layer);
        diag_hint(diag, "heads that share keys do not mix: set mixing to none");
        return STATUS_MODEL;
    }
    const Init init = {m->options->mixing_init == MIXING_IDENTITY ? INIT_IDENTITY
                                                                  : INIT_TRUNC_NORMAL,
                       m->options->mixing_std};
    TRY(add_operand(m, attention, operand, init, 2, shape, diag));
    if (!m->options->mixing_bias) return STATUS_OK;
    return add_operand(m, attention, bias, (Init){INIT_ZEROS, 0}, 1, shape, diag);
}

/* Grid of a layer's tokens and number of tokens before it; only image models have one. */
static Status find_grid(const Multiplex *m, int layer, const char *option,
                        int64_t grid[2], int *skip, Diag *diag) {
    const Node *attention =
        node_find(m->graph, m->options->stack, layer, ROLE_ATTENTION, &op_attention);
    const AttentionAttrs *attrs = attention ? attention->attrs : NULL;
    *skip = patches_extra_tokens(m->graph);
    if (attrs && attrs->window) { /* the grid of this stage */
        grid[0] = attrs->grid_h;
        grid[1] = attrs->grid_w;
        return STATUS_OK;
    }
    if (patches_grid(m->graph, &grid[0], &grid[1])) return STATUS_OK;
    Status status = step_fail_option(m->ctx, option, diag,
                                     "expected an image model, found no patches");
    diag_hint(diag, "text models have no patch grid: set %s to none", option);
    return status;
}

static Status add_position(Multiplex *m, Node *attention, Diag *diag) {
    int64_t grid[2];
    int skip = 0;
    if (node_operand(attention, "rel_key"))
        return fail_multiplexed(m, attention->layer, "rel_key", diag);
    TRY(find_grid(m, attention->layer, "position", grid, &skip, diag));
    const AttentionAttrs *attrs = attention->attrs;
    const Type *q = &attention->in[0]->type;
    const int64_t shape[2] = {q->dim[q->rank - 1] / attrs->heads, POSITION_BUCKETS};
    TRY(add_operand(m, attention, "rel_key", (Init){INIT_ZEROS, 0}, 2, shape, diag));
    if (attrs->window) return STATUS_OK; /* positions are those within a window */
    return node_set(m->graph, attention, diag, "grid_h=%lld grid_w=%lld skip=%d",
                    (long long)grid[0], (long long)grid[1], skip);
}

/* x + DW(x) after `x`, whose user is `anchor`. */
static Status add_convolution(Node **out, Multiplex *m, int layer, Node *x, Node *anchor,
                              Diag *diag) {
    int64_t grid[2];
    int skip = 0;
    if (graph_find(m->graph, m->options->stack, layer, ROLE_LOCAL_CONV))
        return fail_multiplexed(m, layer, role_name(ROLE_LOCAL_CONV), diag);
    TRY(find_grid(m, layer, "mlp_transform", grid, &skip, diag));
    const int64_t width = x->type.dim[x->type.rank - 1], k = m->options->kernel;
    const bool zero = m->options->mlp_transform == MLP_CONV;
    const Init init = {zero ? INIT_ZEROS : INIT_TRUNC_NORMAL, 0.02};
    Node *weight = NULL, *bias = NULL, *conv = NULL, *sum = NULL;
    TRY(storage_create(&weight, m->graph, storage_name(m, layer, "local_conv.weight"),
                       init, 4, (int64_t[]){width, 1, k, k}, diag));
    TRY(storage_create(&bias, m->graph, storage_name(m, layer, "local_conv.bias"),
                       (Init){INIT_ZEROS, 0}, 1, &width, diag));
    TRY(node_add(&conv, m->graph, anchor, &op_depthwise_conv, (Node *[]){x, weight, bias},
                 3, diag, "grid_h=%lld grid_w=%lld skip=%d", (long long)grid[0],
                 (long long)grid[1], skip));
    node_place(m->graph, conv, m->options->stack, layer, ROLE_LOCAL_CONV);
    TRY(node_add(&sum, m->graph, anchor, &op_add, (Node *[]){x, conv}, 2, diag, NULL));
    *out = node_place(m->graph, sum, m->options->stack, layer, ROLE_NONE);
    return STATUS_OK;
}

/* x <- LN(x); x <- x + DW(x) on the residual stream before the MLP block. */
static Status add_norm_conv(Multiplex *m, int layer, Diag *diag) {
    Node *x = graph_find(m->graph, m->options->stack, layer, ROLE_RESIDUAL1);
    Node *norm2 =
        node_find(m->graph, m->options->stack, layer, ROLE_NORM2, &op_layer_norm);
    if (!x || !norm2 || norm2->in[0] != x)
        return step_fail_option(m->ctx, "mlp_transform", diag,
                                "norm_conv expects pre-norm layers; layer %d has "
                                "none",
                                layer);
    const int64_t width = x->type.dim[x->type.rank - 1];
    Node *next = x->next, *gain = NULL, *shift = NULL, *norm = NULL, *sum = NULL;
    TRY(storage_create(&gain, m->graph, storage_name(m, layer, "local_norm.weight"),
                       (Init){INIT_ONES, 0}, 1, &width, diag));
    TRY(storage_create(&shift, m->graph, storage_name(m, layer, "local_norm.bias"),
                       (Init){INIT_ZEROS, 0}, 1, &width, diag));
    const LayerNormAttrs *like = norm2->attrs;
    TRY(node_add(&norm, m->graph, next, &op_layer_norm, (Node *[]){x, gain, shift}, 3,
                 diag, "eps=%.17g", like->eps));
    node_place(m->graph, norm, m->options->stack, layer, ROLE_LOCAL_NORM);
    graph_replace_uses(m->graph, x, norm);
    TRY(add_convolution(&sum, m, layer, norm, next, diag));
    for (Node *node = next; node; node = node->next)
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] == norm) node->in[i] = sum;
    return STATUS_OK;
}

Status multiplex_transform(Multiplex *m, int layer, Diag *diag) {
    const MultiplexOptions *options = m->options;
    Node *attention = graph_find(m->graph, options->stack, layer, ROLE_ATTENTION);
    const int mixing = options->mixing;
    if (mixing == MIXING_BOTH || mixing == MIXING_BEFORE)
        TRY(add_mixing(m, attention, "mix_before", "mix_before_bias", diag));
    if (mixing == MIXING_BOTH || mixing == MIXING_AFTER)
        TRY(add_mixing(m, attention, "mix_after", "mix_after_bias", diag));
    if (options->position == POSITION_CONTEXTUAL) TRY(add_position(m, attention, diag));
    if (options->mlp_transform == MLP_NORM_CONV) return add_norm_conv(m, layer, diag);
    if (options->mlp_transform != MLP_CONV) return STATUS_OK;
    /* y <- y + DW(y) on the MLP's input. */
    Node *ffn = graph_find(m->graph, options->stack, layer, ROLE_FFN_IN), *sum = NULL;
    TRY(add_convolution(&sum, m, layer, ffn->in[0], ffn, diag));
    node_set_operand(m->graph, ffn, "x", sum);
    return STATUS_OK;
}

/* Drops the first `rows` rows of a position table [1, T, D]. */
static Status drop_position_rows(Multiplex *m, int rows, Diag *diag) {
    Node *add = graph_find(m->graph, NULL, -1, ROLE_POSITION);
    Node *leaf = add && add->in_count == 2 ? add->in[1] : NULL;
    if (!leaf || !leaf->storage || leaf->type.rank != 3 || leaf->type.dim[1] <= rows)
        return step_fail_option(m->ctx, "pooling", diag,
                                "expected a position table [1, T, D] of more than %d "
                                "tokens",
                                rows);
    const int64_t left = leaf->type.dim[1] - rows;
    int64_t *keep = ARENA_ARRAY(m->ctx->arena, int64_t, (size_t)left);
    for (int64_t i = 0; i < left; i++) keep[i] = rows + i;
    TRY(storage_separate(&leaf, m->graph, STORAGE_USER(add), diag));
    TRY(storage_keep(m->graph, leaf, STORAGE_USER(add), 1, keep, left, diag));
    storage_forget_lineage(leaf->storage, 1); /* counted anew, from the first patch */
    return storage_to_f32(leaf->storage, diag);
}

/* Lets a classifier read the mean over tokens in place of one of them. */
static Status pool_mean(Multiplex *m, Node *pool, Diag *diag) {
    Node *mean = NULL;
    TRY(node_add(&mean, m->graph, pool, &op_mean_tokens, (Node *[]){pool->in[0]}, 1, diag,
                 NULL));
    node_place(m->graph, mean, pool->stack, pool->layer, ROLE_POOL);
    graph_replace_uses(m->graph, pool, mean);
    return STATUS_OK;
}

/* The class token's classifier alone gives the logits. */
static Status keep_one_head(Multiplex *m, Diag *diag) {
    Node *head = node_find(m->graph, STACK_HEAD, -1, ROLE_HEAD, &op_linear);
    if (!head)
        return step_fail_option(m->ctx, "pooling", diag, "the model has no classifier");
    graph_set_output(m->graph, OUTPUT_LOGITS, head);
    graph_remove_output(m->graph, "cls_logits");
    graph_remove_output(m->graph, "distillation_logits");
    Node *pool = head->in[0];
    if (pool->role != ROLE_POOL || pool->in_count < 1)
        return step_fail_option(m->ctx, "pooling", diag,
                                "the classifier does not read one token");
    TRY(pool_mean(m, pool, diag));
    /* Early exits choose the token before their norm, which works on tokens and on means.
     */
    for (Node *node = graph_find(m->graph, STACK_EXITS, -1, ROLE_POOL); node;
         node = graph_find_next(m->graph, node, STACK_EXITS, -1, ROLE_POOL))
        if (node_is(node, &op_select_token)) TRY(pool_mean(m, node, diag));
    return STATUS_OK;
}

Status multiplex_pool_mean(Multiplex *m, Diag *diag) {
    const int extra = patches_extra_tokens(m->graph);
    if (!extra)
        return step_fail_option(m->ctx, "pooling", diag,
                                "there is no class token to drop");
    TRY(keep_one_head(m, diag));
    TRY(drop_position_rows(m, extra, diag));
    for (Node *node = m->graph->first; node; node = node->next)
        if (node->role == ROLE_TOKEN && !node_is_leaf(node))
            graph_replace_uses(m->graph, node, node->in[0]);
    graph_remove_dead(m->graph);
    return graph_infer(m->graph, diag);
}
