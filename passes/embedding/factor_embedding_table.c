/* The numbers behind factor_embedding: see factor_embedding_table.h. */
#include "passes/embedding/factor_embedding_table.h"

#include "exec/linalg/blas.h"
#include "exec/linalg/gemm.h"
#include "exec/run/parallel.h"

#include <math.h>

/* Rows handled together. */
enum { BLOCK_ROWS = 128 };

/* Share of the squared singular values that rounding to f32 hides. */
#define ROUNDING_ENERGY 1e-12

static int64_t block_count(int64_t rows) {
    return (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
}

static int64_t block_rows(int64_t rows, int64_t block) {
    const int64_t left = rows - block * BLOCK_ROWS;
    return left < BLOCK_ROWS ? left : BLOCK_ROWS;
}

/* ---- product ---- */

typedef struct Product {
    const float *left, *right;
    float *out;
    int64_t rows, rank, width;
} Product;

static void product_block(void *self, int64_t block, int worker) {
    (void)worker;
    const Product *p = self;
    const int64_t first = block * BLOCK_ROWS;
    gemm_f32(false, true, block_rows(p->rows, block), p->width, p->rank, 1,
             p->left + first * p->rank, p->rank, p->right, p->rank, 0,
             p->out + first * p->width, p->width);
}

Status factor_multiply(Tensor *out, const Tensor *left, const Tensor *right, int threads,
                       Diag *diag) {
    const int64_t dim[] = {left->dim[0], right->dim[0]};
    Tensor table = {0}, a = {0}, b = {0};
    void *data = NULL;
    blas_init();
    Status status = tensor_create(&table, DTYPE_F32, 2, dim, diag);
    if (status == STATUS_OK) status = tensor_to_f32(&a, left, diag);
    if (status == STATUS_OK) status = tensor_to_f32(&b, right, diag);
    if (status == STATUS_OK) status = tensor_writable(&table, &data, diag);
    if (status == STATUS_OK) {
        Product p = {.left = tensor_data(&a),
                     .right = tensor_data(&b),
                     .out = data,
                     .rows = dim[0],
                     .rank = left->dim[1],
                     .width = dim[1]};
        parallel_for(block_count(p.rows), threads, product_block, &p);
        *out = tensor_retain(&table);
    }
    tensor_release(&a);
    tensor_release(&b);
    tensor_release(&table);
    return status;
}

/* ---- rank by energy ---- */

/* The least rank, at most `most`, that a spectrum allows. */
static int64_t least_rank(const Tensor *sigma, double energy, int64_t most) {
    const double *s = tensor_data(sigma);
    const int64_t count = sigma->dim[0];
    double total = 0, tail = 0;
    for (int64_t i = count - 1; i >= 0; i--) total += s[i] * s[i];
    const double allowed = fmax(1 - energy, ROUNDING_ENERGY) * total;
    int64_t rank = count;
    while (rank > 1 && tail + s[rank - 1] * s[rank - 1] <= allowed) {
        tail += s[rank - 1] * s[rank - 1];
        rank--;
    }
    return rank < most ? rank : most;
}

/* The precision of a spectrum depends on the cut, so the rank it gives is tried until
 * spectrum and cut agree. After a few tries the rank only rises, which ends. */
Status factor_by_energy(Tsvd *out, const Tensor *table, double energy, int64_t most,
                        int threads, Diag *diag) {
    int64_t rank = 1;
    for (int tries = 0;; tries++) {
        TRY(tsvd(out, table, rank, threads, diag));
        const int64_t least = least_rank(&out->sigma, energy, most);
        if (least == rank || (tries > 2 && least < rank)) return STATUS_OK;
        tsvd_release(out);
        rank = least;
    }
}

Status factor_transpose(Tensor *out, const Tensor *right, Diag *diag) {
    const int64_t rank = right->dim[0], width = right->dim[1];
    const float *from = tensor_data(right);
    void *data = NULL;
    TRY(tensor_create(out, DTYPE_F32, 2, (int64_t[]){width, rank}, diag));
    Status status = tensor_writable(out, &data, diag);
    if (status != STATUS_OK) {
        tensor_release(out);
        return status;
    }
    float *to = data;
    for (int64_t h = 0; h < width; h++)
        for (int64_t r = 0; r < rank; r++) to[h * rank + r] = from[r * width + h];
    return STATUS_OK;
}

/* ---- error ---- */

/* Squared sums of one block of rows. */
typedef struct BlockError {
    double error, norm;
    double row; /* largest squared error of a row over its squared norm */
} BlockError;

typedef struct Comparison {
    const Tensor *table, *left;
    int64_t rows, rank, width;
    double *right;      /* [width, rank] */
    double *scratch;    /* by worker: rows of the table, of the product, of left */
    BlockError *blocks; /* after the scratch */
} Comparison;

static int64_t scratch_size(const Comparison *c) {
    return BLOCK_ROWS * (2 * c->width + c->rank);
}

static void compare_block(void *self, int64_t block, int worker) {
    Comparison *c = self;
    const int64_t first = block * BLOCK_ROWS, count = block_rows(c->rows, block);
    double *e = c->scratch + worker * scratch_size(c), *p = e + BLOCK_ROWS * c->width;
    double *left = p + BLOCK_ROWS * c->width;
    BlockError sum = {0};
    tensor_read_f64(c->table, first * c->width, count * c->width, e);
    tensor_read_f64(c->left, first * c->rank, count * c->rank, left);
    gemm_f64(false, true, count, c->width, c->rank, 1, left, c->rank, c->right, c->rank,
             0, p, c->width);
    for (int64_t r = 0; r < count; r++, e += c->width, p += c->width) {
        double error = 0, norm = 0;
        for (int64_t i = 0; i < c->width; i++) {
            error += (e[i] - p[i]) * (e[i] - p[i]);
            norm += e[i] * e[i];
        }
        sum.error += error;
        sum.norm += norm;
        if (error > 0) sum.row = fmax(sum.row, error / norm);
    }
    c->blocks[block] = sum;
}

/* Adds up the blocks in their order. */
static FactorError total_error(const Comparison *c) {
    BlockError sum = {0};
    for (int64_t i = 0; i < block_count(c->rows); i++) {
        sum.error += c->blocks[i].error;
        sum.norm += c->blocks[i].norm;
        sum.row = fmax(sum.row, c->blocks[i].row);
    }
    return (FactorError){.absolute = sqrt(sum.error),
                         .relative = sum.error > 0 ? sqrt(sum.error / sum.norm) : 0,
                         .row = sqrt(sum.row)};
}

Status factor_measure(FactorError *out, const Tensor *table, const Tensor *left,
                      const Tensor *right, int threads, Diag *diag) {
    Comparison c = {.table = table,
                    .left = left,
                    .rows = table->dim[0],
                    .rank = left->dim[1],
                    .width = table->dim[1]};
    const int workers = (int)fmax(fmin(threads, (double)block_count(c.rows)), 1);
    const size_t right_bytes = (size_t)(c.width * c.rank) * sizeof(double);
    const size_t bytes = (size_t)(workers * scratch_size(&c)) * sizeof(double);
    const size_t blocks = (size_t)block_count(c.rows) * sizeof(BlockError);
    Buf *buf = NULL;
    TRY(buf_create(&buf, right_bytes + bytes + blocks, diag));
    c.right = (double *)(uintptr_t)buf_data(buf);
    c.scratch = c.right + c.width * c.rank;
    c.blocks = (BlockError *)(c.scratch + workers * scratch_size(&c));
    tensor_read_f64(right, 0, c.width * c.rank, c.right);
    blas_init();
    parallel_for(block_count(c.rows), workers, compare_block, &c);
    *out = total_error(&c);
    buf_release(buf);
    return STATUS_OK;
}
