/* Gram: rows wait until there are enough of them for all threads; stripes of the lower
 * triangle are then shared out, among ranks and the threads of each, and every stripe
 * takes the blocks of rows in order. */
#include "passes/oneshot/gram.h"

#include "exec/linalg/gemm.h"
#include "exec/run/parallel.h"
#include "exec/run/ranks.h"
#include "ir/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_ROWS = 256, WAIT_ROWS = 8 * BLOCK_ROWS, STRIPE = 64 };

Status gram_create(Gram *gram, int64_t width, Diag *diag) {
    const size_t columns = (size_t)width;
    *gram = (Gram){.width = width,
                   .sum = calloc(columns * columns, sizeof *gram->sum),
                   .mean = calloc(columns, sizeof *gram->mean),
                   .waiting = calloc(columns * WAIT_ROWS, sizeof *gram->waiting)};
    if (gram->sum && gram->mean && gram->waiting) return STATUS_OK;
    gram_destroy(gram);
    return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                     "out of memory for a Gram matrix of %lld inputs", (long long)width);
}

void gram_destroy(Gram *gram) {
    free(gram->sum);
    free(gram->mean);
    free(gram->waiting);
    *gram = (Gram){0};
}

/* ---- adding ---- */

typedef struct Flush {
    Gram *gram;
    int64_t first, end; /* stripes */
    float **products;   /* by worker: [STRIPE, K] */
} Flush;

/* Adds all rows that wait to the rows [first, end) of the lower triangle. */
static void add_stripe(const Flush *f, int64_t stripe, float *product) {
    Gram *gram = f->gram;
    const int64_t K = gram->width, first = stripe * STRIPE;
    const int64_t end = first + STRIPE < K ? first + STRIPE : K;
    for (int64_t row = 0; row < gram->waiting_count; row += BLOCK_ROWS) {
        const int64_t left = gram->waiting_count - row;
        const float *x = gram->waiting + row * K;
        gemm_f32(true, false, end - first, end, left < BLOCK_ROWS ? left : BLOCK_ROWS, 1,
                 x + first, K, x, K, 0, product, end);
        for (int64_t i = first; i < end; i++)
            for (int64_t j = 0; j <= i; j++)
                gram->sum[i * K + j] += (double)product[(i - first) * end + j];
    }
}

/* A stripe and its mirror: equal work for every i. */
static void add_stripes(void *self, int64_t i, int worker) {
    const Flush *f = self;
    const int64_t stripe = f->first + i, mirror = f->end - 1 - i;
    add_stripe(f, stripe, f->products[worker]);
    if (mirror != stripe) add_stripe(f, mirror, f->products[worker]);
}

/* The first stripe of a rank: as large a part of the triangle lies before it as there are
 * ranks before the rank. */
static int64_t first_stripe(const Gram *gram, int rank) {
    const int64_t stripes = (gram->width + STRIPE - 1) / STRIPE;
    return llround((double)stripes * sqrt((double)rank / ranks_count()));
}

static void add_waiting(Gram *gram, int threads) {
    const int me = ranks_number();
    Flush f = {gram, first_stripe(gram, me), first_stripe(gram, me + 1), NULL};
    if (gram->waiting_count == 0) return;
    if (threads < 1) threads = 1;
    f.products = memory_alloc((size_t)threads, sizeof *f.products);
    for (int i = 0; i < threads; i++)
        f.products[i] = memory_alloc((size_t)gram->width * STRIPE, sizeof **f.products);
    parallel_for((f.end - f.first + 1) / 2, threads, add_stripes, &f);
    for (int i = 0; i < threads; i++) free(f.products[i]);
    free(f.products);
    gram->rows += gram->waiting_count;
    gram->waiting_count = 0;
}

void gram_add(Gram *gram, const float *rows, int64_t count, int threads) {
    const int64_t K = gram->width;
    for (int64_t row = 0; row < count; row++) {
        const float *x = rows + row * K;
        memcpy(gram->waiting + gram->waiting_count * K, x, (size_t)K * sizeof *x);
        for (int64_t i = 0; i < K; i++) gram->mean[i] += (double)x[i];
        if (++gram->waiting_count == WAIT_ROWS) add_waiting(gram, threads);
    }
}

/* Gives all ranks the stripes of each. */
static Status gather_stripes(Gram *gram, Diag *diag) {
    if (ranks_count() == 1) return STATUS_OK;
    const int64_t K = gram->width;
    size_t *bytes = memory_alloc((size_t)ranks_count(), sizeof *bytes);
    for (int r = 0; r < ranks_count(); r++) {
        const int64_t row = first_stripe(gram, r) * STRIPE;
        const int64_t end = first_stripe(gram, r + 1) * STRIPE;
        bytes[r] =
            (size_t)(((end < K ? end : K) - (row < K ? row : K)) * K) * sizeof *gram->sum;
    }
    const Status status = ranks_gather_parts(gram->sum, bytes, diag);
    free(bytes);
    return status;
}

Status gram_finish(Gram *gram, int threads, bool *finite, Diag *diag) {
    const int64_t K = gram->width;
    add_waiting(gram, threads);
    TRY(gather_stripes(gram, diag));
    *finite = true;
    free(gram->waiting);
    gram->waiting = NULL;
    for (int64_t i = 0; i < K; i++) {
        *finite = *finite && isfinite(gram->sum[i * K + i]) && isfinite(gram->mean[i]);
        for (int64_t j = 0; j < i; j++) gram->sum[j * K + i] = gram->sum[i * K + j];
        if (gram->rows > 0) gram->mean[i] /= (double)gram->rows;
    }
    return STATUS_OK;
}

void gram_merge(Gram *gram, const Gram *other) {
    const int64_t K = gram->width, rows = gram->rows + other->rows;
    for (int64_t i = 0; i < K * K; i++) gram->sum[i] += other->sum[i];
    for (int64_t i = 0; i < K && rows > 0; i++)
        gram->mean[i] =
            (gram->mean[i] * (double)gram->rows + other->mean[i] * (double)other->rows) /
            (double)rows;
    gram->rows = rows;
}

/* ---- what inverts it ---- */

double gram_damp(Gram *gram, double damp) {
    const int64_t K = gram->width;
    double trace = 0;
    for (int64_t i = 0; i < K; i++) trace += gram->sum[i * K + i];
    const double add = trace > 0 ? damp * trace / (double)K : 1;
    for (int64_t i = 0; i < K; i++) gram->sum[i * K + i] += add;
    gram->damping += add;
    return add;
}

bool gram_is_dead(const Gram *gram, int64_t k) {
    return gram->sum[k * gram->width + k] <= gram->damping;
}

int64_t gram_dead_count(const Gram *gram) {
    int64_t count = 0;
    for (int64_t k = 0; k < gram->width; k++) count += gram_is_dead(gram, k);
    return count;
}
