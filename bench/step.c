/* Times one training step (forward, backward, AdamW), or one forward run without
 * gradients, of a model built from configuration, on synthetic images.
 *
 *     bench_step train|infer CONFIG.json BATCH THREADS [REPEATS]
 *
 * Prints the median and best time of a batch, GEMM FLOP/s (training counted as three
 * forward runs), and the process's peak memory. A repeat is a run of 6 batches minus the
 * time of a run of 1, over 5, so that planning and allocation do not count. */
#include "exec/linalg/blas.h"
#include "exec/ops.h"
#include "exec/train/train.h"
#include "io/files/json.h"
#include "io/formats/hf.h"
#include "ir/random.h"
#include "passes/measure.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* Noise images and labels; the values do not matter for time. */
typedef struct Noise {
    Batches base;
    Column columns[2];
    int64_t pixels;
    float *image;
} Noise;

static Status noise_fetch(const Batches *base, const Fetch *what, void *const *dst,
                          Diag *diag) {
    const int64_t *index = what->index;
    const int64_t n = what->n;
    (void)diag;
    const Noise *noise = (const Noise *)base;
    for (int64_t i = 0; i < n; i++) {
        if (dst[0])
            memcpy((float *)dst[0] + i * noise->pixels, noise->image,
                   (size_t)noise->pixels * sizeof(float));
        if (dst[1]) ((int32_t *)dst[1])[i] = (int32_t)(index[i] % base->classes);
    }
    return STATUS_OK;
}

static void noise_init(Noise *noise, const Graph *graph, int64_t count) {
    const Node *input = graph_find_input(graph, "pixel_values");
    const Node *logits = graph_output(graph, "logits");
    Type image = {.dtype = DTYPE_F32, .rank = 3};
    memcpy(image.dim, input->type.dim + 1, 3 * sizeof(int64_t));
    noise->columns[0] = (Column){"pixel_values", image};
    noise->columns[1] = (Column){"labels", {.dtype = DTYPE_I32, .rank = 0}};
    noise->pixels = type_count(&image);
    noise->image = memory_alloc((size_t)noise->pixels, sizeof(float));
    for (int64_t i = 0; i < noise->pixels; i++)
        noise->image[i] = (float)random_normal(1, (uint64_t)i);
    noise->base = (Batches){.name = "noise",
                            .count = count,
                            .columns = noise->columns,
                            .column_count = 2,
                            .classes = logits->type.dim[1],
                            .partial = true,
                            .fetch = noise_fetch};
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double time_steps(Graph *graph, Node *loss, const Batches *data, int64_t batch,
                         int threads, int steps, Diag *diag) {
    TrainOptions options = train_defaults;
    options.steps = steps;
    options.batch_size = batch;
    options.lr = 1e-4;
    Arena *arena = arena_create();
    TrainReport report;
    const double start = now();
    if (train(graph, loss, NULL, 0, data, &options, 1, threads, NULL, arena, &report,
              diag) != STATUS_OK) {
        diag_print(diag, stderr);
        exit(1);
    }
    arena_destroy(arena);
    return now() - start;
}

static Status ignore(void *self, const Fetch *what, const float *const *values,
                     const void *const *columns, Diag *diag) {
    (void)self, (void)what, (void)values, (void)columns, (void)diag;
    return STATUS_OK;
}

static double time_forward(Graph *graph, const Batches *data, int64_t batch, int threads,
                           int batches, Diag *diag) {
    Node *logits = graph_output(graph, "logits");
    const double start = now();
    if (forward_batches(graph, &logits, 1, data, batch * batches, batch, threads, NULL,
                        ignore, NULL, diag) != STATUS_OK) {
        diag_print(diag, stderr);
        exit(1);
    }
    return now() - start;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static Status load(Model **model, Node **loss, Arena *arena, const char *path,
                   Diag *diag) {
    Tree *config = NULL;
    TRY(json_read(&config, arena, path, 1 << 20, diag));
    TRY(hf_build(model, config, ops_table(), diag));
    TRY(model_init_weights(*model, 1, diag));
    Graph *graph = (*model)->graph;
    const Type type = {.dtype = DTYPE_I32, .rank = 1, .dim = {DIM_N}};
    Node *labels = graph_input(graph, "labels", &type);
    *loss = graph_insert(graph, NULL, op_find(graph->ops, "cross_entropy"),
                         (Node *[]){graph_output(graph, "logits"), labels}, 2);
    return node_infer(*loss, diag);
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: %s train|infer CONFIG.json BATCH THREADS [REPEATS]\n",
                argv[0]);
        return 2;
    }
    const bool training = strcmp(argv[1], "train") == 0;
    const int64_t batch = atoll(argv[3]);
    const int threads = atoi(argv[4]), repeats = argc > 5 ? atoi(argv[5]) : 5;
    blas_init();
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Model *model = NULL;
    Node *loss = NULL;
    Measure measure;
    if (load(&model, &loss, arena, argv[2], diag) != STATUS_OK ||
        model_measure(&measure, model, diag) != STATUS_OK) {
        diag_print(diag, stderr);
        return 1;
    }
    Noise noise;
    noise_init(&noise, model->graph, batch * 6);
    double *times = memory_alloc((size_t)repeats, sizeof(double));
    for (int i = 0; i < repeats; i++) {
        double seconds[2];
        for (int k = 0; k < 2; k++) {
            const int count = k ? 6 : 1;
            seconds[k] = training ? time_steps(model->graph, loss, &noise.base, batch,
                                               threads, count, diag)
                                  : time_forward(model->graph, &noise.base, batch,
                                                 threads, count, diag);
        }
        times[i] = (seconds[1] - seconds[0]) / 5;
    }
    qsort(times, (size_t)repeats, sizeof(double), compare);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    const double flops = (training ? 3 : 1) * measure.flops * (double)batch;
    printf("batch %lld threads %d: median %.1f ms, best %.1f ms, %.1f GFLOP/s, "
           "peak %ld MB\n",
           (long long)batch, threads, 1e3 * times[repeats / 2], 1e3 * times[0],
           flops / times[repeats / 2] / 1e9, usage.ru_maxrss / 1024);
    return 0;
}
