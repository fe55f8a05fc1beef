/* Times generation with a decoder of 6 layers, width 512, feed-forward 2048, 8 heads, no
 * head: softmax attention with its cache, or linear attention with 32 features per head
 * (T2R), after contexts of several lengths.
 *
 *     bench_decode softmax|t2r f32|bf16 THREADS TOKENS CONTEXT...
 *
 * Contexts must ascend. Prints the median and best time of TOKENS tokens at each, the
 * bytes of weights and state, and how fast the context was taken in. With 0 for TOKENS
 * all tokens up to the last context are generated one by one: prints the seconds since
 * the first token at each context. */
#include "exec/generate/decode.h"
#include "bench/timing.h"
#include "exec/ops.h"
#include "ir/arena.h"
#include "ir/random.h"

#include <stdlib.h>
#include <string.h>

enum { LAYERS = 6, D = 512, FFN = 2048, HEADS = 8, FEATURES = 32, WORDS = 1000 };

typedef struct Bench {
    Graph *graph;
    Diag *diag;
    bool t2r;
    int weights;
} Bench;

static void require(Status status, Diag *diag) {
    if (status == STATUS_OK) return;
    diag_print(diag, stderr);
    exit(1);
}

static Node *op(Bench *b, const char *name, Node *const *in, int count,
                const char *attrs) {
    Node *node = graph_insert(b->graph, NULL, op_find(b->graph->ops, name), in, count);
    if (attrs) require(node_set(b->graph, node, b->diag, "%s", attrs), b->diag);
    require(node_infer(node, b->diag), b->diag);
    return node;
}

/* Small normal numbers: values do not matter for time, but must stay finite. */
static Node *weight(Bench *b, int rank, int64_t m, int64_t k, int64_t l) {
    char name[32];
    snprintf(name, sizeof name, "weight.%d", b->weights++);
    const int64_t dim[] = {m, k, l};
    const Tensor shape = tensor_shape(DTYPE_F32, rank, dim);
    Storage *storage = NULL;
    require(graph_add_storage(&storage, b->graph, name, &shape, b->diag), b->diag);
    require(tensor_create(&storage->tensor, DTYPE_F32, rank, dim, b->diag), b->diag);
    void *data = NULL;
    require(tensor_writable(&storage->tensor, &data, b->diag), b->diag);
    for (int64_t i = 0; i < tensor_count(&shape); i++)
        ((float *)data)[i] = (float)(0.03 * (random_uniform(7, (uint64_t)i) - 0.5));
    return graph_param(b->graph, storage);
}

static Node *linear(Bench *b, Node *x, int64_t out) {
    const int64_t in = x->type.dim[2];
    return op(b, "linear",
              (Node *[]){x, weight(b, 2, out, in, 0), weight(b, 1, out, 0, 0)}, 3, NULL);
}

static Node *norm(Bench *b, Node *x) {
    return op(b, "layer_norm",
              (Node *[]){x, weight(b, 1, D, 0, 0), weight(b, 1, D, 0, 0)}, 3, NULL);
}

static Node *features(Bench *b, Node *x, Node *map, Node *bias) {
    return op(b, "feature_map", (Node *[]){x, map, bias}, 3, "heads=8");
}

static Node *attend(Bench *b, Node *x) {
    Node *q = linear(b, x, D), *k = linear(b, x, D), *v = linear(b, x, D);
    if (!b->t2r) return op(b, "attention", (Node *[]){q, k, v}, 3, "heads=8 causal=true");
    Node *map = weight(b, 3, HEADS, FEATURES, D / HEADS);
    Node *bias = weight(b, 2, HEADS, FEATURES, 0);
    q = features(b, q, map, bias);
    k = features(b, k, map, bias);
    return op(b, "linear_attention", (Node *[]){q, k, v}, 3, "heads=8 causal=true");
}

static Node *layer(Bench *b, Node *x) {
    x = op(b, "add", (Node *[]){x, linear(b, attend(b, norm(b, x)), D)}, 2, NULL);
    Node *y = op(b, "activation", (Node *[]){linear(b, norm(b, x), FFN)}, 1, NULL);
    return op(b, "add", (Node *[]){x, linear(b, y, D)}, 2, NULL);
}

static void build(Bench *b) {
    const Type type = {.dtype = DTYPE_I32, .rank = 2, .dim = {DIM_N, DIM_T}};
    Node *ids = graph_input(b->graph, "input_ids", &type);
    Node *x = op(b, "embedding", (Node *[]){ids, weight(b, 2, WORDS, D, 0)}, 2, NULL);
    for (int i = 0; i < LAYERS; i++) x = layer(b, x);
    graph_set_output(b->graph, "logits", x);
}

/* Takes tokens in up to a context of `context`; gives tokens per second. */
static double fill(Decoder *decoder, int64_t context, Diag *diag) {
    const int64_t count = context - decoder_position(decoder);
    if (count <= 0) return 0;
    int32_t *tokens = memory_alloc((size_t)count, sizeof *tokens);
    for (int64_t i = 0; i < count; i++) tokens[i] = (int32_t)(i * 7 % WORDS);
    const double start = now();
    require(decoder_append(decoder, tokens, count, diag), diag);
    free(tokens);
    return (double)count / (now() - start);
}

static void measure(Decoder *decoder, int64_t context, int tokens, double *times,
                    Diag *diag) {
    const double speed = fill(decoder, context, diag);
    for (int i = 0; i < tokens; i++) {
        const double start = now();
        require(decoder_step(decoder, i % WORDS, diag), diag);
        times[i] = now() - start;
    }
    sort_numbers(times, (size_t)tokens);
    printf("context %5lld: median %.3f ms/token, best %.3f, weights %.1f MB, state %.2f "
           "MB, prompt %.0f tokens/s\n",
           (long long)context, 1e3 * times[tokens / 2], 1e3 * times[0],
           (double)decoder_weight_bytes(decoder) / 1e6,
           (double)decoder_state_bytes(decoder) / 1e6, speed);
    fflush(stdout);
}

static void generate(Decoder *decoder, int count, char **contexts, Diag *diag) {
    const double start = now();
    for (int i = 0; i < count; i++) {
        const int64_t context = atoll(contexts[i]);
        while (decoder_position(decoder) < context)
            require(
                decoder_step(decoder, (int32_t)(decoder_position(decoder) % WORDS), diag),
                diag);
        printf("generated %5lld: %.3f s\n", (long long)context, now() - start);
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    if (argc < 6) {
        fprintf(stderr, "usage: %s softmax|t2r f32|bf16 THREADS TOKENS CONTEXT...\n",
                argv[0]);
        return 2;
    }
    Arena *arena = arena_create();
    Bench b = {.graph = graph_create(arena, ops_table()),
               .diag = diag_create(),
               .t2r = strcmp(argv[1], "t2r") == 0};
    build(&b);
    const int tokens = atoi(argv[4]);
    const DecodeOptions options = {
        .capacity = atoll(argv[argc - 1]) + (int64_t)tokens * (argc - 5),
        .threads = atoi(argv[3]),
        .weights = strcmp(argv[2], "bf16") == 0 ? STEP_BF16 : STEP_F32};
    Decoder *decoder = NULL;
    require(decoder_create(&decoder, b.graph, &options, b.diag), b.diag);
    if (tokens == 0) generate(decoder, argc - 5, argv + 5, b.diag);
    double *times = memory_alloc((size_t)tokens + 1, sizeof *times);
    for (int i = 5; tokens && i < argc; i++)
        measure(decoder, atoll(argv[i]), tokens, times, b.diag);
    free(times);
    decoder_destroy(decoder);
    graph_release(b.graph);
    arena_destroy(arena);
    diag_destroy(b.diag);
    return 0;
}
