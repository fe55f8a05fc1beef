/* merge_factors: the two matrices of a factored projection become one again.
 *
 *     y = B (A x) + b   ->   y = (B A) x + b
 *
 * The product is made in double. */
#include "passes/factoring/factoring.h"

#include "ir/rewrite.h"
#include "ir/storage.h"
#include "passes/fault.h"

#include <stdlib.h>

typedef struct MergeOptions {
    bool all;
    LinearChoice choice;
} MergeOptions;

#define O MergeOptions
static const Field fields[] = {
    F_BOOL(O, all,
           "also pairs with fewer parameters than their product; else only the others, "
           "which cost more than they save"),
    F_LINEARS(O, choice),
    F_END,
};

static const O defaults = {0};

/* The product as the weight is stored, f64 where a factor is. */
static Status multiply(Tensor *out, const FactorSite *site, Diag *diag) {
    const int64_t M = site->rows, K = site->columns;
    const int64_t dim[] = {site->turned ? K : M, site->turned ? M : K};
    const Storage *second = site->leaf->storage, *first = site->outer->storage;
    const bool wide = storage_tensor(second)->dtype == DTYPE_F64 ||
                      storage_tensor(first)->dtype == DTYPE_F64;
    void *data;
    double *w = NULL, *turned = NULL;
    TRY(storage_blank(out, &data, second, wide ? DTYPE_F64 : DTYPE_F32, 2, dim, diag));
    if (!data) return STATUS_OK;
    Status status = factor_read(&w, site, diag);
    if (status == STATUS_OK && site->turned) {
        turned = memory_alloc((size_t)(M * K), sizeof *turned);
        for (int64_t m = 0; m < M; m++)
            for (int64_t k = 0; k < K; k++) turned[k * M + m] = w[m * K + k];
    }
    if (status == STATUS_OK)
        status = tensor_write_f64(out, 0, M * K, turned ? turned : w, diag);
    free(turned);
    free(w);
    if (status != STATUS_OK) tensor_release(out);
    return status;
}

static Status merge_site(Graph *graph, const FactorSite *site, Diag *diag) {
    Tensor product;
    TRY(multiply(&product, site, diag));
    TRY(storage_join(graph, site->leaf, STORAGE_ALL_USERS, site->turned ? 0 : 1,
                     site->outer, product, diag));
    for (int i = 0; i < site->reader_count; i++)
        site->readers[i]->in[0] = site->readers[i]->in[0]->in[0];
    return STATUS_OK;
}

static Status merge_run(PassContext *ctx, Model *model, const void *opaque, Diag *diag) {
    const O *options = opaque;
    Factoring f;
    int merged = 0, left = 0;
    const int64_t before = graph_parameter_count(model->graph);
    TRY(factor_find(&f, ctx, model->graph, &options->choice, diag));
    for (int i = 0; i < f.count; i++) {
        const FactorSite *site = &f.sites[i];
        if (!site->outer) continue;
        const double pair = (double)site->most * (double)(site->rows + site->columns);
        const double product = (double)site->rows * (double)site->columns;
        const bool merges = !site->left && (options->all || pair >= product);
        if (merges) TRY(merge_site(model->graph, site, diag));
        merged += merges;
        left += !merges;
    }
    if (!merged && !left) {
        Status status = step_fail(ctx, diag, "the model has no factored projections%s",
                                  f.count ? " among those that the options choose" : "");
        diag_hint(diag, "factor_linear makes them");
        return status;
    }
    graph_remove_dead(model->graph);
    tree_put_int(ctx->arena, ctx->record, "merged", merged);
    tree_put_int(ctx->arena, ctx->record, "left", left);
    tree_put_int(ctx->arena, ctx->record, "parameters_before", before);
    tree_put_int(ctx->arena, ctx->record, "parameters_after",
                 graph_parameter_count(model->graph));
    ctx->exact = true;
    return graph_infer(model->graph, diag);
}

static Status merge_check(const void *opaque, const StepSource *source, Diag *diag) {
    const O *options = opaque;
    return linears_check(&options->choice, source, diag);
}

const Pass pass_merge_factors = {
    .name = "merge_factors",
    .summary = "multiply the two matrices of factored projections where one costs less",
    .fields = fields,
    .options_size = sizeof(O),
    .defaults = &defaults,
    .exactness = PASS_EXACT,
    .effects = {.needs = MODEL_FACTORED_LINEARS, .takes = MODEL_FACTORED_LINEARS},
    .check = merge_check,
    .run = merge_run,
};
