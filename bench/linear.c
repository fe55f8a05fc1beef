/* Times products of linear layers, y = x W^T + b, with weights kept in several ways.
 *
 *     bench_linear [THREADS [REPEATS]]
 *
 * At the shapes of BERT-base, with 1, 128 and 1,024 rows of x for each thread, as lanes
 * that share the weights. All ways take turns in each repeat; prints the median of
 * G(FL)OP/s, one line for each shape. Time is that which the threads' processors worked
 * for them, so that other programs count as little as can be. */
#include "bench/timing.h"
#include "exec/linalg/blas.h"
#include "exec/linalg/gemm.h"
#include "exec/loops/loops.h"
#include "ir/arena.h"
#include "ir/quantised.h"
#include "ir/random.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { THREADS_MAX = 64, REPEATS_MAX = 101 };

/* Ways that weights are kept; the first one is OpenBLAS's. */
static const struct {
    const char *name;
    int kind; /* StepWeights; -1 = not packed */
} WAYS[] = {{"OpenBLAS", -1}, {"f32", STEP_F32},   {"bf16", STEP_BF16}, {"q8", STEP_Q8},
            {"q4", STEP_Q4},  {"int8", STEP_INT8}, {"int4", STEP_INT4}};
enum { WAY_COUNT = sizeof WAYS / sizeof *WAYS };

typedef struct Bench {
    int64_t M, K, rows;
    int threads;
    int64_t calls; /* of one measurement */
    const float *weight, *bias;
    Matrix packed[WAY_COUNT];
    int way;
    pthread_barrier_t barrier;
} Bench;

typedef struct Worker {
    Bench *bench;
    pthread_t thread;
    float *x, *y;
    double seconds;
} Worker;

/* Of the calling thread. */
static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *room(size_t bytes) {
    void *data = aligned_alloc(64, (bytes + 63) / 64 * 64);
    memset(data, 0, (bytes + 63) / 64 * 64);
    return data;
}

static float *normal(uint64_t key, int64_t count) {
    float *x = room((size_t)count * sizeof(float));
    for (int64_t i = 0; i < count; i++) x[i] = (float)random_normal(key, (uint64_t)i);
    return x;
}

static void multiply(const Bench *b, const float *x, float *y) {
    if (WAYS[b->way].kind >= 0) {
        loops_here()->matrix_times(&b->packed[b->way], 0, b->M, b->bias, x, b->K, y, b->M,
                                   b->rows);
        return;
    }
    for (int64_t r = 0; r < b->rows; r++)
        memcpy(y + r * b->M, b->bias, (size_t)b->M * sizeof(float));
    gemm_f32(false, true, b->rows, b->M, b->K, 1, x, b->K, b->weight, b->K, 1, y, b->M);
}

static void *work(void *self) {
    Worker *worker = self;
    Bench *b = worker->bench;
    while (true) {
        pthread_barrier_wait(&b->barrier);
        if (b->way < 0) return NULL;
        const double start = processor_seconds();
        for (int64_t i = 0; i < b->calls; i++) multiply(b, worker->x, worker->y);
        worker->seconds = processor_seconds() - start;
        pthread_barrier_wait(&b->barrier);
    }
}

/* Seconds that a thread takes for one measurement of a way, on average. */
static double measure(Bench *b, const Worker *workers, int way) {
    double seconds = 0;
    b->way = way;
    pthread_barrier_wait(&b->barrier);
    pthread_barrier_wait(&b->barrier);
    for (int i = 0; i < b->threads; i++) seconds += workers[i].seconds;
    return seconds / b->threads;
}

/* The tensor that a way is packed of: the weight, rounded where it is quantised. */
static Tensor source(const Bench *b, StepWeights kind) {
    const int64_t dim[] = {b->M, b->K};
    Tensor tensor = tensor_shape(DTYPE_F32, 2, dim);
    if (kind == STEP_F32 || kind == STEP_BF16) {
        tensor.buf = buf_wrap(b->weight, tensor_bytes(&tensor), NULL);
        return tensor;
    }
    Diag *diag = diag_create();
    tensor = kind == STEP_Q4 || kind == STEP_INT4 ? q4_shape(2, dim, 64, false)
                                                  : q8_shape(2, dim);
    if (tensor_allocate(&tensor, diag) != STATUS_OK) exit(1);
    for (int64_t r = 0; r < b->M; r++)
        quantised_round_row(&tensor, r, b->weight + r * b->K);
    diag_destroy(diag);
    return tensor;
}

static void pack(Bench *b) {
    for (int way = 0; way < WAY_COUNT; way++) {
        if (WAYS[way].kind < 0) continue;
        const StepWeights kind = (StepWeights)WAYS[way].kind;
        Tensor weight = source(b, kind);
        Matrix *matrix = &b->packed[way];
        *matrix = matrix_of(&weight, false, kind);
        void *data = room(matrix_bytes(matrix));
        matrix_pack(matrix, &weight, false, data);
        matrix->data = data;
        tensor_release(&weight);
    }
}

static void run_shape(int64_t M, int64_t K, int64_t rows, int threads, int repeats) {
    static Worker workers[THREADS_MAX];
    double seconds[WAY_COUNT][REPEATS_MAX];
    Bench b = {.M = M, .K = K, .rows = rows, .threads = threads};
    const double flops = 2.0 * (double)(M * K * rows);
    b.calls = 1 + (int64_t)(2e9 / flops); /* some hundredths of a second */
    if (rows == 1) b.calls = 1 + b.calls / 8;
    b.weight = normal(1, M * K), b.bias = normal(2, M);
    pack(&b);
    pthread_barrier_init(&b.barrier, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        workers[i] = (Worker){.bench = &b,
                              .x = normal(3, rows * K),
                              .y = room((size_t)(rows * M) * sizeof(float))};
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (int way = 0; way < WAY_COUNT; way++) measure(&b, workers, way);
    for (int i = 0; i < repeats; i++)
        for (int way = 0; way < WAY_COUNT; way++)
            seconds[way][i] = measure(&b, workers, way);
    printf("%4lld x %4lld, %4lld rows:", (long long)M, (long long)K, (long long)rows);
    for (int way = 0; way < WAY_COUNT; way++) {
        sort_numbers(seconds[way], (size_t)repeats);
        printf("  %s %.0f", WAYS[way].name,
               flops * (double)(b.calls * threads) / seconds[way][repeats / 2] / 1e9);
    }
    printf("\n");
    fflush(stdout);
    b.way = -1;
    pthread_barrier_wait(&b.barrier);
    for (int i = 0; i < threads; i++) {
        pthread_join(workers[i].thread, NULL);
        free(workers[i].x), free(workers[i].y);
    }
    for (int way = 0; way < WAY_COUNT; way++) free((void *)(uintptr_t)b.packed[way].data);
    free((void *)(uintptr_t)b.weight), free((void *)(uintptr_t)b.bias);
}

int main(int argc, char **argv) {
    static const int64_t SHAPES[][2] = {{768, 768}, {3072, 768}, {768, 3072}};
    static const int64_t ROWS[] = {1, 128, 1024};
    const int threads = argc > 1 ? atoi(argv[1]) : 2,
              repeats = argc > 2 ? atoi(argv[2]) : 7;
    if (threads < 1 || threads > THREADS_MAX || repeats < 1 || repeats > REPEATS_MAX) {
        fprintf(stderr, "usage: %s [THREADS [REPEATS]]\n", argv[0]);
        return 2;
    }
    blas_init();
    for (size_t r = 0; r < sizeof ROWS / sizeof *ROWS; r++)
        for (size_t s = 0; s < sizeof SHAPES / sizeof *SHAPES; s++)
            run_shape(SHAPES[s][0], SHAPES[s][1], ROWS[r], threads, repeats);
    return 0;
}
