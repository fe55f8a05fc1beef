/* Times a training step (forward, backward, AdamW), a forward run without gradients, or a
 * token of a text that is being written, on synthetic data.
 *
 *     bench_step train|train_bf16|infer|wait MODEL BATCH TOKENS THREADS
 *                [REPEATS] [BATCHES] [shards=N] [micro_batch=N]
 *                [recompute=layers] [moments=bf16]
 *     bench_step decode MODEL TOKENS CONTEXT THREADS [f32|bf16]
 *     bench_step prompt MODEL PROMPTS LENGTH THREADS [f32|bf16]
 *     bench_step batch MODEL TOKENS TEXTS THREADS [f32|bf16]
 *
 * MODEL is a file or folder of a model, or the configuration of one (NAME.json), whose
 * weights are drawn then. TOKENS is the length of every text, 0 for images. Prints the
 * median and best time of a batch, of forward runs the median of the processors' time as
 * well, and the process's peak memory. A repeat (of 5) is BATCHES (5) batches, without
 * planning, allocation and packing; before the first there is one that does not count.
 * Training shares out the samples of a batch among threads, forward runs share out
 * batches (let BATCHES be a multiple of the threads); where there are fewer than 8 in all
 * their weights are packed in every product, as they would be. wait: batches one after
 * the other, each by all threads, of weights that were packed before. What follows are
 * options of training by their names in recipes.
 *
 * decode: TOKENS tokens one by one behind a context of CONTEXT others; the median of a
 * token. prompt: PROMPTS times a prompt of LENGTH tokens, up to the logits of its last
 * one; the median of a prompt. batch: TEXTS texts side by side, TOKENS tokens of each,
 * the likeliest; the median of one token of all of them. All print the bytes of weights
 * that a token reads and those of the state behind the last one; decode prints the median
 * time in which its threads read as many bytes and do nothing else, too. */
#include "bench/timing.h"
#include "exec/generate/decode.h"
#include "exec/generate/sequences.h"
#include "exec/linalg/blas.h"
#include "exec/linalg/products.h"
#include "exec/ops.h"
#include "exec/run/forward.h"
#include "exec/run/params.h"
#include "exec/run/team.h"
#include "exec/train/train.h"
#include "io/files/json.h"
#include "io/formats/hf.h"
#include "io/formats/load.h"
#include "ir/random.h"
#include "passes/training/label_loss.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { INPUTS_MAX = 8 };

/* Samples for every input of a graph; the values do not matter for time. */
typedef struct Noise {
    Batches base;
    Column columns[INPUTS_MAX];
    int64_t below[INPUTS_MAX]; /* of integers: the least number that is too large */
    int64_t tokens;
} Noise;

typedef struct Bench {
    Model *model;
    Node *loss; /* NULL = forward runs */
    Noise noise;
    int64_t batch, tokens;
    int threads, repeats, batches;
    TrainOptions options; /* of training */
    Diag *diag;
} Bench;

/* When the first round of batches was done, by the clock and of the processors. */
typedef struct Meter {
    int64_t samples, first;
    double start, processor_start;
} Meter;

static void require(Status status, Diag *diag) {
    if (status == STATUS_OK) return;
    diag_print(diag, stderr);
    exit(1);
}

static int64_t noise_length(const Batches *base, int64_t index) {
    (void)index;
    return ((const Noise *)base)->tokens;
}

static Status noise_fetch(const Batches *base, const Fetch *what, void *const *dst,
                          Diag *diag) {
    (void)diag;
    const Noise *noise = (const Noise *)base;
    for (int c = 0; c < base->column_count; c++) {
        if (!dst[c]) continue;
        const Type *type = &noise->columns[c].type;
        int64_t count = what->n;
        for (int i = 0; i < type->rank; i++)
            count *= type->dim[i] == DIM_T ? what->tokens : type->dim[i];
        for (int64_t i = 0; i < count; i++)
            if (type->dtype == DTYPE_F32)
                ((float *)dst[c])[i] = (float)(i % 17 - 8) / 8;
            else
                ((int32_t *)dst[c])[i] = noise->below[c] == 0
                                             ? 1 /* a mask */
                                             : (int32_t)(i * 7919 % noise->below[c]);
    }
    return STATUS_OK;
}

/* The rows of the table that an input of integers looks up; of labels, the classes. */
static int64_t below_of(const Graph *graph, const Node *input, int64_t classes) {
    if (strncmp(input->name, "labels", 6) == 0) return classes;
    for (const Node *node = graph->first; node; node = node->next)
        if (node->op == &op_embedding && node->in[0] == input)
            return node->in[1]->type.dim[0];
    return 0;
}

/* What a model gives: its logits, or of one without a head its first output. */
static Node *result_of(const Graph *graph) {
    Node *logits = graph_output(graph, "logits");
    return logits ? logits : graph->outputs[0].node;
}

static void noise_init(Noise *noise, const Graph *graph, int64_t count, int64_t tokens) {
    const Type *logits = &result_of(graph)->type;
    const int64_t classes = logits->dim[logits->rank - 1];
    int columns = 0;
    for (const Node *node = graph->first; node; node = node->next) {
        if (!node_is_input(node) || columns == INPUTS_MAX) continue;
        Column *column = &noise->columns[columns];
        *column =
            (Column){.name = node->name,
                     .type = {.dtype = node->type.dtype, .rank = node->type.rank - 1}};
        memcpy(column->type.dim, node->type.dim + 1,
               (size_t)column->type.rank * sizeof(int64_t));
        noise->below[columns++] = below_of(graph, node, classes);
    }
    noise->tokens = tokens;
    noise->base = (Batches){.name = "noise",
                            .count = count,
                            .columns = noise->columns,
                            .column_count = columns,
                            .classes = classes,
                            .partial = true,
                            .length = tokens > 0 ? noise_length : NULL,
                            .max_tokens = tokens,
                            .fetch = noise_fetch};
}

/* Sets an option of training, NAME=VALUE. */
static void set_option(Bench *b, const char *text) {
    long long number;
    if (sscanf(text, "shards=%lld", &number) == 1)
        b->options.shards = number;
    else if (sscanf(text, "micro_batch=%lld", &number) == 1)
        b->options.micro_batch = number;
    else if (strcmp(text, "recompute=layers") == 0)
        b->options.recompute = RECOMPUTE_LAYERS;
    else if (strcmp(text, "moments=bf16") == 0)
        b->options.moments = MOMENTS_BF16;
    else
        require(
            diag_fail(b->diag, STATUS_USAGE, LOC_NONE, NULL, "no option \"%s\"", text),
            b->diag);
}

static double time_steps(const Bench *b, int steps) {
    TrainOptions options = b->options;
    options.steps = steps;
    options.batch_size = b->batch;
    options.lr = 1e-4;
    Arena *arena = arena_create();
    TrainReport report;
    const double start = now();
    require(train(b->model->graph, b->loss, NULL, 0, &b->noise.base, &options, 1,
                  b->threads, NULL, arena, &report, b->diag),
            b->diag);
    arena_destroy(arena);
    return now() - start;
}

static Status meter_count(void *self, const Fetch *what, const float *const *values,
                          const void *const *columns, Diag *diag) {
    (void)values, (void)columns, (void)diag;
    Meter *meter = self;
    meter->samples += what->n;
    if (meter->samples == meter->first) {
        meter->start = now();
        meter->processor_start = processor_now();
    }
    return STATUS_OK;
}

/* A batch at a time, which all threads share. */
static double time_waiting(const Bench *b, Forward *f) {
    Meter meter = {.first = -1};
    const double start = now();
    for (int i = 0; i < b->batches; i++)
        require(forward_over(f, &b->noise.base, b->batch, b->batch, b->threads, NULL,
                             meter_count, &meter, b->diag),
                b->diag);
    return now() - start;
}

/* One batch for each thread, then those that are timed. */
static double time_forward(const Bench *b, double *processor) {
    Node *logits = result_of(b->model->graph);
    Meter meter = {.first = b->batch * b->threads};
    require(forward_batches(b->model->graph, &logits, 1, &b->noise.base,
                            b->batch * (b->threads + b->batches), b->batch, b->threads,
                            NULL, meter_count, &meter, b->diag),
            b->diag);
    *processor = processor_now() - meter.processor_start;
    return now() - meter.start;
}

static Model *load(const char *path, Arena *arena, Diag *diag) {
    Model *model = NULL;
    const char *end = strrchr(path, '.');
    if (!end || strcmp(end, ".json") != 0) {
        require(model_load(&model, path, ops_table(), false, diag), diag);
        return model;
    }
    Tree *config = NULL;
    require(json_read(&config, arena, path, 1 << 20, diag), diag);
    require(hf_build(&model, config, ops_table(), diag), diag);
    require(model_init_weights(model, 1, diag), diag);
    return model;
}

static void print_times(double *times, int count, const char *more) {
    sort_numbers(times, (size_t)count);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("median %.3f ms, best %.3f ms, %speak %ld MB\n", 1e3 * times[count / 2],
           1e3 * times[0], more, usage.ru_maxrss / 1024);
}

/* Steps or forward runs. */
static void measure_batches(Bench *b, bool training) {
    Graph *graph = b->model->graph;
    if (training)
        require(label_loss_add(&b->loss, graph, graph_output(graph, "logits"),
                               &(LabelLossOptions){0}, b->diag),
                b->diag);
    noise_init(&b->noise, graph, b->batch * (b->threads + b->batches), b->tokens);
    double *times = memory_alloc((size_t)b->repeats + 1, sizeof *times);
    double *processor = memory_alloc((size_t)b->repeats + 1, sizeof *processor);
    for (int i = -1; i < b->repeats; i++) {
        const int k = i < 0 ? 0 : i;
        times[k] = b->loss ? time_steps(b, 1 + b->batches) - time_steps(b, 1)
                           : time_forward(b, &processor[k]);
        times[k] /= b->batches;
        processor[k] /= b->batches;
    }
    sort_numbers(processor, (size_t)b->repeats);
    char more[64] = "";
    if (!b->loss)
        snprintf(more, sizeof more, "processor %.3f ms, ",
                 1e3 * processor[b->repeats / 2]);
    print_times(times, b->repeats, more);
    free(times);
    free(processor);
}

static void print_tokens(double *times, int count, size_t weights, size_t state,
                         double reading) {
    Text more = {0};
    text_add(&more, "weights %.1f MB, state %.3f MB, ", (double)weights / 1e6,
             (double)state / 1e6);
    if (reading > 0) text_add(&more, "reading %.3f ms, ", 1e3 * reading);
    print_times(times, count, more.data);
    text_free(&more);
}

/* The time that one batch waits for. */
static void measure_waiting(Bench *b) {
    Node *logits = result_of(b->model->graph);
    Forward *f = NULL;
    double *times = memory_alloc((size_t)b->repeats + 1, sizeof *times);
    noise_init(&b->noise, b->model->graph, b->batch, b->tokens);
    require(forward_open(&f, b->model->graph, &logits, 1, PARAMS_ALWAYS, b->diag),
            b->diag);
    time_waiting(b, f);
    for (int i = 0; i < b->repeats; i++) times[i] = time_waiting(b, f) / b->batches;
    print_times(times, b->repeats, "");
    forward_close(f);
    free(times);
}

/* Numbers that a team reads, a share each. */
typedef uint64_t Line __attribute__((vector_size(64)));
typedef struct Read {
    const Line *lines;
    size_t count;
    Team *team;
} Read;

static void read_share(void *self, int me) {
    const Read *read = self;
    const size_t threads = (size_t)team_threads(read->team);
    const size_t first = read->count / threads * (size_t)me;
    Line sum[4] = {0};
    for (size_t i = first; i + 4 <= first + read->count / threads; i += 4)
        for (int j = 0; j < 4; j++) sum[j] ^= read->lines[i + (size_t)j];
    volatile uint64_t used =
        (sum[0] ^ sum[1] ^ sum[2] ^ sum[3])[0]; /* so they are read */
    (void)used;
}

/* The median of the seconds in which all threads read so many bytes. */
static double time_reading(Bench *b, size_t bytes) {
    enum { ROUNDS = 21 };
    double times[ROUNDS];
    Read read = {.count = bytes / sizeof(Line)};
    void *lines = NULL;
    if (posix_memalign(&lines, sizeof(Line), bytes)) return 0;
    memset(lines, 1, bytes);
    read.lines = lines;
    require(team_create(&read.team, b->threads, b->diag), b->diag);
    for (int i = -1; i < ROUNDS; i++) {
        const double start = now();
        team_run(read.team, read_share, &read);
        if (i >= 0) times[i] = now() - start;
    }
    team_destroy(read.team);
    free(lines);
    sort_numbers(times, ROUNDS);
    return times[ROUNDS / 2];
}

/* `count` tokens one by one behind a context, or, `prompts`, so many times a prompt. */
static void measure_tokens(Bench *b, int count, StepWeights weights, bool prompts) {
    const DecodeOptions options = {.capacity = b->tokens + (prompts ? 0 : count),
                                   .threads = b->threads,
                                   .weights = weights};
    Decoder *decoder = NULL;
    require(decoder_create(&decoder, b->model->graph, &options, b->diag), b->diag);
    const int64_t words = decoder_vocabulary(decoder);
    int32_t *context = memory_alloc((size_t)b->tokens, sizeof *context);
    for (int64_t i = 0; i < b->tokens; i++) context[i] = (int32_t)(i * 7919 % words);
    double *times = memory_alloc((size_t)count, sizeof *times);
    require(decoder_append(decoder, context, b->tokens, b->diag), b->diag);
    for (int i = 0; i < count; i++) {
        if (prompts) decoder_reset(decoder);
        const double start = now();
        require(prompts ? decoder_append(decoder, context, b->tokens, b->diag)
                        : decoder_step(decoder, (int32_t)(i * 7919 % words), b->diag),
                b->diag);
        times[i] = now() - start;
    }
    free(context);
    const size_t read = decoder_weight_bytes(decoder),
                 state = decoder_state_bytes(decoder);
    decoder_destroy(decoder);
    print_tokens(times, count, read, state, prompts ? 0 : time_reading(b, read + state));
    free(times);
}

/* Texts side by side, and the token that comes next in each. */
typedef struct Texts {
    Sequences *sequences;
    int32_t *next;
} Texts;

static void take_likeliest(void *self, int64_t row) {
    const Texts *texts = self;
    const float *logits = sequences_logits(texts->sequences, row);
    int64_t best = 0;
    for (int64_t i = 1; i < sequences_vocabulary(texts->sequences); i++)
        if (logits[i] > logits[best]) best = i;
    texts->next[row] = (int32_t)best;
}

/* `count` tokens of `side` texts, each from a token of its own on. */
static void measure_texts(Bench *b, int count, int64_t side, StepWeights weights) {
    const SequencesOptions options = {
        .capacity = count + 1, .slots = side, .threads = b->threads, .weights = weights};
    Texts texts = {.next = memory_alloc((size_t)side, sizeof *texts.next)};
    require(sequences_create(&texts.sequences, b->model->graph, &options, b->diag),
            b->diag);
    const int64_t words = sequences_vocabulary(texts.sequences);
    for (int64_t i = 0; i < side; i++) {
        texts.next[i] = (int32_t)((i + 1) * 7919 % words);
        require(sequences_begin(texts.sequences, i, NULL, 0, b->diag), b->diag);
    }
    double *times = memory_alloc((size_t)count, sizeof *times);
    for (int t = -1; t < count; t++) {
        const double start = now();
        sequences_clear(texts.sequences);
        for (int64_t i = 0, row; i < side; i++)
            require(sequences_add(texts.sequences, &row, i, texts.next[i], b->diag),
                    b->diag);
        sequences_step(texts.sequences);
        sequences_each(texts.sequences, take_likeliest, &texts);
        if (t >= 0) times[t] = now() - start;
    }
    print_tokens(times, count, sequences_weight_bytes(texts.sequences),
                 sequences_state_bytes(texts.sequences), 0);
    free(times);
    free(texts.next);
    sequences_destroy(texts.sequences);
}

int main(int argc, char **argv) {
    if (argc < 6) {
        fprintf(
            stderr,
            "usage: %s train|train_bf16|infer|wait MODEL BATCH TOKENS THREADS [REPEATS] "
            "[BATCHES] [OPTION=VALUE...]\n"
            "       %s decode MODEL TOKENS CONTEXT THREADS [f32|bf16]\n"
            "       %s prompt MODEL PROMPTS LENGTH THREADS [f32|bf16]\n"
            "       %s batch MODEL TOKENS TEXTS THREADS [f32|bf16]\n",
            argv[0], argv[0], argv[0], argv[0]);
        return 2;
    }
    blas_init();
    Arena *arena = arena_create();
    Bench b = {.diag = diag_create(),
               .batch = atoll(argv[3]),
               .tokens = atoll(argv[4]),
               .threads = atoi(argv[5])};
    require(products_choose(PRODUCTS_AUTO, b.diag), b.diag);
    b.model = load(argv[2], arena, b.diag);
    const bool prompts = strcmp(argv[1], "prompt") == 0;
    const StepWeights weights =
        argc > 6 && strcmp(argv[6], "bf16") == 0 ? STEP_BF16 : STEP_F32;
    if (prompts || strcmp(argv[1], "decode") == 0) {
        measure_tokens(&b, atoi(argv[3]), weights, prompts);
    } else if (strcmp(argv[1], "batch") == 0) {
        measure_texts(&b, atoi(argv[3]), b.tokens, weights);
    } else {
        b.repeats = argc > 6 ? atoi(argv[6]) : 5;
        b.batches = argc > 7 ? atoi(argv[7]) : 5;
        b.options = train_defaults;
        b.options.precision = strcmp(argv[1], "train_bf16") == 0 ? TRAIN_BF16 : TRAIN_F32;
        for (int i = 8; i < argc; i++) set_option(&b, argv[i]);
        if (strcmp(argv[1], "wait") == 0)
            measure_waiting(&b);
        else
            measure_batches(&b, strncmp(argv[1], "train", 5) == 0);
    }
    model_destroy(b.model);
    diag_destroy(b.diag);
    arena_destroy(arena);
    return 0;
}
