/* Small language models for generation, and their logits by a forward run in double. */
#ifndef COMPRESS_TESTS_EXEC_DECODE_FIXTURE_H
#define COMPRESS_TESTS_EXEC_DECODE_FIXTURE_H

#include "exec/generate/decode.h"
#include "exec/ops.h"
#include "ir/arena.h"
#include "ir/random.h"
#include "ir/rewrite.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 53, LAYERS = 3, TOKENS = 150 };

/* Weights that no initialisation leaves at a special value, times `size`. */
static inline void draw_weights(Model *model, double size) {
    Diag *diag = diag_create();
    Graph *graph = model->graph;
    for (int i = 0; i < graph->storage_count; i++) {
        Storage *storage = graph->storages[i];
        void *data = NULL;
        assert_ok(tensor_writable(&storage->tensor, &data, diag), diag);
        const uint64_t key = random_key_name(11, storage->name);
        const double mean = storage->init.kind == INIT_ONES;
        for (int64_t j = 0; j < tensor_count(&storage->tensor); j++)
            ((float *)data)[j] = (float)(mean + size * random_normal(key, (uint64_t)j));
    }
    diag_destroy(diag);
}

static inline Model *drawn_model(const char *yaml) {
    Model *model = configured_model(yaml, 5);
    draw_weights(model, 0.15);
    return model;
}

/* Tied head, weights [in, out], learned positions; widths that fill no panel. */
static inline Model *gpt2_model(void) {
    return drawn_model(
        "{model_type: gpt2, architectures: [GPT2LMHeadModel], n_embd: 40,\n"
        " n_head: 4, n_layer: 3, n_positions: 160, vocab_size: 53,\n"
        " activation_function: gelu_new}\n");
}

/* Two heads of keys for eight of queries, rotary positions, gated feed-forward. */
static inline Model *llama_model(void) {
    return drawn_model("{model_type: llama, architectures: [LlamaForCausalLM],\n"
                       " hidden_size: 64, num_hidden_layers: 3, num_attention_heads: 8,\n"
                       " num_key_value_heads: 2, intermediate_size: 56,\n"
                       " rms_norm_eps: 1.0e-5, vocab_size: 53}\n");
}

/* A window that slides along the tokens, stretched rotary positions. */
static inline Model *mistral_model(void) {
    return drawn_model("{model_type: mistral, architectures: [MistralForCausalLM],\n"
                       " hidden_size: 40, num_hidden_layers: 3, num_attention_heads: 4,\n"
                       " num_key_value_heads: 2, intermediate_size: 56,\n"
                       " sliding_window: 21, vocab_size: 53, rope_scaling: {\n"
                       " type: yarn, factor: 4.0,\n"
                       " original_max_position_embeddings: 40}}\n");
}

/* Norms of heads, whose number no number of threads divides; a window in upper layers. */
static inline Model *qwen3_model(void) {
    return drawn_model("{model_type: qwen3, architectures: [Qwen3ForCausalLM],\n"
                       " hidden_size: 36, num_hidden_layers: 3, num_attention_heads: 6,\n"
                       " num_key_value_heads: 3, head_dim: 10, intermediate_size: 56,\n"
                       " use_sliding_window: true, sliding_window: 9,\n"
                       " max_window_layers: 2, vocab_size: 53}\n");
}

/* Caps, norms around blocks, scaled embeddings, a window in every second layer. */
static inline Model *gemma2_model(void) {
    return drawn_model("{model_type: gemma2, architectures: [Gemma2ForCausalLM],\n"
                       " hidden_size: 40, num_hidden_layers: 3, num_attention_heads: 4,\n"
                       " num_key_value_heads: 2, head_dim: 12, intermediate_size: 56,\n"
                       " sliding_window: 30, query_pre_attn_scalar: 20,\n"
                       " attn_logit_softcapping: 3.0, final_logit_softcapping: 5.0,\n"
                       " vocab_size: 53}\n");
}

static inline Model *lstm_model(void) {
    return drawn_model("{model_type: lstm_lm, vocab_size: 53, embedding_size: 24,\n"
                       " hidden_size: 28, num_layers: 3}\n");
}

/* ---- other nodes ---- */

static inline Node *insert_before(Model *model, Node *anchor, const char *op,
                                  Node *const *in, int count, const char *attrs) {
    Diag *diag = diag_create();
    Graph *graph = model->graph;
    Node *node = graph_insert(graph, anchor, op_find(graph->ops, op), in, count);
    assert_ok(node_set(graph, node, diag, "%s", attrs), diag);
    assert_ok(node_infer(node, diag), diag);
    diag_destroy(diag);
    return node;
}

static inline Node *new_param(Model *model, const char *name, int rank,
                              const int64_t *dim) {
    Diag *diag = diag_create();
    const Tensor shape = tensor_shape(DTYPE_F32, rank, dim);
    Storage *storage = NULL;
    assert_ok(graph_add_storage(&storage, model->graph,
                                graph_fresh_name(model->graph, name), &shape, diag),
              diag);
    assert_ok(tensor_create(&storage->tensor, DTYPE_F32, rank, dim, diag), diag);
    diag_destroy(diag);
    return graph_param(model->graph, storage);
}

/* Shared heads with biases by buckets of distances, one table for all layers. */
static inline Model *biased_model(void) {
    Model *model = llama_model();
    Diag *diag = diag_create();
    Node *table = new_param(model, "distances", 2, (const int64_t[]){10, 8});
    for (int layer = 0; layer < LAYERS; layer++) {
        Node *node = graph_find(model->graph, "decoder", layer, ROLE_ATTENTION);
        node_set_operand(model->graph, node, "rel_bias", table);
        assert_ok(node_set(model->graph, node, diag,
                           "heads=8 kv_heads=2 causal=true buckets=10 "
                           "distance=40"),
                  diag);
        assert_ok(node_infer(node, diag), diag);
    }
    diag_destroy(diag);
    draw_weights(model, 0.15);
    return model;
}

/* Mixes heads of attention, before the softmax and after it or once. */
static inline void mix_heads_of(Model *model, Node *node, bool before, bool after) {
    Diag *diag = diag_create();
    const AttentionAttrs *attrs = node->attrs;
    const int64_t dim[] = {attrs->heads, attrs->heads};
    for (int i = 0; i < 2; i++) {
        const char *matrix = i ? "mix_after" : "mix_before";
        const char *bias = i ? "mix_after_bias" : "mix_before_bias";
        if (!(i ? after : before)) continue;
        node_set_operand(model->graph, node, matrix, new_param(model, matrix, 2, dim));
        node_set_operand(model->graph, node, bias, new_param(model, bias, 1, dim));
    }
    assert_ok(node_infer(node, diag), diag);
    diag_destroy(diag);
}

/* Heads that are mixed, with caps and a window that slides in one layer. */
static inline Model *talking_model(void) {
    Model *model =
        drawn_model("{model_type: gemma2, architectures: [Gemma2ForCausalLM],\n"
                    " hidden_size: 40, num_hidden_layers: 3, num_attention_heads: 4,\n"
                    " num_key_value_heads: 4, head_dim: 12, intermediate_size: 56,\n"
                    " sliding_window: 30, query_pre_attn_scalar: 20,\n"
                    " attn_logit_softcapping: 3.0, vocab_size: 53}\n");
    for (int layer = 0; layer < LAYERS; layer++)
        mix_heads_of(model, graph_find(model->graph, "decoder", layer, ROLE_ATTENTION),
                     layer != 1, layer != 2);
    draw_weights(model, 0.15);
    return model;
}

/* ---- linear attention ---- */

/* Puts linear attention in the place of a layer's attention: `features` per head with a
 * weight and bias, or with 0 none. */
static inline void linearize(Model *model, int layer, int64_t features, const char *fn) {
    Node *old = graph_find(model->graph, "decoder", layer, ROLE_ATTENTION);
    const AttentionAttrs *attrs = old->attrs;
    const int64_t H = attrs->heads, G = attrs->kv_heads > 0 ? attrs->kv_heads : H;
    const int64_t d = old->in[0]->type.dim[2] / H;
    Node *q[3] = {old->in[0]}, *k[3] = {old->in[1]};
    char text[128];
    if (features > 0) {
        q[1] = k[1] = new_param(model, "map", 3, (const int64_t[]){G, features, d});
        q[2] = k[2] = new_param(model, "map_bias", 2, (const int64_t[]){G, features});
    }
    snprintf(text, sizeof text, "heads=%lld scale=0.4 fn=%s", (long long)H, fn);
    q[0] = insert_before(model, old, "feature_map", q, 3, text);
    snprintf(text, sizeof text, "heads=%lld scale=0.4 fn=%s", (long long)G, fn);
    k[0] = insert_before(model, old, "feature_map", k, 3, text);
    snprintf(text, sizeof text, "heads=%lld kv_heads=%lld causal=true eps=0.01",
             (long long)H, (long long)G);
    Node *node = insert_before(model, old, "linear_attention",
                               (Node *[]){q[0], k[0], old->in[2]}, 3, text);
    node_place(model->graph, node, old->stack, old->layer, old->role);
    graph_replace_uses(model->graph, old, node);
    graph_erase(model->graph, old);
    draw_weights(model, 0.15);
}

/* Linear attention in every layer, with features of three kinds; shared heads. */
static inline Model *t2r_model(void) {
    Model *model = llama_model();
    linearize(model, 0, 5, "relu");
    linearize(model, 1, 0, "elu1");
    linearize(model, 2, 16, "positive");
    return model;
}

/* Features that are normalised over a head, with weights and without. */
static inline Model *hedgehog_model(void) {
    Model *model = llama_model();
    linearize(model, 0, 7, "hedgehog");
    linearize(model, 1, 0, "hedgehog");
    linearize(model, 2, 5, "exp");
    return model;
}

/* Puts a window, with queries and keys as softmax attention reads them and a gate, beside
 * a layer's linear attention. */
static inline void add_window(Model *model, int layer, int64_t window) {
    Diag *diag = diag_create();
    Node *node = graph_find(model->graph, "decoder", layer, ROLE_ATTENTION);
    const LinearAttentionAttrs *attrs = node->attrs;
    node_set_operand(model->graph, node, "near_q", node->in[0]->in[0]);
    node_set_operand(model->graph, node, "near_k", node->in[1]->in[0]);
    node_set_operand(model->graph, node, "gate",
                     new_param(model, "gate", 1, (const int64_t[]){attrs->heads}));
    assert_ok(node_set(model->graph, node, diag,
                       "heads=%lld kv_heads=%lld causal=true eps=0.01 window=%lld",
                       (long long)attrs->heads, (long long)attrs->kv_heads,
                       (long long)window),
              diag);
    assert_ok(node_infer(node, diag), diag);
    diag_destroy(diag);
    draw_weights(model, 0.15);
}

/* A slope beside the gate of a layer's window. */
static inline void add_slope(Model *model, int layer) {
    Diag *diag = diag_create();
    Node *node = graph_find(model->graph, "decoder", layer, ROLE_ATTENTION);
    const LinearAttentionAttrs *attrs = node->attrs;
    node_set_operand(model->graph, node, "slope",
                     new_param(model, "slope", 1, (const int64_t[]){attrs->heads}));
    assert_ok(node_infer(node, diag), diag);
    diag_destroy(diag);
    draw_weights(model, 0.15);
}

/* Windows beside linear attention with shared heads: of one token, of fewer tokens than a
 * chunk, with a slope, and of more than the sequence has. */
static inline Model *window_model(void) {
    Model *model = hedgehog_model();
    add_window(model, 0, 13);
    add_window(model, 1, 1);
    add_window(model, 2, 1000);
    add_slope(model, 0);
    return model;
}

/* Softmax attention in the second of three layers. */
static inline Model *mixed_model(void) {
    Model *model = gpt2_model();
    linearize(model, 0, 12, "elu1");
    linearize(model, 2, 7, "relu");
    return model;
}

/* ---- logits ---- */

static inline int32_t token_at(int64_t t) {
    return (int32_t)(random_u64(3, (uint64_t)t) % WORDS);
}

static inline void fill_tokens(int32_t *tokens, int64_t count) {
    for (int64_t t = 0; t < count; t++) tokens[t] = token_at(t);
}

/* Logits [count, WORDS] of a forward run over all tokens in double; the caller frees. */
static inline double *forward_logits(Model *model, int64_t count) {
    Node *logits = graph_output(model->graph, "logits");
    const int64_t sizes[DIM_SYMBOLS] = {[DIM_INDEX(DIM_N)] = 1,
                                        [DIM_INDEX(DIM_T)] = count};
    Runner r;
    runner_open_sizes(&r, model->graph, sizes, PRECISION_F64, NULL, &logits, 1);
    fill_tokens(workspace_input(r.workspace, "input_ids"), count);
    int32_t *mask = workspace_input(r.workspace, "attention_mask");
    for (int64_t t = 0; mask && t < count; t++) mask[t] = 1;
    runner_run(&r);
    const size_t bytes = (size_t)(count * WORDS) * sizeof(double);
    double *out = malloc(bytes);
    memcpy(out, workspace_value(r.workspace, logits), bytes);
    runner_close(&r);
    return out;
}

/* Fails unless logits at a position differ by no more than float rounds in the chain that
 * makes them of all tokens up to there. */
static inline void check_logits(Model *model, const float *got, const double *want,
                                int64_t position) {
    const int64_t sizes[DIM_SYMBOLS] = {1, position + 1};
    const double terms =
        rounding_terms(model->graph, graph_output(model->graph, "logits"), sizes);
    double largest = 0, worst = 0;
    for (int i = 0; i < WORDS; i++) {
        largest = fmax(largest, fabs(want[i]));
        worst = fmax(worst, isnan(got[i]) ? INFINITY : fabs(got[i] - want[i]));
    }
    if (worst > rounding_tolerance(PRECISION_F32, terms, largest))
        fail_msg("position %lld: off by %g of %g", (long long)position, worst, largest);
}

static inline Decoder *open_decoder(Model *model, int64_t capacity, int threads,
                                    StepWeights weights) {
    Diag *diag = diag_create();
    Decoder *decoder = NULL;
    const DecodeOptions options = {capacity, threads, weights};
    assert_ok(decoder_create(&decoder, model->graph, &options, diag), diag);
    diag_destroy(diag);
    return decoder;
}

/* Appends tokens first .. last - 1 of the sequence, all at once or one by one. */
static inline void append(Decoder *decoder, int64_t first, int64_t last, bool at_once) {
    Diag *diag = diag_create();
    int32_t *tokens = malloc((size_t)(last - first) * sizeof *tokens);
    for (int64_t t = first; t < last; t++) tokens[t - first] = token_at(t);
    if (at_once) assert_ok(decoder_append(decoder, tokens, last - first, diag), diag);
    for (int64_t t = first; t < last && !at_once; t++)
        assert_ok(decoder_step(decoder, tokens[t - first], diag), diag);
    assert_int_equal(decoder_position(decoder), last);
    free(tokens);
    diag_destroy(diag);
}

#endif
