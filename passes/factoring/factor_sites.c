/* The weights that may be factors: see factoring.h. */
#include "passes/factoring/factoring.h"

#include "ir/storage.h"
#include "passes/fault.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- finding ---- */

static FactorSite *site_of(Factoring *f, const Node *leaf) {
    for (int i = 0; i < f->count; i++)
        if (f->sites[i].leaf == leaf) return &f->sites[i];
    return NULL;
}

static void add_reader(Factoring *f, Node *linear) {
    Node *leaf = linear->in[1];
    FactorSite *site = site_of(f, leaf);
    if (!site) {
        const bool turned = linear_is_turned(linear);
        site = &f->sites[f->count++];
        *site = (FactorSite){.leaf = leaf, .turned = turned};
        site->readers =
            ARENA_ARRAY(f->ctx->arena, Node *, (size_t)graph_use_count(f->graph, leaf));
    }
    site->readers[site->reader_count++] = linear;
}

/* The first factor that all readers of a site have; NULL when there is none. `*mixed`:
 * some have one and others have not, or another one. */
static Node *common_factor(const Factoring *f, const FactorSite *site, bool *mixed) {
    Node *outer = NULL;
    for (int i = 0; i < site->reader_count; i++) {
        const Node *first = linear_first_factor(f->graph, site->readers[i]);
        Node *leaf = first ? first->in[1] : NULL;
        if (i == 0) outer = leaf;
        if (leaf != outer) *mixed = true;
    }
    if (outer && graph_use_count(f->graph, outer) != site->reader_count) *mixed = true;
    return outer;
}

static void measure_site(const Factoring *f, FactorSite *site) {
    const int64_t *dim = site->leaf->type.dim;
    bool mixed = false;
    site->outer = common_factor(f, site, &mixed);
    site->rows = dim[site->turned];
    site->columns = dim[!site->turned];
    site->most = site->rows < site->columns ? site->rows : site->columns;
    if (site->outer && !mixed) {
        site->columns = site->outer->type.dim[!site->turned];
        site->most = dim[!site->turned];
    }
    for (int i = 0; i < site->reader_count; i++)
        if (linear_is_turned(site->readers[i]) != site->turned) mixed = true;
    if (mixed || graph_use_count(f->graph, site->leaf) != site->reader_count)
        site->left = "something else reads it";
}

Status factor_find(Factoring *out, PassContext *ctx, Graph *graph,
                   const LinearChoice *choice, Diag *diag) {
    *out = (Factoring){.ctx = ctx, .graph = graph};
    size_t count = 0;
    TRY(linears_check_places(choice, ctx, graph, diag));
    for (const Node *node = graph->first; node; node = node->next)
        count += linears_choose(choice, graph, node);
    out->sites = ARENA_ARRAY(ctx->arena, FactorSite, count);
    for (Node *node = graph->first; node; node = node->next)
        if (linears_choose(choice, graph, node)) add_reader(out, node);
    for (int i = 0; i < out->count; i++) measure_site(out, &out->sites[i]);
    if (!out->count)
        return step_fail_option(ctx, "roles|only|skip|layers|stack", diag,
                                "expected projections with a matrix of their own, found "
                                "none that the options choose");
    step_warn_unmatched(ctx, graph, "only", &choice->only, diag);
    step_warn_unmatched(ctx, graph, "skip", &choice->skip, diag);
    return STATUS_OK;
}

/* ---- costs ---- */

DType factor_dtype(const FactorSite *site) {
    const DType dtype = storage_tensor(site->leaf->storage)->dtype;
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16 ? dtype : DTYPE_F32;
}

/* Sizes of a model's open dimensions, as model_measure has them. */
static void measured_sizes(Graph *graph, int64_t sizes[DIM_SYMBOLS]) {
    Node **results = memory_alloc((size_t)graph->output_count + 1, sizeof *results);
    for (int i = 0; i < graph->output_count; i++) results[i] = graph->outputs[i].node;
    memcpy(sizes, measure_sizes, DIM_SYMBOLS * sizeof *sizes);
    plan_fit_sizes(graph, results, graph->output_count, sizes);
    free(results);
}

/* Rows that pass through all readers of a site. */
static double count_rows(const FactorSite *site, const int64_t sizes[DIM_SYMBOLS]) {
    double sum = 0;
    for (int i = 0; i < site->reader_count; i++) {
        const Type *type = &site->readers[i]->type;
        double rows = 1;
        for (int d = 0; d < type->rank - 1; d++) {
            int64_t size = 1;
            if (dim_bind(type->dim[d], sizes, &size)) rows *= (double)size;
        }
        sum += rows;
    }
    return sum;
}

void factor_costs(Factoring *f, MeasureKind kind) {
    int64_t sizes[DIM_SYMBOLS];
    measured_sizes(f->graph, sizes);
    for (int i = 0; i < f->count; i++) {
        FactorSite *site = &f->sites[i];
        const double sides = (double)(site->rows + site->columns);
        const double numbers = site->outer ? (double)site->most * sides
                                           : (double)site->rows * (double)site->columns;
        double each = 1; /* what a number costs */
        if (kind == MEASURE_BYTES) each = (double)dtype_bytes(factor_dtype(site));
        if (kind == MEASURE_FLOPS) each = 2 * count_rows(site, sizes);
        site->unit = each * sides;
        site->whole = each * numbers;
        if (kind != MEASURE_BYTES) continue;
        site->whole = (double)tensor_stored_bytes(storage_tensor(site->leaf->storage));
        if (site->outer)
            site->whole +=
                (double)tensor_stored_bytes(storage_tensor(site->outer->storage));
    }
}

int64_t factor_even(const FactorSite *site) {
    const int64_t most = (int64_t)ceil(site->whole / site->unit) - 1;
    return most < site->most ? most : site->most;
}

double factor_cost(const FactorSite *site) {
    return site->rank > 0 ? (double)site->rank * site->unit : site->whole;
}
