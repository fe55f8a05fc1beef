/* Decomposing weights as their inputs see them, layer by layer: see factoring.h. */
#include "passes/factoring/factoring.h"

#include "exec/linalg/blas.h"
#include "passes/fault.h"

#include <string.h>

Node *factor_input(const FactorSite *site, int reader) {
    const Node *linear = site->readers[reader];
    return site->outer ? linear->in[0]->in[0] : linear->in[0];
}

/* Whether two sites have one reader each, of the same input. */
static bool share_input(const FactorSite *a, const FactorSite *b) {
    return a->reader_count == 1 && b->reader_count == 1 &&
           factor_input(a, 0) == factor_input(b, 0);
}

/* Moves the jobs of the first one's input to the front, in order; returns their number.
 */
static int take_group(FactorJob *jobs, int count) {
    int group = 1;
    for (int i = 1; i < count; i++) {
        if (!share_input(jobs[0].site, jobs[i].site)) continue;
        const FactorJob job = jobs[i];
        memmove(jobs + group + 1, jobs + group, (size_t)(i - group) * sizeof *jobs);
        jobs[group++] = job;
    }
    return group;
}

int factor_calls(const Factoring *f, const FactorJob *jobs, int count) {
    int calls = 0;
    (void)f;
    for (int i = 0; i < count; i++) {
        bool first = true;
        for (int k = 0; k < i; k++) first &= !share_input(jobs[k].site, jobs[i].site);
        calls += first;
    }
    return calls;
}

/* The Gram matrix of all that a site's readers read. */
static Status site_gram(Gram *gram, const Factoring *f, Calibration *calibration,
                        const FactorSite *site, Diag *diag) {
    const int count = site->reader_count;
    Node **values = ARENA_ARRAY(f->ctx->arena, Node *, (size_t)count);
    for (int i = 0; i < count; i++) values[i] = factor_input(site, i);
    return calibration_gram_of_all(calibration, values, count, gram, diag);
}

/* Makes the Gram matrix its lower factor, with zeros above the diagonal. */
static Status factor_gram(const Factoring *f, Gram *gram, double damp,
                          const FactorSite *site, Diag *diag) {
    const int64_t K = gram->width;
    gram_damp(gram, damp);
    const int info = cholesky_f64(K, gram->sum);
    if (info < 0)
        return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                         "out of memory in a Cholesky decomposition");
    if (info > 0) {
        step_fail_option(f->ctx, "damp", diag,
                         "the inputs of \"%s\" depend on each other: %lld rows, %lld "
                         "columns",
                         site->leaf->storage->name, (long long)gram->rows, (long long)K);
        diag_hint(diag, "give a larger `damp`, or more samples");
        return STATUS_MODEL;
    }
    for (int64_t i = 0; i < K; i++)
        memset(gram->sum + i * K + i + 1, 0, (size_t)(K - i - 1) * sizeof(double));
    return STATUS_OK;
}

static Status put_group(Factoring *f, FactorJob *jobs, int count, Diag *diag) {
    Status status = STATUS_OK;
    for (int i = 0; i < count; i++) {
        FactorJob *job = &jobs[i];
        if (job->site->rank == 0) continue;
        if (status == STATUS_OK)
            status = factor_put(f, job->site, &job->second, &job->first, diag);
        else
            tensor_release(&job->second), tensor_release(&job->first);
        job->second = job->first = (Tensor){0};
    }
    return status;
}

static Status do_group(Factoring *f, Calibration *calibration, double damp,
                       FactorJob *jobs, int count, Diag *diag) {
    Gram gram;
    TRY(site_gram(&gram, f, calibration, jobs->site, diag));
    Status status = factor_gram(f, &gram, damp, jobs->site, diag);
    if (status == STATUS_OK)
        calibration_warn_rows(calibration, gram.rows, gram.width, diag);
    for (int i = 0; i < count; i++) {
        jobs[i].l = gram.sum;
        jobs[i].damping = gram.damping;
    }
    if (status == STATUS_OK) status = factor_do(f, jobs, count, diag);
    gram_destroy(&gram);
    return status;
}

Status factor_do_calibrated(Factoring *f, Calibration *calibration, double damp,
                            FactorJob *jobs, int count, bool put, Diag *diag) {
    for (int first = 0, group; first < count; first += group) {
        group = take_group(jobs + first, count - first);
        const bool shared = jobs[first].site->reader_count > 1;
        TRY(do_group(f, calibration, damp, jobs + first, group, diag));
        if (put) TRY(put_group(f, jobs + first, group, diag));
        if (put && shared) calibration_restart(calibration); /* earlier layers changed */
    }
    return STATUS_OK;
}
