/* Times attention's kernels, forward and backward, on one thread.
 *
 *     bench_attention [HEADS [WIDTH [REPEATS [REACH]]]]
 *
 * Texts of 128 to 2,048 tokens, HEADS (8) heads of WIDTH (64), float32: attention to all
 * tokens, and causal (with REACH, if given, to so many tokens). Both take turns in each
 * repeat (of 9); prints the medians of the time that the processor worked for it, and the
 * causal time as a part of the other. */
#include "bench/timing.h"
#include "exec/linalg/blas.h"
#include "exec/ops/kernel.h"
#include "ir/arena.h"
#include "ir/random.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OPERANDS = 3, REPEATS_MAX = 101, KINDS = 4 /* full, causal; forward, backward */ };

typedef struct Bench {
    AttentionAttrs attrs;
    Node node, leaf[OPERANDS], *in[OPERANDS];
    View value[OPERANDS], gradient[OPERANDS];
    Call call;
} Bench;

static float *normal(uint64_t key, int64_t count) {
    float *x = memory_alloc((size_t)count, sizeof *x);
    for (int64_t i = 0; i < count; i++) x[i] = (float)random_normal(key, (uint64_t)i);
    return x;
}

static void *room(size_t bytes) {
    void *data = aligned_alloc(64, (bytes + 64) / 64 * 64);
    memset(data, 0, (bytes + 64) / 64 * 64);
    return data;
}

/* A call on drawn operands of `tokens` tokens. */
static void bench_open(Bench *b, const Kernel *kernel, const AttentionAttrs *attrs,
                       int64_t tokens, int64_t width) {
    *b = (Bench){.attrs = *attrs};
    const Type type = {DTYPE_F32, 3, {1, tokens, attrs->heads * width}};
    const int64_t count = type_count(&type);
    const View view = {.rank = 3, .dim = {1, tokens, type.dim[2]}, .count = count};
    for (int i = 0; i < OPERANDS; i++) {
        b->leaf[i].type = type;
        b->in[i] = &b->leaf[i];
        b->value[i] = b->gradient[i] = view;
        b->value[i].data = normal((uint64_t)i, count);
        b->gradient[i].data = normal((uint64_t)i, count);
    }
    b->node = (Node){.op = &op_attention,
                     .in = b->in,
                     .in_count = OPERANDS,
                     .attrs = &b->attrs,
                     .type = type};
    b->call = (Call){.node = &b->node,
                     .attrs = &b->attrs,
                     .in = b->value,
                     .in_count = OPERANDS,
                     .out = view,
                     .d_out = view,
                     .d_in = b->gradient};
    const size_t aux = kernel->aux_bytes(&b->call);
    const size_t scratch = kernel->scratch_bytes(&b->call);
    b->call.out.data = room((size_t)count * sizeof(float));
    b->call.d_out.data = normal(OPERANDS, count);
    b->call.aux = room(aux);
    b->call.scratch = room(scratch);
}

static void bench_close(Bench *b) {
    for (int i = 0; i < OPERANDS; i++) {
        free(b->value[i].data);
        free(b->gradient[i].data);
    }
    free(b->call.out.data);
    free(b->call.d_out.data);
    free(b->call.aux);
    free(b->call.scratch);
}

static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double time_calls(void (*kernel)(const Call *call), const Call *call, int calls) {
    const double start = processor_seconds();
    for (int i = 0; i < calls; i++) kernel(call);
    return (processor_seconds() - start) / calls;
}

int main(int argc, char **argv) {
    const int64_t heads = argc > 1 ? atoll(argv[1]) : 8;
    const int64_t width = argc > 2 ? atoll(argv[2]) : 64;
    int repeats = argc > 3 ? atoi(argv[3]) : 9;
    if (repeats < 1 || repeats > REPEATS_MAX) repeats = REPEATS_MAX;
    const AttentionAttrs attrs[] = {
        {.heads = heads},
        {.heads = heads, .causal = true, .reach = argc > 4 ? atoll(argv[4]) : 0}};
    const Kernel *kernel = kernel_of(kernels_for(PRECISION_F32), &op_attention);
    blas_init();
    printf("%8s %28s %28s\n", "tokens", "forward: all, causal", "backward: all, causal");
    for (int64_t tokens = 128; tokens <= 2048; tokens *= 2) {
        Bench b[2];
        double times[KINDS][REPEATS_MAX];
        const int calls = (int)(1 + (1 << 21) / (tokens * tokens));
        for (int k = 0; k < 2; k++) bench_open(&b[k], kernel, &attrs[k], tokens, width);
        for (int r = -1; r < repeats; r++)
            for (int k = 0; k < KINDS; k++)
                times[k][r < 0 ? 0 : r] = time_calls(
                    k < 2 ? kernel->forward : kernel->backward, &b[k % 2].call, calls);
        for (int k = 0; k < KINDS; k++) sort_numbers(times[k], (size_t)repeats);
        printf("%8lld", (long long)tokens);
        for (int k = 0; k < KINDS; k += 2) {
            const double all = times[k][repeats / 2], causal = times[k + 1][repeats / 2];
            printf("  %8.3f ms %8.3f ms %4.2f", 1e3 * all, 1e3 * causal, causal / all);
        }
        printf("\n");
        for (int k = 0; k < 2; k++) bench_close(&b[k]);
    }
    return 0;
}
