/* merge_t2r: feature maps become part of the projections that they read.
 *
 * Kasai et al., Finetuning Pretrained Transformers into RNNs, EMNLP 2021, equations 8a to
 * 8d: with q = W_q x + b_q, scale s and map (W, b) of each head,
 *     phi(q) = fn(W s q + b) = fn(W~ x + b~),  W~ = s W W_q,  b~ = b + s W b_q,
 * and the same for the keys. The products are made in double precision. What fn makes of
 * its argument does not matter, unless it reads x beside it: so normalised features are
 * merged too. */
#include "passes/t2r/t2r.h"

#include "exec/linalg/gemm.h"
#include "ir/memory_array.h"
#include "ir/rewrite.h"
#include "passes/layers.h"
#include "passes/linears.h"

#include <stdlib.h>
#include <string.h>

typedef struct MergeOptions {
    const char *stack;
} MergeOptions;

static const Field fields[] = {
    F_STRING(MergeOptions, stack, "only this stack of layers; not given: all",
             .nullable = true),
    F_END,
};

static const MergeOptions defaults = {0};

/* One feature map and the projection that it reads. */
typedef struct MergeSite {
    Node *map;                         /* feature_map */
    Node *projection;                  /* linear */
    Node *weight, *bias;               /* of the projection; bias NULL = none */
    const Node *map_weight, *map_bias; /* NULL = none */
    double scale;
    int64_t heads, width, features; /* of a head: its width, and rows of its map */
    const char *place;
} MergeSite;

typedef struct MapMerge {
    PassContext *ctx;
    Graph *graph;
    MergeSite *sites;
    int site_count;
} MapMerge;

/* ---- which maps ---- */

static Status check_map(const MapMerge *m, const MergeSite *site, Diag *diag) {
    const Node *map = site->map;
    if (((const FeatureMapAttrs *)map->attrs)->fn == FEATURE_POSITIVE)
        return step_fail(m->ctx, diag,
                         "%s: positive feature maps cannot be merged: they read |x|^2 "
                         "beside W x",
                         site->place);
    if ((site->map_weight && !site->map_weight->storage) ||
        (site->map_bias && !site->map_bias->storage))
        return step_fail(m->ctx, diag,
                         "%s: the weights of the feature map are computed, not stored",
                         site->place);
    return STATUS_OK;
}

/* A window reads queries and keys as they are before the map. */
static Status check_window(const MapMerge *m, const MergeSite *site, Diag *diag) {
    for (const Node *node = m->graph->first; node; node = node->next) {
        if (!node_is(node, &op_linear_attention)) continue;
        if (node->in[0] != site->map && node->in[1] != site->map) continue;
        if (!((const LinearAttentionAttrs *)node->attrs)->window) continue;
        return step_fail(m->ctx, diag,
                         "%s: the window of linear attention reads queries and keys as "
                         "they are before the feature map, which cannot become part of "
                         "their projections",
                         site->place);
    }
    return STATUS_OK;
}

/* The projection must be what the map reads, and the map its only reader. */
static Status check_projection(const MapMerge *m, const MergeSite *site, Diag *diag) {
    const Node *source = site->map->in[0];
    const char *side = role_name(site->map->role);
    if (node_is(source, &op_rotary)) {
        Status status =
            step_fail(m->ctx, diag,
                      "%s: rotary stands between the projection and the feature map %s",
                      site->place, side);
        diag_hint(diag, "attention_to_t2r with rotary: drop leaves it out; then both "
                        "can be merged");
        return status;
    }
    if (!node_is(source, &op_linear))
        return step_fail(m->ctx, diag,
                         "%s: expected the feature map %s to read a projection, found %s",
                         site->place, side, source->op->name);
    if (graph_use_count(m->graph, source) != 1)
        return step_fail(m->ctx, diag,
                         "%s: the projection that feature map %s reads has other readers",
                         site->place, side);
    return STATUS_OK;
}

static Status add_site(MapMerge *m, Node *map, Diag *diag) {
    const FeatureMapAttrs *attrs = map->attrs;
    const Type *x = &map->in[0]->type, *out = &map->type;
    MergeSite *site = &m->sites[m->site_count++];
    *site = (MergeSite){.map = map,
                        .projection = map->in[0],
                        .map_weight = node_operand(map, "weight"),
                        .map_bias = node_operand(map, "bias"),
                        .scale = attrs->scale,
                        .heads = attrs->heads,
                        .width = x->dim[x->rank - 1] / attrs->heads,
                        .features = out->dim[out->rank - 1] / attrs->heads /
                                    feature_halves(attrs->fn),
                        .place = t2r_place(m->ctx, map)};
    TRY(check_map(m, site, diag));
    TRY(check_window(m, site, diag));
    TRY(check_projection(m, site, diag));
    site->weight = node_operand(site->projection, "weight");
    site->bias = node_operand(site->projection, "bias");
    if (!site->weight->storage || (site->bias && !site->bias->storage))
        return step_fail(m->ctx, diag,
                         "%s: the weights of the projection are computed, not stored",
                         site->place);
    if (site->weight->type.rank == 2) return STATUS_OK;
    return step_fail(m->ctx, diag, "%s: expected a matrix as weight of the projection",
                     site->place);
}

static Status find_sites(MapMerge *m, const MergeOptions *options, Diag *diag) {
    size_t count = 0;
    if (options->stack) TRY(stack_check(m->ctx, m->graph, options->stack, diag));
    for (const Node *node = m->graph->first; node; node = node->next)
        count += node_is(node, &op_feature_map);
    m->sites = ARENA_ARRAY(m->ctx->arena, MergeSite, count);
    for (Node *node = m->graph->first; node; node = node->next) {
        if (node_is_in(node, options->stack, -1) && node_is_mergeable(node))
            TRY(add_site(m, node, diag));
    }
    if (m->site_count) return STATUS_OK;
    Status status = step_fail(
        m->ctx, diag, "the model%s%s has no feature map that could be merged",
        options->stack ? "'s stack " : "", options->stack ? options->stack : "");
    diag_hint(diag, "attention_to_t2r gives attention feature maps");
    return status;
}

/* ---- shared projections ---- */

/* Every reader of a projection's weight or bias must be a projection that is merged with
 * the same map: layers that share it go on sharing it. */
static Status check_users(const MapMerge *m, const MergeSite *site, const Node *leaf,
                          const char *operand, Diag *diag) {
    int uses = 0;
    for (int i = 0; i < m->site_count; i++) {
        const MergeSite *other = &m->sites[i];
        if (node_operand(other->projection, operand) != leaf) continue;
        if (linear_is_turned(site->projection) != linear_is_turned(other->projection))
            return step_fail(m->ctx, diag,
                             "%s and %s share \"%s\", but one of them uses its weight "
                             "transposed: the feature map cannot become part of both",
                             site->place, other->place, leaf->storage->name);
        /* what becomes of the storage must be the same in both places */
        if (site->map_weight != other->map_weight || site->map_bias != other->map_bias ||
            site->scale != other->scale || site->heads != other->heads) {
            Status status = step_fail(
                m->ctx, diag,
                "%s and %s share \"%s\" but not the feature map: it cannot become part "
                "of both",
                site->place, other->place, leaf->storage->name);
            diag_hint(diag, "attention_to_t2r with share_layers: true lets layers that "
                            "share projections share the map");
            return status;
        }
        uses++;
    }
    if (uses == graph_use_count(m->graph, leaf)) return STATUS_OK;
    return step_fail(m->ctx, diag,
                     "%s: \"%s\" has other users than projections with a feature map",
                     site->place, leaf->storage->name);
}

/* ---- merging ---- */

/* Puts new values (NULL: a shape alone) and a new size of one axis into a leaf's storage,
 * in double precision where `like` has that. The axis has features now, unless the map
 * has no weights. All sites that read the leaf are merged alike (check_users). */
static Status put_values(MapMerge *m, const MergeSite *site, Node *leaf,
                         const Storage *like, int axis, const double *values,
                         Diag *diag) {
    const Tensor *old = storage_tensor(leaf->storage);
    const bool wide = storage_tensor(like)->dtype == DTYPE_F64;
    const DType dtype = wide ? DTYPE_F64 : DTYPE_F32;
    Tensor fresh = tensor_shape(dtype, old->rank, old->dim);
    fresh.dim[axis] = site->heads * site->features;
    if (values) {
        TRY(tensor_create(&fresh, dtype, fresh.rank, fresh.dim, diag));
        TRY(tensor_write_f64(&fresh, 0, tensor_count(&fresh), values, diag));
    }
    if (!site->map_weight)
        return storage_replace(m->graph, leaf, STORAGE_ALL_USERS, fresh, -1, diag);
    TRY(storage_replace(m->graph, leaf, STORAGE_ALL_USERS, fresh, axis, diag));
    storage_lose_lineage(leaf->storage, axis);
    return STATUS_OK;
}

/* Weights of the map that head h uses: one for each group of heads. */
static const double *head_map(const MergeSite *site, const double *map, int64_t h) {
    const int64_t groups = site->map_weight->type.dim[0];
    return map + h / (site->heads / groups) * site->features * site->width;
}

/* W~ = s W W_q by heads; `columns` is the width of what the projection reads. */
static void merge_weight(const MergeSite *site, const double *map, const double *w,
                         int64_t columns, double *out) {
    const int64_t d = site->width, k = site->features;
    for (int64_t h = 0; h < site->heads; h++) {
        const double *phi = head_map(site, map, h);
        if (linear_is_turned(site->projection))
            gemm_f64(false, true, columns, k, d, site->scale, w + h * d, site->heads * d,
                     phi, d, 0, out + h * k, site->heads * k);
        else
            gemm_f64(false, false, k, columns, d, site->scale, phi, d,
                     w + h * d * columns, columns, 0, out + h * k * columns, columns);
    }
}

/* b~ = b + s W b_q; `b` NULL = 0. */
static void merge_bias(const MergeSite *site, const double *map, const double *map_bias,
                       const double *b, double *out) {
    const int64_t d = site->width, k = site->features;
    for (int64_t h = 0; h < site->heads; h++) {
        const double *phi = head_map(site, map, h);
        const int64_t first = (phi - map) / d; /* row of the map's weight and bias */
        for (int64_t i = 0; i < k; i++) {
            double sum = 0;
            for (int64_t j = 0; b && j < d; j++) sum += phi[i * d + j] * b[h * d + j];
            out[h * k + i] = (map_bias ? map_bias[first + i] : 0) + site->scale * sum;
        }
    }
}

/* values * s: what merging a map without weights comes to. */
static void scale_values(double *values, int64_t count, double by) {
    for (int64_t i = 0; i < count; i++) values[i] *= by;
}

/* The values of a leaf in double, NULL where there is none; to be freed. */
static Status read_leaf(double **out, const Node *leaf, Diag *diag) {
    *out = NULL;
    return leaf ? storage_read_f64(out, leaf->storage, false, diag) : STATUS_OK;
}

static Status put_weight(MapMerge *m, const MergeSite *site, Diag *diag) {
    const int axis = linear_is_turned(site->projection) ? 1 : 0;
    const int64_t rows = site->heads * site->features;
    const int64_t columns = site->weight->type.dim[1 - axis];
    const Storage *weight = site->weight->storage;
    if (!storage_has_data(weight))
        return put_values(m, site, site->weight, weight, axis, NULL, diag);
    double *w, *map = NULL, *out = NULL;
    Status status = read_leaf(&w, site->weight, diag);
    if (status == STATUS_OK) status = read_leaf(&map, site->map_weight, diag);
    if (status == STATUS_OK && map)
        status = memory_array(&out, (size_t)rows, (size_t)columns * sizeof *out,
                              weight->name, diag);
    if (status == STATUS_OK && map)
        merge_weight(site, map, w, columns, out);
    else if (status == STATUS_OK)
        scale_values(w, rows * columns, site->scale);
    free(map);
    if (status == STATUS_OK)
        status = put_values(m, site, site->weight, weight, axis, out ? out : w, diag);
    free(out);
    free(w);
    return status;
}

static Status put_bias(MapMerge *m, const MergeSite *site, Node *leaf, bool fresh,
                       Diag *diag) {
    const int64_t rows = site->heads * site->features;
    const Storage *like = fresh ? site->weight->storage : leaf->storage;
    if (!storage_has_data(like)) return put_values(m, site, leaf, like, 0, NULL, diag);
    double *b = NULL, *map = NULL, *add = NULL, *out = NULL;
    Status status = read_leaf(&b, fresh ? NULL : leaf, diag);
    if (status == STATUS_OK) status = read_leaf(&map, site->map_weight, diag);
    if (status == STATUS_OK) status = read_leaf(&add, site->map_bias, diag);
    if (status == STATUS_OK && map)
        status = MEMORY_ARRAY(&out, (size_t)rows, leaf->storage->name, diag);
    if (status == STATUS_OK && map)
        merge_bias(site, map, add, b, out);
    else if (status == STATUS_OK)
        scale_values(b, rows, site->scale);
    free(add);
    free(map);
    if (status == STATUS_OK)
        status = put_values(m, site, leaf, like, 0, out ? out : b, diag);
    free(out);
    free(b);
    return status;
}

/* A bias for a projection that had none, as the map has one; named like the weight. */
static Status create_bias(MapMerge *m, MergeSite *site, Diag *diag) {
    const int64_t rows = site->heads * site->features;
    const Storage *weight = site->weight->storage;
    Node *leaf = NULL; /* a site before this one may read the same weight */
    for (const MergeSite *other = m->sites; other < site && !leaf; other++)
        if (other->weight == site->weight && !other->bias)
            leaf = node_operand(other->projection, "bias");
    if (!leaf) {
        size_t stem = strlen(weight->name);
        const char *end = ".weight";
        if (stem > strlen(end) && strcmp(weight->name + stem - strlen(end), end) == 0)
            stem -= strlen(end);
        const char *name =
            arena_printf(m->graph->arena, "%.*s.bias", (int)stem, weight->name);
        TRY(storage_create(&leaf, m->graph, name, (Init){INIT_ZEROS, 0}, 1, &rows, diag));
        leaf->storage->frozen = weight->frozen;
        TRY(put_bias(m, site, leaf, true, diag));
    }
    node_set_operand(m->graph, site->projection, "bias", leaf);
    return STATUS_OK;
}

/* What is left of the map: its function. */
static Status put_function(MapMerge *m, const MergeSite *site, Diag *diag) {
    Node *map = site->map, *relu = NULL;
    if (((const FeatureMapAttrs *)map->attrs)->fn != FEATURE_RELU) {
        node_set_operand(m->graph, map, "weight", NULL);
        node_set_operand(m->graph, map, "bias", NULL);
        ((FeatureMapAttrs *)map->attrs)->scale = 1;
        return STATUS_OK;
    }
    TRY(node_add(&relu, m->graph, map, &op_activation, (Node *[]){site->projection}, 1,
                 diag, "fn=relu"));
    node_place(m->graph, relu, map->stack, map->layer, map->role);
    graph_replace_uses(m->graph, map, relu);
    graph_erase(m->graph, map);
    return STATUS_OK;
}

static Status merge_site(MapMerge *m, MergeSite *site, Diag *diag) {
    /* what a site before this one reads too is merged already */
    bool weight_is_merged = false, bias_is_merged = false;
    for (const MergeSite *other = m->sites; other < site; other++) {
        weight_is_merged |= other->weight == site->weight;
        bias_is_merged |= other->bias == site->bias;
    }
    if (!site->bias && site->map_bias)
        TRY(create_bias(m, site, diag));
    else if (site->bias && !bias_is_merged)
        TRY(put_bias(m, site, site->bias, false, diag));
    if (!weight_is_merged) TRY(put_weight(m, site, diag));
    return STATUS_OK;
}

static Status merge_run(PassContext *ctx, Model *model, const void *opaque, Diag *diag) {
    MapMerge m = {.ctx = ctx, .graph = model->graph};
    const int64_t before = graph_parameter_count(m.graph);
    TRY(find_sites(&m, opaque, diag));
    for (int i = 0; i < m.site_count; i++) {
        const MergeSite *site = &m.sites[i];
        TRY(check_users(&m, site, site->weight, "weight", diag));
        if (site->bias) TRY(check_users(&m, site, site->bias, "bias", diag));
    }
    for (int i = 0; i < m.site_count; i++) TRY(merge_site(&m, &m.sites[i], diag));
    for (int i = 0; i < m.site_count; i++) {
        TRY(node_infer(m.sites[i].projection, diag));
        TRY(put_function(&m, &m.sites[i], diag));
    }
    graph_remove_dead(m.graph);
    tree_put_int(ctx->arena, ctx->record, "maps", m.site_count);
    tree_put_int(ctx->arena, ctx->record, "parameters_before", before);
    tree_put_int(ctx->arena, ctx->record, "parameters_after",
                 graph_parameter_count(m.graph));
    ctx->exact = true;
    return graph_infer(m.graph, diag);
}

const Pass pass_merge_t2r = {
    .name = "merge_t2r",
    .summary = "merge feature maps into the projections that they read",
    .paper = "Finetuning Pretrained Transformers into RNNs (EMNLP 2021), equations 8a to "
             "8d",
    .fields = fields,
    .options_size = sizeof(MergeOptions),
    .defaults = &defaults,
    .exactness = PASS_EXACT,
    .effects = {.needs = MODEL_FEATURE_MAPS,
                .takes = MODEL_FEATURE_MAPS | MODEL_EQUAL_WIDTHS},
    .run = merge_run,
};
