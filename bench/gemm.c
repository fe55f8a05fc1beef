/* Times the three products of a linear that is trained, y = x W^T, dx = dy W and dW =
 * dy^T x, at the shapes of BERT-base.
 *
 *     bench_gemm [THREADS] [ROUNDS]
 *
 * THREADS (2) threads share out the cells that training cuts a product of 1,024 rows into
 * (exec/ops/tiles.h). Matrices are taken from a ring of RING each, so that a product
 * finds none of its own in the cache, as in training. OpenBLAS, our loops and oneDNN,
 * where it is, take turns in every one of ROUNDS (5); prints the medians in GFLOP/s of
 * all threads together. */
#include "bench/timing.h"
#include "exec/linalg/blas.h"
#include "exec/linalg/onednn.h"
#include "exec/loops/loops.h"
#include "exec/ops/tiles.h"
#include "exec/run/parallel.h"
#include "ir/random.h"

#include <stdio.h>

enum { ROWS = 1024, RING = 12, ROUNDS_MAX = 99 };

typedef enum Way { WAY_BLAS, WAY_OWN, WAY_ONEDNN, WAYS } Way;
typedef enum Kind { KIND_Y, KIND_DX, KIND_DW, KINDS } Kind;

typedef struct Bench {
    int64_t M, K;
    float *x[RING], *w[RING], *y[RING];
    Kind kind;
    Way way;
    int64_t turn; /* of the ring */
} Bench;

static float *drawn(uint64_t key, int64_t count) {
    float *x = aligned_alloc(64, ((size_t)count * sizeof *x + 63) / 64 * 64);
    if (!x) exit(1);
    for (int64_t i = 0; i < count; i++) x[i] = (float)random_normal(key, (uint64_t)i);
    return x;
}

static void gemm(Way way, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                 const float *a, int64_t lda, const float *b, int64_t ldb, float *c,
                 int64_t ldc) {
    if (way == WAY_BLAS)
        blas_gemm_f32(trans_a, trans_b, m, n, k, 1, a, lda, b, ldb, 0, c, ldc);
    else if (way == WAY_OWN)
        loops_here()->multiply(trans_a, trans_b, m, n, k, 1, a, lda, b, ldb, 0, c, ldc);
    else
        onednn_gemm(trans_a, trans_b, m, n, k, 1, a, lda, b, ldb, 0, c, ldc);
}

static ProductGrid grid_of(const Bench *b, int64_t *m, int64_t *n) {
    *m = b->kind == KIND_DW ? b->M : ROWS;
    *n = b->kind == KIND_Y ? b->M : b->K;
    const int64_t k = b->kind == KIND_Y ? b->K : b->kind == KIND_DX ? b->M : ROWS;
    return product_grid(*m, *n, k);
}

/* One cell of the product. */
static void work(void *self, int64_t i, int worker) {
    (void)worker;
    const Bench *b = self;
    float *x = b->x[b->turn], *w = b->w[b->turn], *y = b->y[b->turn];
    int64_t m, n;
    const ProductGrid grid = grid_of(b, &m, &n);
    const Cell c = product_cell(grid, m, n, i);
    const int64_t r = c.rows.first, height = c.rows.end - r;
    const int64_t j = c.columns.first, width = c.columns.end - j;
    if (b->kind == KIND_Y)
        gemm(b->way, false, true, height, width, b->K, x + r * b->K, b->K, w + j * b->K,
             b->K, y + r * b->M + j, b->M);
    else if (b->kind == KIND_DX)
        gemm(b->way, false, false, height, width, b->M, y + r * b->M, b->M, w + j, b->K,
             x + r * b->K + j, b->K);
    else
        gemm(b->way, true, false, height, width, ROWS, y + r, b->M, x + j, b->K,
             w + r * b->K + j, b->K);
}

/* GFLOP/s of a tenth of a second or more. */
static double measure(Bench *b, Way way, int threads) {
    int64_t m, n;
    const int64_t cells = product_cells(grid_of(b, &m, &n));
    const double flops = 2.0 * ROWS * (double)(b->M * b->K);
    const int64_t times = RING + (int64_t)(3e10 / flops);
    b->way = way;
    const double start = now();
    for (int64_t i = 0; i < times; i++) {
        b->turn = i % RING;
        parallel_for(cells, threads, work, b);
    }
    return 1e-9 * (double)times * flops / (now() - start);
}

static void run_shape(int64_t M, int64_t K, int threads, int rounds) {
    static const char *const NAMES[] = {"y", "dx", "dW"};
    Bench b = {.M = M, .K = K};
    for (int i = 0; i < RING; i++) {
        b.x[i] = drawn(1, ROWS * K);
        b.w[i] = drawn(2, M * K);
        b.y[i] = drawn(3, ROWS * M);
    }
    for (b.kind = 0; b.kind < KINDS; b.kind++) {
        double speed[WAYS][ROUNDS_MAX];
        const int ways = onednn_has(ONEDNN_F32) ? WAYS : WAY_ONEDNN;
        for (int round = 0; round < rounds; round++)
            for (int way = 0; way < ways; way++)
                speed[way][round] = measure(&b, (Way)way, threads);
        printf("| %s, %lld outputs of %lld |", NAMES[b.kind], (long long)M, (long long)K);
        for (int way = 0; way < ways; way++) {
            sort_numbers(speed[way], (size_t)rounds);
            printf(" %.0f |", speed[way][rounds / 2]);
        }
        printf("\n");
    }
    for (int i = 0; i < RING; i++) free(b.x[i]), free(b.w[i]), free(b.y[i]);
}

int main(int argc, char **argv) {
    static const int64_t SHAPES[][2] = {{768, 768}, {3072, 768}, {768, 3072}};
    const int threads = argc > 1 ? atoi(argv[1]) : 2,
              rounds = argc > 2 ? atoi(argv[2]) : 5;
    if (threads < 1 || rounds < 1 || rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: %s [THREADS] [ROUNDS]\n", argv[0]);
        return 2;
    }
    blas_init();
    printf("| GFLOP/s | OpenBLAS | ours | oneDNN |\n|---|--:|--:|--:|\n");
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++)
        run_shape(SHAPES[i][0], SHAPES[i][1], threads, rounds);
    return 0;
}
