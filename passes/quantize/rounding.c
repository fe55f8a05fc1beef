/* Rounding: see rounding.h. */
#include "passes/quantize/rounding.h"

#include "exec/linalg/blas.h"
#include "exec/linalg/gemm.h"
#include "exec/run/parallel.h"
#include "ir/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows, shared out ---- */

typedef struct Rounding {
    Tensor *to;
    const Tensor *from;
    const Tensor *aim; /* NULL = from */
    const GptqFactor *factor;
    RoundingError *errors; /* by block of rows */
} Rounding;

/* Rows that are rounded together. */
enum { BLOCK_ROWS = 32, BLOCK_COLUMNS = 128 };

static void add_error(RoundingError *error, const float *weights, const float *rounded,
                      int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const double w = (double)weights[i], d = w - (double)rounded[i];
        error->off += d * d;
        error->whole += w * w;
    }
}

static int64_t group_count(const Tensor *tensor, int64_t group, int64_t width) {
    const int64_t rest = width - group * tensor->group;
    return rest < tensor->group ? rest : tensor->group;
}

static void round_row(Tensor *to, int64_t row, const float *weights, int8_t *q) {
    const int64_t width = quantised_width(to), groups = quantised_groups(to);
    for (int64_t g = 0; g < groups; g++) {
        const int64_t count = group_count(to, g, width);
        const float *from = weights + g * to->group;
        const Grid grid = quantised_best_grid(to, from, count);
        for (int64_t i = 0; i < count; i++)
            q[i] = (int8_t)grid_round(&grid, (double)from[i]);
        quantised_write(to, row, g, &grid, q);
    }
}

static void nearest_block(void *self, int64_t block, int worker) {
    const Rounding *r = self;
    const int64_t width = quantised_width(r->to), rows = quantised_rows(r->to);
    const int64_t end = (block + 1) * BLOCK_ROWS < rows ? (block + 1) * BLOCK_ROWS : rows;
    float *weights = memory_alloc(2 * (size_t)width + 1, sizeof *weights);
    int8_t *q = memory_alloc((size_t)width + 1, 1);
    (void)worker;
    for (int64_t row = block * BLOCK_ROWS; row < end; row++) {
        tensor_read_f32(r->from, row * width, width, weights);
        round_row(r->to, row, weights, q);
        tensor_read_f32(r->to, row * width, width, weights + width);
        add_error(&r->errors[block], weights, weights + width, width);
    }
    free(weights);
    free(q);
}

static RoundingError round_blocks(Rounding *r, int threads,
                                  void (*block)(void *self, int64_t i, int worker)) {
    const int64_t blocks = (quantised_rows(r->to) + BLOCK_ROWS - 1) / BLOCK_ROWS;
    RoundingError sum = {0};
    r->errors = memory_alloc((size_t)blocks + 1, sizeof *r->errors);
    memset(r->errors, 0, ((size_t)blocks + 1) * sizeof *r->errors);
    parallel_for(blocks, threads, block, r);
    for (int64_t b = 0; b < blocks; b++) {
        sum.off += r->errors[b].off;
        sum.whole += r->errors[b].whole;
    }
    free(r->errors);
    return sum;
}

RoundingError round_nearest(Tensor *to, const Tensor *from, int threads) {
    return round_blocks(&(Rounding){.to = to, .from = from}, threads, nearest_block);
}

/* ---- columns, one after the other ---- */

struct GptqFactor {
    int64_t width;
    int64_t *order; /* [K]: columns, that of the largest diagonal first */
    double *u;      /* [K, K], upper triangular, in that order */
};

void gptq_factor_free(GptqFactor *factor) {
    if (!factor) return;
    free(factor->order);
    free(factor->u);
    free(factor);
}

/* Columns by falling diagonal; of equal ones the first comes first. */
typedef struct Place {
    double diagonal;
    int64_t column;
} Place;

static int by_diagonal(const void *a, const void *b) {
    const Place *x = a, *y = b;
    if (x->diagonal != y->diagonal) return x->diagonal > y->diagonal ? -1 : 1;
    return x->column < y->column ? -1 : x->column > y->column;
}

static void order_columns(GptqFactor *factor, const Gram *gram) {
    const int64_t K = factor->width;
    Place *place = memory_alloc((size_t)K + 1, sizeof *place);
    for (int64_t k = 0; k < K; k++) place[k] = (Place){gram->sum[k * K + k], k};
    qsort(place, (size_t)K, sizeof *place, by_diagonal);
    for (int64_t k = 0; k < K; k++) factor->order[k] = place[k].column;
    free(place);
}

/* With J turning the order around, J H J = L L^T gives H^-1 = U^T U for U = J L^-1 J. */
static Status invert(GptqFactor *factor, const Gram *gram, const char *name, Diag *diag) {
    const int64_t K = factor->width, *order = factor->order;
    double *l = malloc((size_t)(K * K) * sizeof *l + 1),
           *inverse = calloc((size_t)(K * K) + 1, sizeof *l);
    int result = l && inverse ? 0 : -1;
    for (int64_t i = 0; result == 0 && i < K; i++)
        for (int64_t j = 0; j < K; j++)
            l[i * K + j] = gram->sum[order[K - 1 - i] * K + order[K - 1 - j]];
    if (result == 0) result = cholesky_f64(K, l);
    for (int64_t i = 0; result == 0 && i < K; i++) inverse[i * K + i] = 1;
    if (result == 0) cholesky_solve_f64(false, K, l, K, inverse, K);
    for (int64_t i = 0; result == 0 && i < K; i++)
        for (int64_t j = i; j < K; j++)
            factor->u[i * K + j] = inverse[(K - 1 - i) * K + K - 1 - j];
    free(l);
    free(inverse);
    if (result > 0)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, name,
                         "the inputs' Gram matrix cannot be inverted: expected a larger "
                         "\"damp\", or more samples");
    if (result < 0)
        return diag_fail(diag, STATUS_MEMORY, LOC_NONE, name,
                         "out of memory for %lld columns", (long long)K);
    return STATUS_OK;
}

Status gptq_factor(GptqFactor **out, const Gram *gram, const char *name, Diag *diag) {
    const int64_t K = gram->width;
    GptqFactor *factor = memory_alloc(1, sizeof *factor);
    *factor = (GptqFactor){.width = K};
    factor->order = memory_alloc((size_t)K + 1, sizeof *factor->order);
    factor->u = calloc((size_t)(K * K) + 1, sizeof *factor->u);
    Status status = factor->u ? STATUS_OK
                              : diag_fail(diag, STATUS_MEMORY, LOC_NONE, name,
                                          "out of memory for %lld columns", (long long)K);
    if (status == STATUS_OK) {
        order_columns(factor, gram);
        status = invert(factor, gram, name, diag);
    }
    if (status != STATUS_OK) {
        gptq_factor_free(factor);
        return status;
    }
    *out = factor;
    return STATUS_OK;
}

/* A block of rows while its columns are rounded, all in the factor's order. */
typedef struct Columns {
    const GptqFactor *factor;
    int64_t rows, groups;
    const Tensor *to;
    double *w;        /* [rows, K]: what is still to be rounded */
    double *off;      /* [rows, BLOCK_COLUMNS]: what columns of a block are off by */
    const Grid *grid; /* [rows, groups] */
    int8_t *q;        /* [rows, K], in the tensor's order */
} Columns;

/* Rounds columns [first, end); those between `first` and `end` make up for each other at
 * once, those behind when all are done. */
static void round_columns(Columns *c, int64_t first, int64_t end) {
    const int64_t K = c->factor->width;
    const double *u = c->factor->u;
    for (int64_t i = first; i < end; i++) {
        const int64_t column = c->factor->order[i];
        for (int64_t r = 0; r < c->rows; r++) {
            const Grid *grid = &c->grid[r * c->groups + column / c->to->group];
            double *w = c->w + r * K;
            const int q = grid_round(grid, w[i]);
            const double value = (double)grid->scale * (q - grid->zero);
            const double off = (w[i] - value) / u[i * K + i];
            c->q[r * K + column] = (int8_t)q;
            c->off[r * BLOCK_COLUMNS + i - first] = off;
            for (int64_t j = i + 1; j < end; j++) w[j] -= off * u[i * K + j];
        }
    }
    if (end < K)
        gemm_f64(false, false, c->rows, K - end, end - first, -1, c->off, BLOCK_COLUMNS,
                 u + first * K + end, K, 1, c->w + end, K);
}

/* Grids of a block's rows, for the weights to be rounded. */
static void find_grids(Grid *grid, const Tensor *to, int64_t rows, const float *weights) {
    const int64_t K = quantised_width(to), groups = quantised_groups(to);
    for (int64_t i = 0; i < rows * groups; i++)
        grid[i] =
            quantised_best_grid(to, weights + i / groups * K + i % groups * to->group,
                                group_count(to, i % groups, K));
}

static void gptq_block(void *self, int64_t block, int worker) {
    const Rounding *r = self;
    const int64_t K = quantised_width(r->to), first = block * BLOCK_ROWS;
    const int64_t groups = quantised_groups(r->to), left = quantised_rows(r->to) - first;
    const int64_t rows = left < BLOCK_ROWS ? left : BLOCK_ROWS;
    float *weights = memory_alloc((size_t)(2 * rows * K) + 1, sizeof *weights);
    double *w = memory_alloc((size_t)(rows * K) + 1, sizeof *w);
    double *off = memory_alloc((size_t)rows * BLOCK_COLUMNS + 1, sizeof *off);
    Grid *grid = memory_alloc((size_t)(rows * groups) + 1, sizeof *grid);
    int8_t *q = memory_alloc((size_t)(rows * K) + 1, 1);
    Columns c = {r->factor, rows, groups, r->to, w, off, grid, q};
    (void)worker;
    tensor_read_f32(r->aim ? r->aim : r->from, first * K, rows * K, weights);
    find_grids(grid, r->to, rows, weights);
    for (int64_t i = 0; i < rows * K; i++)
        w[i] = (double)weights[i / K * K + r->factor->order[i % K]];
    for (int64_t at = 0; at < K; at += BLOCK_COLUMNS)
        round_columns(&c, at, at + BLOCK_COLUMNS < K ? at + BLOCK_COLUMNS : K);
    for (int64_t i = 0; i < rows * groups; i++)
        quantised_write(r->to, first + i / groups, i % groups, &grid[i],
                        q + i / groups * K + i % groups * r->to->group);
    tensor_read_f32(r->from, first * K, rows * K, weights);
    tensor_read_f32(r->to, first * K, rows * K, weights + rows * K);
    add_error(&r->errors[block], weights, weights + rows * K, rows * K);
    free(weights);
    free(w);
    free(off);
    free(grid);
    free(q);
}

RoundingError round_gptq(Tensor *to, const Tensor *from, const Tensor *aim,
                         const GptqFactor *factor, int threads) {
    return round_blocks(&(Rounding){to, from, aim, factor, NULL}, threads, gptq_block);
}

/* ---- what outputs are short of ---- */

Status gptq_follow(float *weights, int64_t rows, const double *cross,
                   const GptqFactor *factor, Diag *diag) {
    const int64_t K = factor->width, *order = factor->order;
    double *t = calloc((size_t)(rows * K) + 1, sizeof *t),
           *product = calloc((size_t)(rows * K) + 1, sizeof *t);
    const bool enough = t && product;
    if (enough) {
        for (int64_t i = 0; i < rows * K; i++) t[i] = cross[i / K * K + order[i % K]];
        gemm_f64(false, true, rows, K, K, 1, t, K, factor->u, K, 0, product, K);
        gemm_f64(false, false, rows, K, K, 1, product, K, factor->u, K, 0, t, K);
        for (int64_t i = 0; i < rows * K; i++)
            weights[i / K * K + order[i % K]] += (float)t[i];
    }
    free(t);
    free(product);
    if (enough) return STATUS_OK;
    return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                     "out of memory for the weights of %lld rows", (long long)rows);
}
