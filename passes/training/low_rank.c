/* Updates of low rank beside linears, and merging them: see low_rank.h. */
#include "passes/training/low_rank.h"

#include "ir/memory_array.h"
#include "ir/model.h"
#include "ir/rewrite.h"
#include "ir/storage.h"
#include "passes/fault.h"
#include "passes/linears.h"

#include <math.h>
#include <stdlib.h>

Status low_rank_check(const TrainOptions *options, const StepSource *source, Diag *diag) {
    static const char *const NEEDS = "needs low_rank, the rank of the updates";
    if (options->low_rank == 0 && options->low_rank_alpha > 0)
        return option_fail(source, "low_rank_alpha", STATUS_RECIPE, diag, "%s", NEEDS);
    if (options->low_rank == 0 && options->low_rank_whole.count)
        return option_fail(source, "low_rank_whole", STATUS_RECIPE, diag, "%s", NEEDS);
    if (options->low_rank == 0) return STATUS_OK;
    if (options->fake_quant != FAKE_QUANT_NONE)
        return option_fail(source, "low_rank", STATUS_RECIPE, diag,
                           "needs fake_quant: none, as the matrix that is rounded would "
                           "not be the one that goes out");
    if (options->objective != OBJECTIVE_LIKELIHOOD)
        return option_fail(source, "low_rank", STATUS_RECIPE, diag,
                           "needs objective: likelihood, as a prior is of weights and "
                           "not of their updates");
    return STATUS_OK;
}

/* ---- which matrices ---- */

static bool is_projection(Role role) {
    return role == ROLE_Q || role == ROLE_K || role == ROLE_V || role == ROLE_OUT ||
           role == ROLE_CROSS_Q || role == ROLE_CROSS_K || role == ROLE_CROSS_V ||
           role == ROLE_CROSS_OUT;
}

static bool is_chosen(const Graph *model, const TrainOptions *options, const Node *node) {
    const Storage *weight = node_is(node, &op_linear) ? node->in[1]->storage : NULL;
    if (!weight || weight->frozen || node->in[1]->type.rank != 2) return false;
    if (!graph_storage(model, weight->name)) return false; /* a teacher's */
    if (name_matches_any(&options->low_rank_whole, weight->name)) return false;
    if (train_freezes(options, weight->name)) return false;
    return options->only.count > 0 || is_projection(node->role);
}

static LowRankSite *site_of(const LowRank *low_rank, const Node *leaf) {
    for (int i = 0; i < low_rank->count; i++)
        if (low_rank->sites[i].leaf == leaf) return &low_rank->sites[i];
    return NULL;
}

/* An update is felt by the linears that read the matrix, and by nobody else. */
static Status check_readers(PassContext *ctx, const Graph *graph, const LowRankSite *site,
                            Diag *diag) {
    const Storage *weight = site->leaf->storage;
    int fits = 0;
    for (const Node *node = graph->first; node; node = node->next)
        fits += node_is(node, &op_linear) && node->in[1] == site->leaf &&
                linear_is_turned(node) == site->turned;
    if (fits == graph_use_count(graph, site->leaf)) return STATUS_OK;
    Status status = step_fail_option(
        ctx, "low_rank", diag,
        "expected matrices that linears alone multiply with, but \"%s\" is read by "
        "something else too",
        weight->name);
    diag_hint(diag, "freeze leaves it as it is, low_rank_whole trains all of it");
    return status;
}

static Status check_site(PassContext *ctx, const Graph *graph, const LowRankSite *site,
                         const Node *reader, Diag *diag) {
    const Storage *weight = site->leaf->storage;
    const DType dtype = storage_tensor(weight)->dtype;
    const bool rounds = ((const LinearAttrs *)reader->attrs)->act != LINEAR_ACT_FLOAT;
    if (!dtype_is_quantised(dtype) && !rounds)
        return check_readers(ctx, graph, site, diag);
    Status status = step_fail_option(
        ctx, "low_rank", diag,
        "expected matrices of real numbers, to which an update can be added exactly, "
        "found \"%s\", which is %s",
        weight->name, rounds ? "multiplied with rounded inputs" : dtype_name(dtype));
    diag_hint(diag, "train before quantize, or cast: {dtype: f32} first");
    return status;
}

/* ---- adding ---- */

static Status add_pair(LowRankSite *site, Graph *graph, int64_t rank, Diag *diag) {
    const char *name = site->leaf->storage->name;
    const int64_t *dim = site->leaf->type.dim;
    const int64_t down[] = {rank, dim[!site->turned]}, up[] = {dim[site->turned], rank};
    const Init normal = {INIT_NORMAL, 1 / sqrt((double)down[1])};
    TRY(storage_create(&site->down, graph, weight_name_with(graph->arena, name, "_down"),
                       normal, 2, down, diag));
    return storage_create(&site->up, graph, weight_name_with(graph->arena, name, "_up"),
                          (Init){INIT_ZEROS, 0}, 2, up, diag);
}

/* Whoever reads `linear` reads linear + s B A x. */
static Status add_update(const LowRank *low_rank, const LowRankSite *site, Graph *graph,
                         Node *linear, Diag *diag) {
    Node *anchor = linear->next, *value = NULL, *sum = NULL;
    TRY(node_add(&value, graph, anchor, &op_linear, (Node *[]){linear->in[0], site->down},
                 2, diag, NULL));
    if (low_rank->scale != 1)
        TRY(node_add(&value, graph, anchor, &op_scale, &value, 1, diag, "by=%.17g",
                     low_rank->scale));
    TRY(node_add(&value, graph, anchor, &op_linear, (Node *[]){value, site->up}, 2, diag,
                 NULL));
    TRY(node_add(&sum, graph, anchor, &op_add, (Node *[]){linear, value}, 2, diag, NULL));
    graph_replace_uses(graph, linear, sum);
    return STATUS_OK;
}

/* What is trained: updates, and what is to be trained whole. */
static void freeze_others(const LowRank *low_rank, Graph *graph, const Graph *model,
                          const TrainOptions *options) {
    for (int i = 0; i < graph->storage_count; i++) {
        Storage *storage = graph->storages[i];
        const bool whole = graph_storage(model, storage->name) &&
                           name_matches_any(&options->low_rank_whole, storage->name) &&
                           !name_matches_any(&options->freeze, storage->name);
        storage->frozen |= !whole;
    }
    for (int i = 0; i < low_rank->count; i++)
        low_rank->sites[i].down->storage->frozen =
            low_rank->sites[i].up->storage->frozen = false;
}

static void record(PassContext *ctx, const LowRank *low_rank, int64_t rank) {
    int64_t parameters = 0;
    for (int i = 0; i < low_rank->count; i++)
        parameters += type_count(&low_rank->sites[i].down->type) +
                      type_count(&low_rank->sites[i].up->type);
    Tree *map = tree_put_map(ctx->arena, ctx->record, "low_rank");
    tree_put_int(ctx->arena, map, "rank", rank);
    tree_put_real(ctx->arena, map, "scale", low_rank->scale);
    tree_put_int(ctx->arena, map, "matrices", low_rank->count);
    tree_put_int(ctx->arena, map, "parameters", parameters);
}

static Status fail_nothing(PassContext *ctx, const TrainOptions *options, Diag *diag) {
    Status status = step_fail_option(
        ctx, options->only.count ? "only" : "low_rank", diag,
        options->only.count ? "names no matrix of a linear layer that could be updated"
                            : "the model has no projections of attention to update");
    diag_hint(diag, "only names the matrices of linear layers: \"*.q.weight\"");
    return status;
}

/* The sites, each linear's update added. */
static Status add_sites(LowRank *low_rank, PassContext *ctx, Graph *graph,
                        const Graph *model, const TrainOptions *options, Diag *diag) {
    Node *next;
    for (Node *node = graph->first; node; node = next) {
        next = node->next; /* an update stands between the two */
        if (!is_chosen(model, options, node)) continue;
        LowRankSite *site = site_of(low_rank, node->in[1]);
        if (!site) {
            site = &low_rank->sites[low_rank->count++];
            *site = (LowRankSite){.leaf = node->in[1], .turned = linear_is_turned(node)};
            TRY(check_site(ctx, graph, site, node, diag));
            TRY(add_pair(site, graph, options->low_rank, diag));
        }
        TRY(add_update(low_rank, site, graph, node, diag));
    }
    return STATUS_OK;
}

Status low_rank_add(LowRank *out, PassContext *ctx, Graph *graph, const Graph *model,
                    const TrainOptions *options, Diag *diag) {
    const double rank = (double)options->low_rank, alpha = options->low_rank_alpha;
    *out = (LowRank){
        .sites = ARENA_ARRAY(graph->arena, LowRankSite, (size_t)graph->storage_count),
        .scale = alpha > 0 ? alpha / rank : 1};
    TRY(add_sites(out, ctx, graph, model, options, diag));
    if (out->count == 0) return fail_nothing(ctx, options, diag);
    freeze_others(out, graph, model, options);
    record(ctx, out, options->low_rank);
    return ctx->plan ? STATUS_OK : graph_init_weights(graph, ctx->seed, diag);
}

/* ---- merging ---- */

/* Row `m` of W + s B A, as W is stored, in `row`. */
static void merge_row(double *row, const LowRankSite *site, double scale, int64_t m,
                      const double *down, const double *up) {
    const int64_t rank = site->down->type.dim[0], inputs = site->down->type.dim[1];
    const int64_t width = site->leaf->type.dim[1];
    for (int64_t r = 0; r < rank; r++) {
        const double *a = down + r * inputs;
        const double own = scale * (site->turned ? a[m] : up[m * rank + r]);
        for (int64_t k = 0; k < width; k++)
            row[k] += own * (site->turned ? up[k * rank + r] : a[k]);
    }
}

/* W + s B A in `out`. */
static Status merge_values(float *out, const LowRankSite *site, double scale,
                           Diag *diag) {
    const Storage *weight = site->leaf->storage;
    const int64_t *dim = site->leaf->type.dim;
    double *down = NULL, *up = NULL, *row = NULL;
    Status status = storage_read_f64(&down, site->down->storage, false, diag);
    if (status == STATUS_OK)
        status = storage_read_f64(&up, site->up->storage, false, diag);
    if (status == STATUS_OK)
        status = MEMORY_ARRAY(&row, (size_t)dim[1], weight->name, diag);
    for (int64_t m = 0; m < dim[0] && status == STATUS_OK; m++) {
        tensor_read_f64(storage_tensor(weight), m * dim[1], dim[1], row);
        merge_row(row, site, scale, m, down, up);
        for (int64_t k = 0; k < dim[1]; k++) out[m * dim[1] + k] = (float)row[k];
    }
    free(row);
    free(up);
    free(down);
    return status;
}

static Status merge_site(const LowRankSite *site, double scale, Storage *into,
                         Diag *diag) {
    Tensor merged;
    void *data;
    if (!storage_has_data(site->up->storage)) return storage_to_f32(into, diag);
    TRY(storage_blank(&merged, &data, site->leaf->storage, DTYPE_F32, 2,
                      site->leaf->type.dim, diag));
    const Status status = merge_values(data, site, scale, diag);
    if (status == STATUS_OK)
        storage_set_values(into, merged);
    else
        tensor_release(&merged);
    return status;
}

Status low_rank_merge(const LowRank *low_rank, Graph *into, Diag *diag) {
    for (int i = 0; i < low_rank->count; i++) {
        const LowRankSite *site = &low_rank->sites[i];
        Storage *storage = graph_storage(into, site->leaf->storage->name);
        TRY(merge_site(site, low_rank->scale, storage, diag));
    }
    return STATUS_OK;
}
