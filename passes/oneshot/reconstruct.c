/* Reconstruct: one Cholesky factor for a layer. */
#include "passes/oneshot/reconstruct.h"

#include "exec/linalg/blas.h"
#include "exec/linalg/gemm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double *doubles(int64_t rows, int64_t columns) {
    return calloc((size_t)rows * (size_t)columns + 1, sizeof(double));
}

static Status fail_memory(const LinearFit *fit, Diag *diag) {
    return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                     "out of memory for the reconstruction of a layer of %lld inputs",
                     (long long)fit->inputs);
}

Status fit_open(LinearFit *fit, int64_t outputs, int64_t inputs, bool bias, Diag *diag) {
    *fit = (LinearFit){.outputs = outputs, .inputs = inputs};
    fit->weight = doubles(outputs, inputs);
    fit->bias = bias ? doubles(outputs, 1) : NULL;
    fit->c = doubles(inputs, inputs);
    fit->mean = doubles(inputs, 1);
    if (fit->weight && (fit->bias || !bias) && fit->c && fit->mean) return STATUS_OK;
    const Status status = fail_memory(fit, diag);
    fit_close(fit);
    return status;
}

void fit_close(LinearFit *fit) {
    free(fit->weight);
    free(fit->bias);
    free(fit->c);
    free(fit->mean);
    *fit = (LinearFit){0};
}

/* ---- squares ---- */

/* Sum over all rows of the squares of D h for a change D of the weights: tr(D C D^T), and
 * with `means` of what the bias would take up of it. Below 0: out of memory. */
static double square_of(const LinearFit *fit, const double *d, bool means) {
    const int64_t M = fit->outputs, K = fit->inputs;
    double sum = 0, *product = doubles(M, K);
    if (!product) return -1;
    gemm_f64(false, false, M, K, K, 1, d, K, fit->c, K, 0, product, K);
    for (int64_t i = 0; i < M * K; i++) sum += product[i] * d[i];
    for (int64_t m = 0; means && fit->bias && m < M; m++) {
        double mean = 0;
        for (int64_t i = 0; i < K; i++) mean += d[m * K + i] * fit->mean[i];
        sum += mean * mean * (double)fit->rows;
    }
    free(product);
    return fmax(sum, 0);
}

Status fit_set(LinearFit *fit, const Gram *gram, double damp, Diag *diag) {
    const int64_t K = fit->inputs;
    double trace = 0;
    fit->rows = gram->rows;
    memcpy(fit->mean, gram->mean, (size_t)K * sizeof *fit->mean);
    for (int64_t i = 0; i < K; i++) {
        trace += gram->sum[i * K + i];
        for (int64_t j = 0; j < K; j++)
            fit->c[i * K + j] =
                gram->sum[i * K + j] -
                (fit->bias ? gram->mean[i] * gram->mean[j] * (double)gram->rows : 0);
    }
    for (int64_t i = 0; i < K; i++)
        for (int64_t m = 0; gram_is_dead(gram, i) && m < fit->outputs; m++)
            fit->weight[m * K + i] = 0;
    fit->lambda = damp * trace / (double)K;
    fit->scale = fit->whole = square_of(fit, fit->weight, true);
    return fit->whole < 0 ? fail_memory(fit, diag) : STATUS_OK;
}

static Status relative(double *out, const LinearFit *fit, const double *d, bool means,
                       Diag *diag) {
    const double square = square_of(fit, d, means);
    if (square < 0) return fail_memory(fit, diag);
    *out = fit->whole > 0 ? sqrt(square / fit->whole) : 0;
    return STATUS_OK;
}

Status fit_cut_error(FitErrors *errors, const LinearFit *fit, const bool *keep,
                     Diag *diag) {
    const int64_t M = fit->outputs, K = fit->inputs;
    double *d = doubles(M, K);
    if (!d) return fail_memory(fit, diag);
    for (int64_t m = 0; m < M; m++)
        for (int64_t i = 0; i < K; i++)
            d[m * K + i] = keep[i] ? 0 : -fit->weight[m * K + i];
    const Status status = relative(&errors->cut, fit, d, true, diag);
    errors->error = errors->cut;
    free(d);
    return status;
}

/* ---- solving ---- */

/* Factors C + lambda I over the inputs index[0..s) into l[s, s]; lambda grows until that
 * is possible. False: out of memory. */
static bool factor(LinearFit *fit, const int64_t *index, int64_t s, double *l) {
    const int64_t K = fit->inputs;
    double trace = 0;
    for (int64_t i = 0; i < K; i++) trace += fit->c[i * K + i];
    const double least = trace > 0 ? 1e-13 * trace / (double)K : 1;
    for (;;) {
        for (int64_t i = 0; i < s; i++) {
            for (int64_t j = 0; j < s; j++)
                l[i * s + j] = fit->c[index[i] * K + index[j]];
            l[i * s + i] += fit->lambda;
        }
        const int result = cholesky_f64(s, l);
        if (result <= 0) return result == 0;
        fit->lambda = fmax(10 * fit->lambda, least);
        fit->raised = true;
    }
}

double *fit_invert(LinearFit *fit) {
    const int64_t K = fit->inputs;
    double *l = doubles(K, K), *inverse = doubles(K, K);
    int64_t *all = calloc((size_t)K + 1, sizeof *all);
    for (int64_t i = 0; all && i < K; i++) all[i] = i;
    const bool done = l && inverse && all && factor(fit, all, K, l);
    for (int64_t i = 0; done && i < K; i++) inverse[i * K + i] = 1;
    if (done) {
        cholesky_solve_f64(false, K, l, K, inverse, K);
        cholesky_solve_f64(true, K, l, K, inverse, K);
    } else {
        free(inverse);
    }
    free(l);
    free(all);
    return done ? inverse : NULL;
}

Status fit_follow(LinearFit *fit, const double *cross, const double *mean, Diag *diag) {
    const int64_t M = fit->outputs, K = fit->inputs;
    double *l = doubles(K, K), *d = doubles(K, M); /* D^T */
    int64_t *all = calloc((size_t)K + 1, sizeof *all);
    for (int64_t i = 0; all && i < K; i++) all[i] = i;
    const bool done = l && d && all && factor(fit, all, K, l);
    for (int64_t i = 0; done && i < K; i++)
        for (int64_t m = 0; m < M; m++)
            d[i * M + m] = cross[m * K + i] -
                           (fit->bias ? mean[m] * fit->mean[i] * (double)fit->rows : 0);
    if (done) {
        cholesky_solve_f64(false, K, l, M, d, M);
        cholesky_solve_f64(true, K, l, M, d, M);
    }
    for (int64_t m = 0; done && m < M; m++) {
        if (fit->bias) fit->bias[m] += mean[m];
        for (int64_t i = 0; i < K; i++) {
            fit->weight[m * K + i] += d[i * M + m];
            if (fit->bias) fit->bias[m] -= d[i * M + m] * fit->mean[i];
        }
    }
    free(l);
    free(d);
    free(all);
    return done ? STATUS_OK : fail_memory(fit, diag);
}

/* The parts of one problem. */
typedef struct Parts {
    int64_t *index; /* inputs that stay, then those that go: [K] */
    int64_t s, r;
    double *factor; /* [s, s] */
    double *x;      /* (C_SS + lambda I)^-1 C_SR: [s, r] */
    double *lost;   /* W_R: [M, r] */
    double *gained; /* W_R X^T: [M, s] */
    double *d;      /* change of W: [M, K] */
} Parts;

static void parts_free(Parts *p) {
    free(p->index);
    free(p->factor);
    free(p->x);
    free(p->lost);
    free(p->gained);
    free(p->d);
}

static bool parts_open(Parts *p, const LinearFit *fit, const bool *keep) {
    const int64_t M = fit->outputs, K = fit->inputs;
    *p = (Parts){.index = calloc((size_t)K + 1, sizeof *p->index)};
    for (int64_t i = 0; i < K; i++) p->s += keep[i];
    p->r = K - p->s;
    p->factor = doubles(p->s, p->s);
    p->x = doubles(p->s, p->r);
    p->lost = doubles(M, p->r);
    p->gained = doubles(M, p->s);
    p->d = doubles(M, K);
    if (!p->index || !p->factor || !p->x || !p->lost || !p->gained || !p->d) return false;
    int64_t s = 0, r = p->s;
    for (int64_t i = 0; i < K; i++) p->index[keep[i] ? s++ : r++] = i;
    return true;
}

/* D: what the columns that stay take over, and minus those that go. */
static void find_change(const Parts *p, const LinearFit *fit) {
    const int64_t M = fit->outputs, K = fit->inputs, s = p->s, r = p->r;
    const int64_t *gone = p->index + s;
    for (int64_t i = 0; i < s; i++)
        for (int64_t j = 0; j < r; j++)
            p->x[i * r + j] = fit->c[p->index[i] * K + gone[j]];
    if (s > 0) {
        cholesky_solve_f64(false, s, p->factor, r, p->x, r);
        cholesky_solve_f64(true, s, p->factor, r, p->x, r);
    }
    for (int64_t m = 0; m < M; m++)
        for (int64_t j = 0; j < r; j++) {
            p->lost[m * r + j] = fit->weight[m * K + gone[j]];
            p->d[m * K + gone[j]] = -p->lost[m * r + j];
        }
    if (s > 0) gemm_f64(false, true, M, s, r, 1, p->lost, r, p->x, r, 0, p->gained, s);
    for (int64_t m = 0; m < M; m++)
        for (int64_t i = 0; i < s; i++) p->d[m * K + p->index[i]] = p->gained[m * s + i];
}

static void apply_change(const Parts *p, LinearFit *fit) {
    const int64_t M = fit->outputs, K = fit->inputs;
    for (int64_t m = 0; m < M; m++)
        for (int64_t i = 0; i < K; i++) {
            const double d = p->d[m * K + i];
            fit->weight[m * K + i] += d;
            if (fit->bias) fit->bias[m] -= d * fit->mean[i];
        }
}

Status reconstruct(FitErrors *errors, LinearFit *fit, const bool *keep, Diag *diag) {
    Parts p;
    TRY(fit_cut_error(errors, fit, keep, diag));
    Status status = STATUS_OK;
    if (!parts_open(&p, fit, keep) || (p.s > 0 && !factor(fit, p.index, p.s, p.factor)))
        status = fail_memory(fit, diag);
    if (status == STATUS_OK && p.r > 0) {
        find_change(&p, fit);
        status = relative(&errors->error, fit, p.d, false, diag);
    }
    if (status == STATUS_OK && p.r > 0) apply_change(&p, fit);
    parts_free(&p);
    return status;
}
