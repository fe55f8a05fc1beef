/* Decomposing weights, and what of it comes into the graph: see factoring.h. */
#include "passes/factoring/factoring.h"

#include "exec/linalg/blas.h"
#include "exec/linalg/lowrank.h"
#include "exec/run/parallel.h"
#include "exec/run/ticker.h"
#include "ir/cast.h"
#include "ir/storage.h"

#include <math.h>
#include <stdlib.h>

/* Memory that jobs side by side may take; one may take more. */
#define WORK_BYTES (1024.0 * 1024 * 1024)

Status factor_read(double **out, const FactorSite *site, Diag *diag) {
    const int64_t M = site->rows, K = site->columns;
    const Tensor *tensor = storage_tensor(site->leaf->storage);
    *out = malloc((size_t)(M * K) * sizeof **out);
    if (!*out)
        return diag_fail(diag, STATUS_MEMORY, LOC_NONE, site->leaf->storage->name,
                         "no memory for %lld x %lld numbers", (long long)M, (long long)K);
    if (site->outer)
        return low_rank_multiply(*out, tensor, storage_tensor(site->outer->storage),
                                 site->turned, diag);
    if (!site->turned) {
        tensor_read_f64(tensor, 0, M * K, *out);
        return STATUS_OK;
    }
    double *row = memory_alloc((size_t)M, sizeof *row);
    for (int64_t k = 0; k < K; k++) {
        tensor_read_f64(tensor, k * M, M, row);
        for (int64_t m = 0; m < M; m++) (*out)[m * K + k] = row[m];
    }
    free(row);
    return STATUS_OK;
}

/* ---- one job ---- */

static void choose_by_energy(FactorJob *job, const LowRank *low) {
    const int64_t rank = low_rank_by_energy(low, job->energy);
    job->site->rank = rank <= factor_even(job->site) ? rank : 0;
}

/* What the inputs alone see, without the damping. */
static double undamped(LowRankNorms norms, double damping) {
    return fmax(norms.seen - damping * norms.plain, 0);
}

/* Rounds a factor to the type that the site's have. */
static Status round_factor(Tensor *factor, const FactorSite *site, Diag *diag) {
    Tensor rounded;
    const DType dtype = factor_dtype(site);
    if (dtype == DTYPE_F32) return STATUS_OK;
    TRY(tensor_cast(&rounded, factor, dtype, site->leaf->storage->name, diag));
    tensor_release(factor);
    *factor = rounded;
    return STATUS_OK;
}

static Status make_factors(FactorJob *job, const LowRank *low, Diag *diag) {
    const FactorSite *site = job->site;
    LowRankNorms whole, error;
    TRY(low_rank_factors(&job->second, &job->first, low, site->rank, site->turned, diag));
    TRY(round_factor(&job->second, site, diag));
    TRY(round_factor(&job->first, site, diag));
    TRY(low_rank_norms(&whole, &error, low, &job->second, &job->first, site->turned,
                       diag));
    job->error = undamped(error, job->damping);
    job->norm = undamped(whole, job->damping);
    return STATUS_OK;
}

static Status do_job(FactorJob *job, Diag *diag) {
    FactorSite *site = job->site;
    double *w = NULL;
    LowRank low;
    Status status = factor_read(&w, site, diag);
    if (status == STATUS_OK)
        status = low_rank_open(&low, w, site->rows, site->columns, job->l, diag);
    if (status == STATUS_OK) {
        for (int64_t i = 0; job->squares && i < site->most; i++)
            site->squares[i] = low.squares[i];
        if (job->energy > 0) choose_by_energy(job, &low);
        if (!job->squares && site->rank > 0) status = make_factors(job, &low, diag);
        low_rank_close(&low);
    }
    free(w);
    if (status != STATUS_OK) diag_note(diag, "in \"%s\"", site->leaf->storage->name);
    return status;
}

/* ---- side by side ---- */

typedef struct Batch {
    FactorJob *jobs;
    Diag **diags; /* by job */
} Batch;

static void batch_job(void *self, int64_t i, int worker) {
    (void)worker;
    Batch *batch = self;
    do_job(&batch->jobs[i], batch->diags[i]);
}

static double job_bytes(const FactorJob *job) {
    const double M = (double)job->site->rows, K = (double)job->site->columns;
    const double side = fmin(M, K);
    return sizeof(double) * (4 * M * K + 3 * side * side);
}

/* Jobs that run at a time: as many as there are threads and memory for. */
static int batch_size(const Factoring *f, const FactorJob *jobs, int count) {
    double most = 1;
    for (int i = 0; i < count; i++) most = fmax(most, job_bytes(&jobs[i]));
    const double fit = floor(WORK_BYTES / most);
    if (fit < 1) return 1;
    return fit < f->ctx->threads ? (int)fit : f->ctx->threads;
}

static void drop_results(FactorJob *jobs, int count) {
    for (int i = 0; i < count; i++) {
        tensor_release(&jobs[i].second);
        tensor_release(&jobs[i].first);
    }
}

Status factor_do(Factoring *f, FactorJob *jobs, int count, Diag *diag) {
    const int size = batch_size(f, jobs, count);
    Ticker ticker = {.watch = f->ctx->watch};
    Diag **diags = ARENA_ARRAY(f->ctx->arena, Diag *, (size_t)size);
    Status status = STATUS_OK;
    for (int i = 0; i < count; i++)
        if (jobs[i].squares)
            jobs[i].site->squares =
                ARENA_ARRAY(f->ctx->arena, double, (size_t)jobs[i].site->most);
    for (int i = 0; i < size; i++) diags[i] = diag_create();
    blas_init();
    for (int first = 0; first < count && status == STATUS_OK; first += size) {
        Batch batch = {jobs + first, diags};
        status = ticker_go_on(&ticker, diag);
        if (status != STATUS_OK) break;
        if (!f->quiet) ticker_progress(&ticker, first, count, NAN, false);
        const int now = count - first < size ? count - first : size;
        parallel_for(now, f->ctx->threads, batch_job, &batch);
        for (int i = 0; i < now; i++) {
            const Status one = diag_take(diag, diags[i]);
            if (status == STATUS_OK) status = one;
        }
    }
    for (int i = 0; i < size; i++) diag_destroy(diags[i]);
    if (status != STATUS_OK) drop_results(jobs, count);
    return status;
}

/* ---- the graph ---- */

static void put_shapes(const FactorSite *site, Tensor *second, Tensor *first) {
    const int64_t r = site->rank, M = site->rows, K = site->columns;
    const int64_t b[] = {M, r}, turned_b[] = {r, M}, a[] = {r, K}, turned_a[] = {K, r};
    *second = tensor_shape(factor_dtype(site), 2, site->turned ? turned_b : b);
    *first = tensor_shape(factor_dtype(site), 2, site->turned ? turned_a : a);
}

/* Lets every reader read the inputs through the new factor. */
static Status add_nodes(Factoring *f, const FactorSite *site, Diag *diag) {
    for (int i = 0; i < site->reader_count; i++) {
        Node *reader = site->readers[i], *added = NULL;
        TRY(node_add(&added, f->graph, reader, &op_linear,
                     (Node *[]){reader->in[0], site->outer}, 2, diag,
                     site->turned ? "transposed=true" : NULL));
        node_place(f->graph, added, reader->stack, reader->layer, ROLE_FACTOR);
        reader->in[0] = added;
    }
    return STATUS_OK;
}

Status factor_put(Factoring *f, FactorSite *site, Tensor *second, Tensor *first,
                  Diag *diag) {
    const int inner = site->turned ? 0 : 1; /* axis of the weight that has the inputs */
    Tensor b = {0}, a = {0};
    if (second) {
        b = *second;
        a = *first;
    } else {
        put_shapes(site, &b, &a);
    }
    if (!site->outer) {
        const char *name =
            weight_name_with(f->graph->arena, site->leaf->storage->name, "_factor");
        TRY(storage_split(&site->outer, f->graph, site->leaf, STORAGE_ALL_USERS, inner, b,
                          a, name, diag));
        return add_nodes(f, site, diag);
    }
    Status status =
        storage_replace(f->graph, site->leaf, STORAGE_ALL_USERS, b, inner, diag);
    if (status != STATUS_OK) {
        tensor_release(&a);
        return status;
    }
    TRY(storage_replace(f->graph, site->outer, STORAGE_ALL_USERS, a, !inner, diag));
    for (int i = 0; i < site->reader_count; i++)
        TRY(node_infer(site->readers[i]->in[0], diag));
    return STATUS_OK;
}
