/* Times products of matrices as BERT-base has them, by every library and in every number
 * format that there is here: y[rows, M] = x[rows, K] W^T with W packed once where it can
 * be.
 *
 *     bench_products [THREADS] [ROUNDS]
 *
 * THREADS (2) threads multiply at once, each x of its own by the same W, on one thread
 * each. Every line takes its turn in every one of ROUNDS (7); prints the medians over the
 * rounds, in G(FL)OP/s of all threads together. What a line must round or pack of x is in
 * its time. */
#include "bench/timing.h"
#include "exec/linalg/bf16.h"
#include "exec/linalg/blas.h"
#include "exec/linalg/gemm.h"
#include "exec/linalg/onednn.h"
#include "exec/run/parallel.h"
#include "ir/arena.h"
#include "ir/half.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 1024, WIDTH_MAX = 3072, THREADS_MAX = 64, ROUNDS_MAX = 99 };

typedef enum Way { BLAS_F32, DNN_F32, OWN_BF16, DNN_BF16, DNN_S8, DNN_U8, WAYS } Way;

static const char *const NAMES[] = {"OpenBLAS f32", "oneDNN f32", "ours bf16",
                                    "oneDNN bf16",  "oneDNN s8",  "oneDNN u8"};
static const OnednnType TYPES[] = {[DNN_F32] = ONEDNN_F32,
                                   [DNN_BF16] = ONEDNN_BF16,
                                   [DNN_S8] = ONEDNN_S8,
                                   [DNN_U8] = ONEDNN_U8};

/* One thread's. */
typedef struct Place {
    float *x, *y;
    uint16_t *half;
    int8_t *whole;
    void *scratch;
} Place;

typedef struct Bench {
    int64_t rows, M, K;
    int times; /* products of one measurement */
    Way way;
    float *w;
    Bf16Matrix rounded;
    OnednnMatrix *packed[WAYS];
    Place place[THREADS_MAX];
} Bench;

static void *room(size_t bytes) {
    void *data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!data) exit(1);
    memset(data, 1, (bytes + 63) / 64 * 64);
    return data;
}

static bool has(Way way) {
    return way == BLAS_F32 || way == OWN_BF16 || onednn_has(TYPES[way]);
}

static void multiply_once(const Bench *b, const Place *p) {
    switch (b->way) {
    case BLAS_F32:
        gemm_f32(false, true, b->rows, b->M, b->K, 1, p->x, b->K, b->w, b->K, 0, p->y,
                 b->M);
        break;
    case OWN_BF16:
        bf16_times(&b->rounded, BF16_ROWS, b->rows, p->x, false, p->y, p->scratch);
        break;
    case DNN_BF16: /* x is floats, as above */
        for (int64_t i = 0; i < b->rows * b->K; i++)
            p->half[i] = bf16_from_float(p->x[i]);
        onednn_times(b->packed[b->way], b->rows, p->half, b->K, NULL, p->y);
        break;
    case DNN_F32: onednn_times(b->packed[b->way], b->rows, p->x, b->K, NULL, p->y); break;
    default: onednn_times(b->packed[b->way], b->rows, p->whole, b->K, NULL, p->y);
    }
}

static void multiply(void *self, int64_t i, int thread) {
    const Bench *b = self;
    (void)thread;
    for (int t = 0; t < b->times; t++) multiply_once(b, &b->place[i]);
}

/* Packs the weights for every way. */
static void prepare(Bench *b, Diag *diag) {
    const int64_t count = b->M * b->K;
    uint16_t *half = room((size_t)count * sizeof *half);
    int8_t *whole = room((size_t)count);
    for (int64_t i = 0; i < count; i++) {
        b->w[i] = (float)(i % 17 - 8) / 8;
        half[i] = bf16_from_float(b->w[i]);
        whole[i] = (int8_t)(i % 17 - 8);
    }
    const void *values[WAYS] = {
        [DNN_F32] = b->w, [DNN_BF16] = half, [DNN_S8] = whole, [DNN_U8] = whole};
    b->rounded = (Bf16Matrix){b->M, b->K, BF16_ROWS, NULL};
    b->rounded.data = room(bf16_bytes(&b->rounded));
    bf16_round(&b->rounded, b->w);
    for (Way way = 0; way < WAYS; way++)
        if (values[way] && has(way) &&
            onednn_pack(&b->packed[way], TYPES[way], false, b->M, b->K, values[way],
                        diag) != STATUS_OK)
            exit(1);
    free(half);
    free(whole);
}

static void measure(Bench *b, int threads, int rounds) {
    static double rate[WAYS][ROUNDS_MAX];
    const double work = 2.0 * (double)b->rows * (double)b->M * (double)b->K;
    b->times = (int)(2e10 / work) + 1;
    for (int round = -1; round < rounds; round++)
        for (b->way = 0; b->way < WAYS; b->way++) {
            if (!has(b->way)) continue;
            const double start = now();
            parallel_for(threads, threads, multiply, b);
            if (round >= 0)
                rate[b->way][round] = work * b->times * threads / (now() - start) / 1e9;
        }
    printf("%4lld x %4lld x %4lld:", (long long)b->rows, (long long)b->M,
           (long long)b->K);
    for (Way way = 0; way < WAYS; way++) {
        if (!has(way)) continue;
        sort_numbers(rate[way], (size_t)rounds);
        printf("  %s %.0f", NAMES[way], rate[way][rounds / 2]);
    }
    putchar('\n');
}

int main(int argc, char **argv) {
    static const int64_t shapes[][3] = {{128, 768, 768},   {128, 3072, 768},
                                        {128, 768, 3072},  {1024, 768, 768},
                                        {1024, 3072, 768}, {1024, 768, 3072}};
    const int threads = argc > 1 ? atoi(argv[1]) : 2;
    const int rounds = argc > 2 ? atoi(argv[2]) : 7;
    if (threads < 1 || threads > THREADS_MAX || rounds < 1 || rounds > ROUNDS_MAX)
        return 2;
    blas_init();
    Diag *diag = diag_create();
    Bench b = {.w = room((size_t)WIDTH_MAX * WIDTH_MAX / 4 * sizeof(float))};
    for (int i = 0; i < threads; i++) {
        Place *p = &b.place[i];
        const size_t count = (size_t)ROWS_MAX * WIDTH_MAX;
        *p = (Place){.x = room(count * sizeof(float)),
                     .y = room(count * sizeof(float)),
                     .half = room(count * sizeof(uint16_t)),
                     .whole = room(count),
                     .scratch = room(bf16_scratch(ROWS_MAX, WIDTH_MAX))};
        for (size_t k = 0; k < count; k++) p->x[k] = (float)(k % 13) / 16;
    }
    printf("%d threads, %s, %s\nrows x outputs x inputs, G(FL)OP/s\n", threads,
           blas_core(), onednn_library());
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        b.rows = shapes[i][0], b.M = shapes[i][1], b.K = shapes[i][2];
        prepare(&b, diag);
        measure(&b, threads, rounds);
        free(b.rounded.data);
        for (Way way = 0; way < WAYS; way++) {
            onednn_free(b.packed[way]);
            b.packed[way] = NULL;
        }
    }
    diag_destroy(diag);
    return 0;
}
