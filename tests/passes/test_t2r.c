/* T2R: swapped layers compute what plain loops compute in double from what stands before
 * them, positive features come near softmax attention, merging changes no output by more
 * than the rounding of double, the record's numbers are those of plain counting. */
#include "exec/ops.h"
#include "ir/random.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"
#include "tests/support/reference.h"
#include "tests/support/rounding.h"
#include "tests/support/starved.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 2, TOKENS = 5, VALUES = 4096 };

#define GPT2                                                                             \
    "{model_type: gpt2, architectures: [GPT2LMHeadModel], n_embd: 8, n_layer: 5,\n"      \
    " n_head: 2, vocab_size: 12, n_positions: 16, initializer_range: 0.3}\n"
#define LLAMA                                                                            \
    "{model_type: llama, architectures: [LlamaForCausalLM], hidden_size: 8,\n"           \
    " num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2,\n"           \
    " intermediate_size: 16, vocab_size: 12, head_dim: 4, initializer_range: 0.3}\n"
#define ALBERT                                                                           \
    "{model_type: albert, architectures: [AlbertForSequenceClassification],\n"           \
    " embedding_size: 4, hidden_size: 8, num_hidden_layers: 3,\n"                        \
    " num_attention_heads: 2, intermediate_size: 16, vocab_size: 12,\n"                  \
    " max_position_embeddings: 16, initializer_range: 0.3}\n"

/* Adds noise to every weight, in double precision: biases are no longer 0. */
static void make_noisy(Model *model) {
    Diag *diag = diag_create();
    for (int i = 0; i < model->graph->storage_count; i++) {
        Storage *storage = model->graph->storages[i];
        Tensor noisy;
        void *data = NULL;
        const Tensor *old = &storage->tensor;
        const int64_t count = tensor_count(old);
        assert_ok(tensor_create(&noisy, DTYPE_F64, old->rank, old->dim, diag), diag);
        assert_ok(tensor_writable(&noisy, &data, diag), diag);
        tensor_read_f64(old, 0, count, data);
        const uint64_t key = random_key_name(3, storage->name);
        for (int64_t k = 0; k < count; k++)
            ((double *)data)[k] += 0.2 * random_normal(key, (uint64_t)k);
        tensor_release(&storage->tensor);
        storage->tensor = noisy;
    }
    diag_destroy(diag);
}

/* ---- against plain loops ---- */

/* One layer's linear attention, written down anew. */
typedef struct Layer {
    int heads, groups, width, features, values; /* widths are of one head */
    bool causal, masked;
    double scale_q, scale_k, eps;
    int fn;                                              /* FeatureFn */
    const double *weight_q, *weight_k, *bias_q, *bias_k; /* NULL = none */
} Layer;

/* Features of one head of one token. */
static void plain_map(const Layer *l, const double *weight, const double *bias, int g,
                      double scale, const double *x, double *out) {
    double square = 0;
    for (int j = 0; j < l->width; j++) square += scale * x[j] * scale * x[j];
    for (int i = 0; i < l->features; i++) {
        const int row = g * l->features + i;
        double y = weight ? 0 : scale * x[i];
        for (int j = 0; weight && j < l->width; j++)
            y += weight[row * l->width + j] * scale * x[j];
        if (bias) y += bias[row];
        if (l->fn == FEATURE_RELU) out[i] = y > 0 ? y : 0;
        if (l->fn == FEATURE_ELU1) out[i] = y > 0 ? y + 1 : exp(y);
        if (l->fn == FEATURE_POSITIVE) out[i] = exp(y - square / 2) / sqrt(l->features);
    }
}

/* The same for maps that are normalised over a head; weights only. */
static void plain_normal(const Layer *l, const double *weight, int g, double scale,
                         const double *x, double *out) {
    const int rows = l->fn == FEATURE_HEDGEHOG ? l->features / 2 : l->features;
    double sum[2] = {0}, top = -INFINITY;
    for (int i = 0; i < rows; i++) {
        double u = 0;
        for (int j = 0; j < l->width; j++)
            u += weight[(g * rows + i) * l->width + j] * scale * x[j];
        top = fmax(top, u);
        sum[0] += out[i] = exp(u);
        if (rows < l->features) sum[1] += out[rows + i] = exp(-u);
    }
    for (int i = 0; i < l->features; i++)
        out[i] /= l->fn == FEATURE_EXP ? exp(top) : sum[i >= rows];
}

static void plain_features(const Layer *l, const double *weight, const double *bias,
                           int g, double scale, const double *x, double *out) {
    if (l->fn == FEATURE_HEDGEHOG || l->fn == FEATURE_EXP)
        plain_normal(l, weight, g, scale, x, out);
    else
        plain_map(l, weight, bias, g, scale, x, out);
}

/* Whether a token of configured_run's inputs is no padding. */
static bool counts(const Layer *l, int n, int s) {
    return !l->masked || !(n % 2 == 1 && s == TOKENS - 1);
}

/* Attention of query head h at token t of sample n into out[values]. */
static void plain_row(const Layer *l, const double *q, const double *k, const double *v,
                      int n, int t, int h, double *out) {
    const int g = h / (l->heads / l->groups), e = l->values;
    double phi_q[64], phi_k[64], sum = 0, total[64] = {0};
    plain_features(l, l->weight_q, l->bias_q, g, l->scale_q,
                   q + ((n * TOKENS + t) * l->heads + h) * l->width, phi_q);
    for (int s = 0; s < (l->causal ? t + 1 : TOKENS); s++) {
        const int at = (n * TOKENS + s) * l->groups + g;
        if (!counts(l, n, s)) continue;
        plain_features(l, l->weight_k, l->bias_k, g, l->scale_k, k + at * l->width,
                       phi_k);
        double dot = 0;
        for (int i = 0; i < l->features; i++) dot += phi_q[i] * phi_k[i];
        for (int i = 0; i < e; i++) total[i] += dot * v[at * e + i];
        sum += dot;
    }
    for (int i = 0; i < e; i++) out[i] = total[i] / fmax(sum, l->eps);
}

/* Runs a model on configured_run's inputs with `nodes` as outputs too. */
static void run_nodes(Model *model, Node *const *nodes, int count,
                      double (*out)[VALUES]) {
    for (int i = 0; i < count; i++) {
        assert_non_null(nodes[i]);
        graph_set_output(model->graph, "probe", nodes[i]);
        configured_run(model, "probe", 0, out[i], VALUES);
        graph_remove_output(model->graph, "probe");
    }
}

static void read_weight(const Model *model, const char *name, double *out) {
    const Storage *storage = graph_storage(model->graph, name);
    if (!storage) fail_msg("there is no \"%s\"", name);
    tensor_read_f64(&storage->tensor, 0, tensor_count(&storage->tensor), out);
}

/* Checks layer `layer`, whose maps read the nodes of roles q and k. */
static void check_layer(Model *model, const Layer *l, const char *stack, int layer,
                        Role q, Role k) {
    static double got[4][VALUES], want[VALUES];
    const Graph *graph = model->graph;
    Node *nodes[4] = {graph_find(graph, stack, layer, q),
                      graph_find(graph, stack, layer, k),
                      graph_find(graph, stack, layer, ROLE_V),
                      graph_find(graph, stack, layer, ROLE_ATTENTION)};
    run_nodes(model, nodes, 4, got);
    assert_string_equal(nodes[3]->op->name, "linear_attention");
    for (int n = 0; n < SAMPLES; n++)
        for (int t = 0; t < TOKENS; t++)
            for (int h = 0; h < l->heads; h++)
                plain_row(l, got[0], got[1], got[2], n, t, h,
                          want + ((n * TOKENS + t) * l->heads + h) * l->values);
    const int64_t sizes[DIM_SYMBOLS] = {SAMPLES, TOKENS};
    const double terms = rounding_node_terms(nodes[3], sizes) +
                         rounding_node_terms(nodes[3]->in[0], sizes);
    rounding_compare("values", got[3], want,
                     (int64_t)SAMPLES * TOKENS * l->heads * l->values, PRECISION_F64,
                     terms, 1);
}

/* GPT-2: causal, one map for queries and keys, queries scaled. */
static void test_gpt2(void **state) {
    (void)state;
    static double w[VALUES], b[VALUES];
    Model *model = configured_model(GPT2, 1);
    run_pass(model, "attention_to_t2r", "{feature_size: 3, eps: 0.1, chunk: 2}");
    make_noisy(model);
    read_weight(model, "decoder.2.feature_map.weight", w);
    read_weight(model, "decoder.2.feature_map.bias", b);
    const Layer layer = {2, 2, 4, 3, 4, true, false, 0.5, 1, 0.1, FEATURE_RELU,
                         w, w, b, b};
    check_layer(model, &layer, "decoder", 2, ROLE_Q, ROLE_K);
    model_destroy(model);
}

/* Maps that are normalised over a head, with as many features as are natural. */
static void test_normalised(void **state) {
    (void)state;
    static double w[VALUES];
    static const char *const OPTIONS[2][2] = {
        {"{feature: hedgehog}", "{feature: hedgehog, scale_query: true}"},
        {"{feature: exp}", "{feature: exp, scale_query: true}"}};
    for (int run = 0; run < 4; run++) {
        const int fn = run < 2 ? FEATURE_HEDGEHOG : FEATURE_EXP;
        Model *model = configured_model(GPT2, 1);
        run_pass(model, "attention_to_t2r", OPTIONS[run / 2][run % 2]);
        read_weight(model, "decoder.2.feature_map.weight", w);
        for (int i = 0; i < 2 * 4 * 4; i++) assert_true(w[i] == (i % 16 % 5 == 0));
        make_noisy(model);
        read_weight(model, "decoder.2.feature_map.weight", w);
        const int features = fn == FEATURE_EXP ? 4 : 8;
        const double scale = run % 2 ? 0.5 : 1; /* of queries; not by itself */
        const Layer layer = {2, 2,    4,  features, 4, true, false, scale,
                             1, 1e-2, fn, w,        w, NULL, NULL};
        check_layer(model, &layer, "decoder", 2, ROLE_Q, ROLE_K);
        model_destroy(model);
    }
}

/* Llama: grouped queries, a map for queries and one for keys, rotary positions kept or
 * dropped. */
static void test_llama(void **state) {
    (void)state;
    static double w[2][VALUES];
    for (int drop = 0; drop < 2; drop++) {
        Model *model = configured_model(LLAMA, 1);
        run_pass(model, "attention_to_t2r",
                 drop ? "{feature_size: 6, rotary: drop, bias: false, share_qk: false}"
                      : "{feature_size: 6, bias: false, share_qk: false}");
        make_noisy(model);
        read_weight(model, "decoder.1.feature_map_q.weight", w[0]);
        read_weight(model, "decoder.1.feature_map_k.weight", w[1]);
        const Layer layer = {
            4,    2,    4,    6,   4, true, false, 0.5, 1, 1e-2, FEATURE_RELU,
            w[0], w[1], NULL, NULL};
        assert_true(drop == !graph_find(model->graph, NULL, -1, ROLE_ROTARY_Q));
        check_layer(model, &layer, "decoder", 1, drop ? ROLE_Q : ROLE_ROTARY_Q,
                    drop ? ROLE_K : ROLE_ROTARY_K);
        model_destroy(model);
    }
}

/* BERT: all tokens but padding; maps without weights, and positive ones. */
static void test_bert(void **state) {
    (void)state;
    static double w[VALUES];
    Model *model = configured_bert(2, 1);
    run_pass(model, "attention_to_t2r",
             "{feature: elu1, layers: [0], scale_query: false}");
    run_pass(model, "attention_to_t2r",
             "{feature: positive, feature_size: 7, layers: [1]}");
    make_noisy(model);
    Layer layer = {2,    2,    4,    4,   4, false, true, 1, 1, 1e-2, FEATURE_ELU1,
                   NULL, NULL, NULL, NULL};
    check_layer(model, &layer, "encoder", 0, ROLE_Q, ROLE_K);
    read_weight(model, "encoder.1.feature_map.weight", w);
    layer.fn = FEATURE_POSITIVE;
    layer.weight_q = layer.weight_k = w;
    layer.features = 7;
    layer.scale_q = layer.scale_k = sqrt(0.5);
    check_layer(model, &layer, "encoder", 1, ROLE_Q, ROLE_K);
    model_destroy(model);
}

/* A window that no text outgrows leaves what softmax attention gives, whatever the maps
 * and gates are, and a shorter one does not. */
static void expect_softmax(const char *config) {
    static const char *const OPTIONS[] = {"{feature: hedgehog, window: 5}",
                                          "{feature_size: 6, rotary: drop, window: 1000}",
                                          "{feature: hedgehog, window: 4}"};
    static double want[VALUES], got[VALUES];
    for (int i = 0; i < 3; i++) {
        Model *model = configured_model(config, 1);
        make_noisy(model);
        const int64_t count = configured_run(model, "logits", 0, want, VALUES);
        run_pass(model, "attention_to_t2r", OPTIONS[i]);
        configured_run(model, "logits", 0, got, VALUES);
        double error = 0;
        for (int64_t k = 0; k < count; k++) error = fmax(error, fabs(got[k] - want[k]));
        if (i < 2)
            rounding_compare("logits", got, want, count, PRECISION_F64,
                             configured_terms(model, "logits"), 1);
        else
            assert_true(error > 1e-6);
        model_destroy(model);
    }
}

static void test_window(void **state) {
    (void)state;
    expect_softmax(GPT2);
    expect_softmax(LLAMA);
}

/* ---- first weights ---- */

/* With many positive features the model comes near the one with softmax attention, and
 * nearer than with few; rows are orthogonal in blocks. */
static void test_positive(void **state) {
    (void)state;
    static double want[VALUES], got[2][VALUES], w[1 << 16];
    double error[2] = {0};
    for (int many = 0; many < 2; many++) {
        Model *model = configured_bert(2, 7);
        const int64_t count = configured_run(model, "logits", 0, want, VALUES);
        run_pass(model, "attention_to_t2r",
                 many ? "{feature: positive, feature_size: 4000, eps: 1.0e-12}"
                      : "{feature: positive, feature_size: 4, eps: 1.0e-12}");
        configured_run(model, "logits", 0, got[many], VALUES);
        for (int64_t i = 0; i < count; i++)
            error[many] = fmax(error[many], fabs(got[many][i] - want[i]));
        read_weight(model, "encoder.0.feature_map.weight", w);
        for (int a = 0; a < 4; a++)
            for (int b = 0; b < a; b++) {
                double dot = 0;
                for (int j = 0; j < 4; j++) dot += w[a * 4 + j] * w[b * 4 + j];
                /* rows of length 2 in their mean, the root of 4 normal squares */
                assert_within(dot, 0, rounding_tolerance(PRECISION_F32, 4, 4 * 4));
            }
        model_destroy(model);
    }
    if (!(error[1] < 0.02 && error[1] < 0.2 * error[0]))
        fail_msg("errors of 4 and of 4000 features: %g, %g", error[0], error[1]);
}

/* relu(x), relu(-x) and again relu(x). */
static void test_identity(void **state) {
    (void)state;
    static double w[VALUES];
    Model *model = configured_model(GPT2, 1);
    run_pass(model, "attention_to_t2r", "{feature_size: 9, init: identity, layers: [0]}");
    read_weight(model, "decoder.0.feature_map.weight", w);
    for (int row = 0; row < 2 * 9; row++)
        for (int j = 0; j < 4; j++) {
            const int i = row % 9;
            const double want = i % 4 != j ? 0 : i / 4 == 1 ? -1 : 1;
            assert_true(w[row * 4 + j] == want);
        }
    model_destroy(model);
}

/* Normal weights with variance 1 / d: of 2 x 2000 x 4 as the mean of squares; biases are
 * 0. */
static void test_normal(void **state) {
    (void)state;
    static double w[16000], b[4000];
    Model *model = configured_model(GPT2, 1);
    run_pass(model, "attention_to_t2r", "{feature_size: 2000, layers: [0]}");
    read_weight(model, "decoder.0.feature_map.weight", w);
    read_weight(model, "decoder.0.feature_map.bias", b);
    double square = 0;
    for (int i = 0; i < 16000; i++) square += w[i] * w[i] / 16000;
    assert_within(square, 0.25, chance_tolerance(0.25 * sqrt(2), 16000));
    for (int i = 0; i < 4000; i++) assert_true(b[i] == 0);
    model_destroy(model);
}

/* ---- which layers, and the record ---- */

static int64_t integer(const Tree *map, const char *key) {
    const Tree *value = tree_get(map, key);
    if (!value || value->kind != TREE_INT) fail_msg("no integer %s", key);
    return value->integer;
}

static void expect_swapped(const char *options, const char *swapped) {
    Model *model = configured_model(GPT2, 1);
    const int64_t before = graph_parameter_count(model->graph);
    run_pass(model, "attention_to_t2r", options);
    int count = 0;
    for (int layer = 0; layer < 5; layer++) {
        const Node *node = graph_find(model->graph, "decoder", layer, ROLE_ATTENTION);
        const bool linear = strcmp(node->op->name, "linear_attention") == 0;
        assert_int_equal(linear, swapped[layer] == 'x');
        count += linear;
    }
    const Tree *record = last_record(model);
    const int64_t each = 2 * 8 * (4 + 1); /* r k (d + 1) */
    assert_int_equal(integer(record, "parameters_added"), count * each);
    assert_int_equal(graph_parameter_count(model->graph), before + count * each);
    assert_int_equal(integer(record, "softmax_left"), 5 - count);
    assert_int_equal(tree_get(record, "blocks")->count, count);
    assert_int_equal(integer(tree_get(record, "blocks")->first, "parameters_added"),
                     each);
    model_destroy(model);
}

static void test_layers(void **state) {
    (void)state;
    expect_swapped("{feature_size: 8}", "xxxxx");
    expect_swapped("{feature_size: 8, layers: [1, 3]}", ".x.x.");
    expect_swapped("{feature_size: 8, keep_softmax: [0, 4]}", ".xxx.");
    expect_swapped("{feature_size: 8, keep_every: 2}", ".x.x.");
    expect_swapped("{feature_size: 8, keep_every: 4}", ".xxx.");
    expect_swapped("{feature_size: 8, keep_every: 3, stack: decoder}", "x.xx.");
}

/* Denominators of layer 1 of the toy model on the first `count` toy samples. */
static int plain_denominators(Model *model, int count, double *out) {
    const int64_t sizes[DIM_SYMBOLS] = {[DIM_INDEX(DIM_N)] = count};
    Node *node = graph_find(model->graph, "encoder", 1, ROLE_ATTENTION);
    Batches *toy = toy_batches();
    Diag *diag = diag_create();
    float pixels[64 * 64];
    int32_t labels[64];
    int64_t index[64];
    Runner r;
    for (int i = 0; i < count; i++) index[i] = i;
    assert_ok(toy->fetch(toy, &(Fetch){.index = index, .n = count},
                         (void *[]){pixels, labels}, diag),
              diag);
    runner_open_sizes(&r, model->graph, sizes, PRECISION_F64, NULL, node->in, 2);
    double *input = workspace_input(r.workspace, "pixel_values");
    for (int i = 0; i < count * 64; i++) input[i] = pixels[i];
    runner_run(&r);
    const double *q = workspace_value(r.workspace, node->in[0]);
    const double *k = workspace_value(r.workspace, node->in[1]);
    const int tokens = 5, heads = 2, width = 4;
    int rows = 0;
    for (int n = 0; n < count; n++)
        for (int t = 0; t < tokens; t++)
            for (int h = 0; h < heads; h++, rows++) {
                out[rows] = 0;
                for (int s = 0; s < tokens; s++)
                    for (int i = 0; i < width; i++)
                        out[rows] += q[((n * tokens + t) * heads + h) * width + i] *
                                     k[((n * tokens + s) * heads + h) * width + i];
            }
    runner_close(&r);
    batches_destroy(toy);
    diag_destroy(diag);
    return rows;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The recorded share of clamped rows is that of plain counting, at an eps between the
 * denominators. */
static void test_clamped(void **state) {
    (void)state;
    static double all[1024];
    char options[200];
    Model *model = toy_vit(1);
    run_pass(model, "attention_to_t2r", "{feature_size: 4, layers: [1]}");
    const int rows = plain_denominators(model, 23, all);
    model_destroy(model);
    qsort(all, (size_t)rows, sizeof *all, compare);
    const double eps = 0.5 * (all[80] + all[81]);
    assert_true(eps > 1e-6 && all[81] - all[80] > 1e-6 * eps);
    model = toy_vit(1);
    snprintf(options, sizeof options,
             "{feature_size: 4, layers: [1], eps: %.17g, data: toy, limit: 23, "
             "batch_size: 7}",
             eps);
    for (int again = 0; again < 2; again++) {
        if (again)
            run_pass(model, "diagnose",
                     "{data: toy, limit: 23, batch_size: 7, cka: false, "
                     "gradient_norms: false, clamped: true}");
        else
            run_pass(model, "attention_to_t2r", options);
        const Tree *list = tree_get(last_record(model), "clamped");
        assert_int_equal(list->count, 1);
        assert_string_equal(tree_get(list->first, "block")->string, "encoder.1");
        assert_int_equal(integer(list->first, "rows"), rows);
        assert_true(tree_get(list->first, "share")->real == 81.0 / rows);
    }
    model_destroy(model);
}

/* Training changes learned maps; positive ones stay to the bit. */
static void test_frozen(void **state) {
    (void)state;
    static double before[VALUES], after[VALUES];
    for (int positive = 0; positive < 2; positive++) {
        Model *model = toy_vit(1);
        run_pass(model, "attention_to_t2r",
                 positive ? "{feature: positive, feature_size: 4}" : "{feature_size: 4}");
        read_weight(model, "encoder.0.feature_map.weight", before);
        run_pass(model, "finetune", "{data: toy, steps: 2}");
        read_weight(model, "encoder.0.feature_map.weight", after);
        assert_int_equal(memcmp(before, after, 2 * 4 * 8 * sizeof *before) == 0,
                         positive);
        model_destroy(model);
    }
}

/* ---- merging ---- */

static int count_maps(const Graph *graph) {
    int count = 0;
    for (const Node *node = graph->first; node; node = node->next)
        count += strcmp(node->op->name, "feature_map") == 0 && node->in[1];
    return count;
}

/* Swaps, disturbs every weight, merges; the outputs stay. */
static void expect_merged(const char *config, const char *swap, const char *output) {
    static double before[VALUES], after[VALUES];
    Model *model = configured_model(config, 1);
    run_pass(model, "attention_to_t2r", swap);
    make_noisy(model);
    const int64_t parameters = graph_parameter_count(model->graph);
    const double terms = configured_terms(model, output);
    const int64_t count = configured_run(model, output, 0, before, VALUES);
    run_pass(model, "merge_t2r", "{}");
    configured_run(model, output, 0, after, VALUES);
    assert_true(largest_value(before, count) > 0.01);
    rounding_compare(output, after, before, count, PRECISION_F64, terms, 0);
    assert_int_equal(count_maps(model->graph), 0);
    assert_int_equal(integer(last_record(model), "parameters_before"), parameters);
    assert_int_equal(integer(last_record(model), "parameters_after"),
                     graph_parameter_count(model->graph));
    model_destroy(model);
}

static void test_merge(void **state) {
    (void)state;
    expect_merged(GPT2, "{feature_size: 3}", "logits");
    expect_merged(GPT2, "{feature_size: 7, share_qk: false, bias: false}", "logits");
    expect_merged(GPT2, "{feature: elu1, layers: [1, 2]}", "logits");
    expect_merged(GPT2, "{feature: hedgehog, feature_size: 6}", "logits");
    expect_merged(LLAMA, "{feature: exp, share_qk: false, rotary: drop}", "logits");
    expect_merged(LLAMA, "{feature_size: 3, rotary: drop}", "logits");
    expect_merged(LLAMA, "{feature_size: 5, rotary: drop, bias: false}", "logits");
    expect_merged(ALBERT, "{feature_size: 3, share_layers: true}", "logits");
}

static Status merge(void *self, Diag *diag) {
    Model *model = self;
    const Pass *pass = pass_find("merge_t2r");
    PassContext ctx = {.pass = pass,
                       .ops = ops_table(),
                       .arena = model->arena,
                       .record = tree_new(model->arena, TREE_MAP, LOC_NONE)};
    return pass->run(&ctx, model, pass->defaults, diag);
}

/* The projections have 8 MiB in double, what becomes of them 4 MiB. */
static void test_merge_starved(void **state) {
    (void)state;
    if (!can_starve()) skip();
    Model *model = configured_model("{model_type: gpt2, architectures: "
                                    "[GPT2LMHeadModel], n_embd: 1024, n_layer: 1, "
                                    "n_inner: 4, n_head: 2, vocab_size: 12, "
                                    "n_positions: 16}",
                                    1);
    run_pass(model, "attention_to_t2r", "{feature_size: 256}");
    const size_t mib = 1 << 20;
    assert_starves(4 * mib, merge, model);
    assert_starves(11 * mib, merge, model);
    model_destroy(model);
}

/* Merged GPT-2: projections of 8 to 2 x 3 in place of 8 to 8 and the maps. */
static void test_merged_shapes(void **state) {
    (void)state;
    Model *model = configured_model(GPT2, 1);
    const int64_t before = graph_parameter_count(model->graph);
    run_pass(model, "attention_to_t2r", "{feature_size: 3, layers: [2]}");
    run_pass(model, "merge_t2r", "{}");
    assert_int_equal(graph_parameter_count(model->graph),
                     before - 2 * (8 * 8 + 8) + 2 * (8 * 6 + 6));
    const Storage *q = graph_storage(model->graph, "transformer.h.2.attn.q.weight");
    assert_int_equal(q->tensor.dim[0], 8);
    assert_int_equal(q->tensor.dim[1], 6);
    assert_int_equal(q->tensor.dtype, DTYPE_F32);
    assert_null(graph_storage(model->graph, "decoder.2.feature_map.weight"));
    model_destroy(model);
}

/* A head that nothing reads can go: the pipeline checks that nothing changes. */
static void expect_pruned(const char *swap) {
    static double before[VALUES], after[VALUES];
    Model *model = configured_model(GPT2, 1);
    run_pass(model, "attention_to_t2r", swap);
    make_noisy(model);
    for (int layer = 0; layer < 5; layer++) {
        char name[64];
        void *data = NULL;
        Diag *diag = diag_create();
        snprintf(name, sizeof name, "transformer.h.%d.attn.c_proj.weight", layer);
        Storage *out = graph_storage(model->graph, name);
        assert_ok(tensor_writable(&out->tensor, &data, diag), diag);
        memset((double *)data + layer % 2 * 32, 0, 32 * sizeof(double));
        diag_destroy(diag);
    }
    const double terms = configured_terms(model, "logits");
    const int64_t count = configured_run(model, "logits", 0, before, VALUES);
    run_pass(model, "prune_heads", "{score: magnitude, keep: 1}");
    configured_run(model, "logits", 0, after, VALUES);
    rounding_compare("logits", after, before, count, PRECISION_F64, terms, 0);
    const Storage *map = graph_storage(model->graph, "decoder.2.feature_map.weight");
    assert_int_equal(map->tensor.dim[0], 1);
    model_destroy(model);
}

static void test_prune(void **state) {
    (void)state;
    expect_pruned("{feature_size: 3, layers: [0, 2, 3]}");
    expect_pruned("{feature: hedgehog, layers: [0, 2, 3], window: 2}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),          cmocka_unit_test(test_llama),
        cmocka_unit_test(test_bert),          cmocka_unit_test(test_positive),
        cmocka_unit_test(test_identity),      cmocka_unit_test(test_normal),
        cmocka_unit_test(test_layers),        cmocka_unit_test(test_clamped),
        cmocka_unit_test(test_frozen),        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_merged_shapes), cmocka_unit_test(test_prune),
        cmocka_unit_test(test_normalised),    cmocka_unit_test(test_window),
        cmocka_unit_test(test_merge_starved),
    };
    return cmocka_run_group_tests_name("T2R", tests, NULL, NULL);
}
