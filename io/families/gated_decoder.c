/* Gated decoders: see gated_decoder.h.
 *
 * Positions are angles, not rows of a table, so no length is refused; beyond
 * max_position_embeddings a model was not trained. */
#include "io/families/gated_decoder.h"

#include <math.h>
#include <string.h>

typedef struct GatedDecoder {
    const DecoderKind *kind;
    int64_t vocabulary, width, layers, heads, kv_heads, head_width, hidden, positions;
    const char *act;
    double eps, dropout;
    Rope rope;
    bool qkv_bias, out_bias, mlp_bias;
    int64_t window;        /* sliding_window, 0 = none */
    bool *near;            /* by layer: whether it sees that many tokens alone */
    double cap, final_cap; /* of scores and predictions, 0 = none */
    double scale;          /* of scores, 0 = 1 / sqrt(head_width) */
} GatedDecoder;

static bool has(const GatedDecoder *d, DecoderPart part) {
    return (d->kind->parts & part) != 0;
}

/* ---- configuration ---- */

/* The heads: key/value heads divide them; a head's width is even for the rotation. */
static void read_heads(Builder *b, GatedDecoder *d) {
    const DecoderKind *kind = d->kind;
    d->heads = build_config_int(b, "num_attention_heads", NULL, 1, BUILD_WIDTH_MAX);
    const bool present = tree_get(b->model->config, "num_key_value_heads") != NULL;
    const int64_t groups = kind->kv_heads && !present ? kind->kv_heads : d->heads;
    d->kv_heads = build_config_int(b, "num_key_value_heads", &groups, 1, BUILD_WIDTH_MAX);
    const int64_t usual = kind->head_width ? kind->head_width : d->width / d->heads;
    if (!kind->head_width && !build_config_value(b, "head_dim"))
        build_config_heads(b, "num_attention_heads", d->heads, "hidden_size", d->width);
    d->head_width =
        build_config_int(b, "head_dim", &usual, 1, BUILD_WIDTH_MAX / d->heads);
    build_config_heads(b, "num_key_value_heads", d->kv_heads, "num_attention_heads",
                       d->heads);
    if (b->status == STATUS_OK && d->head_width % 2)
        b->status = diag_fail(b->diag, STATUS_MODEL, b->model->config->loc,
                              build_config_value(b, "head_dim") ? "head_dim"
                                                                : "num_attention_heads",
                              "expected heads of an even width, which rotary positions "
                              "turn by pairs, found %lld",
                              (long long)d->head_width);
}

static void read_window(Builder *b, GatedDecoder *d) {
    const DecoderWindow kind = d->kind->window;
    const int64_t most = 1 << 30, first = 28, none = 0;
    if (kind == WINDOW_NEVER) return;
    const int64_t *usual =
        build_config_is_null(b, "sliding_window") ? &none : &d->kind->window_size;
    d->window = build_config_int(b, "sliding_window", usual, 1, most);
    int64_t from = 0;
    if (kind == WINDOW_UPPER) {
        if (!build_config_bool(b, "use_sliding_window", false)) d->window = 0;
        from = build_config_int(b, "max_window_layers", &first, 0, most);
    }
    d->near = ARENA_ARRAY(b->model->arena, bool, (size_t)d->layers);
    const char *needed = d->window              ? NULL
                         : kind == WINDOW_UPPER ? "sliding_window and use_sliding_window"
                                                : "sliding_window";
    if (kind != WINDOW_ALL && build_config_layer_types(b, d->near, d->layers, needed))
        return;
    for (int64_t i = 0; i < d->layers; i++)
        d->near[i] = d->window && i >= from && (kind != WINDOW_SECOND || i % 2 == 0);
}

/* The gate's function. Gemma's first configurations say gelu and mean its approximation,
 * as hidden_activation says since. */
static void read_act(Builder *b, GatedDecoder *d) {
    const bool other = has(d, DECODER_ALT_ACT_KEY);
    if (other && build_config_value(b, "hidden_activation")) {
        build_config_value(b, "hidden_act");
        d->act = build_config_activation(b, "hidden_activation", d->kind->act);
        return;
    }
    d->act = build_config_activation(b, "hidden_act", d->kind->act);
    if (!other || strcmp(d->act, "gelu") != 0 || b->status != STATUS_OK) return;
    diag_warn(b->diag, build_config_loc(b, "hidden_act"), "hidden_act",
              "gelu is read as gelu_pytorch_tanh, with which these models were trained; "
              "hidden_activation says otherwise");
    d->act = "gelu_tanh";
}

/* A cap: null, or a number above 0. */
static double read_cap(Builder *b, const char *key, double usual) {
    return build_config_is_null(b, key) ? 0
                                        : build_config_real(b, key, &usual, 1e-3, 1e6);
}

static void read_scores(Builder *b, GatedDecoder *d) {
    const double scalar = 256;
    if (has(d, DECODER_CAPS)) {
        d->cap = read_cap(b, "attn_logit_softcapping", 50);
        d->final_cap = read_cap(b, "final_logit_softcapping", 30);
    }
    if (!has(d, DECODER_QUERY_SCALAR)) return;
    const double by = build_config_real(b, "query_pre_attn_scalar", &scalar, 1e-6, 1e9);
    if (by != (double)d->head_width) d->scale = 1 / sqrt(by);
}

/* Whether a key asks for biases, which it must not where the family has no such part. */
static bool read_bias(Builder *b, const GatedDecoder *d, DecoderPart part,
                      const char *key) {
    if (has(d, part)) return build_config_bool(b, key, false);
    build_config_require(b, key, false, false);
    return false;
}

static void read_config(Builder *b, GatedDecoder *d) {
    const DecoderKind *kind = d->kind;
    const double std = 0.02;
    d->vocabulary = build_config_int(b, "vocab_size", NULL, 1, DECODER_VOCABULARY_MAX);
    d->width = build_config_int(b, "hidden_size", NULL, 1, BUILD_WIDTH_MAX);
    d->layers = build_config_int(b, "num_hidden_layers", NULL, 1, BUILD_LAYERS_MAX);
    d->hidden = build_config_int(b, "intermediate_size", NULL, 1, BUILD_FFN_MAX);
    d->eps = build_config_real(b, "rms_norm_eps", &kind->eps, 0, 1);
    d->positions = build_config_int(b, "max_position_embeddings", &kind->positions, 1,
                                    DECODER_POSITIONS_MAX);
    b->std = build_config_real(b, "initializer_range", &std, 0, 100);
    build_config_attention_dropout(b, "attention_dropout");
    read_act(b, d);
    read_heads(b, d);
    read_window(b, d);
    read_scores(b, d);
    d->out_bias = read_bias(b, d, DECODER_BIAS_KEY, "attention_bias");
    d->qkv_bias = d->out_bias || has(d, DECODER_QKV_BIAS);
    d->mlp_bias = read_bias(b, d, DECODER_MLP_BIAS_KEY, "mlp_bias");
    if (has(d, DECODER_CAUSAL_KEY))
        build_config_require(b, "use_bidirectional_attention", false, false);
    if (has(d, DECODER_DROPOUT_KEYS)) {
        d->dropout = build_config_dropout(b, "resid_pdrop", 0);
        build_config_left_out(b, "embd_pdrop", "dropout of the embeddings");
    }
    d->rope = rope_read(b, kind->rope, d->head_width, d->positions);
}

/* ---- layers ---- */

static const char *part(Builder *b, const char *name) {
    return decoder_part(b, "layers", name);
}

/* A norm of `heads` heads, each of which the same weight belongs to. */
static Node *norm_heads(Builder *b, const GatedDecoder *d, Role role, const char *name,
                        Node *x, int64_t heads, int64_t width) {
    const bool unit = has(d, DECODER_UNIT_NORMS);
    const char *weight = arena_printf(b->model->arena, "%s.weight", name);
    Node *const in[4] = {
        x, build_param(b, weight, unit ? INIT_ZEROS : INIT_ONES, 1, &width)};
    return build_op(b, "rms_norm", role, in, "eps=%.17g heads=%lld unit_offset=%s",
                    d->eps, (long long)heads, unit ? "true" : "false");
}

static Node *norm(Builder *b, const GatedDecoder *d, Role role, const char *name,
                  Node *x) {
    return norm_heads(b, d, role, name, x, 1, d->width);
}

static Node *project(Builder *b, const GatedDecoder *d, Role role, const char *name,
                     Node *x, int64_t heads) {
    return build_linear(b, role, part(b, name), x, heads * d->head_width, d->qkv_bias);
}

static Node *norm_of_heads(Builder *b, const GatedDecoder *d, Role role, const char *name,
                           Node *x, int64_t heads) {
    if (!has(d, DECODER_HEAD_NORMS)) return x;
    return norm_heads(b, d, role, part(b, name), x, heads, d->head_width);
}

static Node *attend(Builder *b, const GatedDecoder *d, Node *x) {
    const int64_t groups = d->kv_heads == d->heads ? 0 : d->kv_heads;
    Node *q = project(b, d, ROLE_Q, "self_attn.q_proj", x, d->heads);
    Node *k = project(b, d, ROLE_K, "self_attn.k_proj", x, d->kv_heads);
    Node *v = project(b, d, ROLE_V, "self_attn.v_proj", x, d->kv_heads);
    q = norm_of_heads(b, d, ROLE_NORM_Q, "self_attn.q_norm", q, d->heads);
    k = norm_of_heads(b, d, ROLE_NORM_K, "self_attn.k_norm", k, d->kv_heads);
    q = rope_turn(b, &d->rope, ROLE_ROTARY_Q, q, d->heads);
    k = rope_turn(b, &d->rope, ROLE_ROTARY_K, k, d->kv_heads);
    Node *const in[4] = {q, k, v};
    x = build_op(b, "attention", ROLE_ATTENTION, in,
                 "heads=%lld kv_heads=%lld causal=true scale=%.17g reach=%lld cap=%.17g",
                 (long long)d->heads, (long long)groups, d->scale,
                 (long long)(d->near && d->near[b->layer] ? d->window : 0), d->cap);
    return build_linear(b, ROLE_OUT, part(b, "self_attn.o_proj"), x, d->width,
                        d->out_bias);
}

/* down(act(gate(x)) * up(x)) */
static Node *feed(Builder *b, const GatedDecoder *d, Node *x) {
    const bool bias = d->mlp_bias;
    Node *const gate[4] = {
        build_linear(b, ROLE_FFN_GATE, part(b, "mlp.gate_proj"), x, d->hidden, bias)};
    Node *const in[4] = {
        build_op(b, "activation", ROLE_NONE, gate, "fn=%s", d->act),
        build_linear(b, ROLE_FFN_IN, part(b, "mlp.up_proj"), x, d->hidden, bias)};
    x = build_op(b, "multiply", ROLE_FFN_ACT, in, NULL);
    return build_linear(b, ROLE_FFN_OUT, part(b, "mlp.down_proj"), x, d->width, bias);
}

static Node *decode_layer(Builder *b, const GatedDecoder *d, Node *x) {
    const bool around = has(d, DECODER_NORMS_AROUND);
    Node *y = attend(b, d, norm(b, d, ROLE_NORM1, part(b, "input_layernorm"), x));
    if (around) y = norm(b, d, ROLE_NORM_OUT1, part(b, "post_attention_layernorm"), y);
    x = build_add(b, ROLE_RESIDUAL1, x, build_dropout(b, d->dropout, y));
    const char *second =
        around ? "pre_feedforward_layernorm" : "post_attention_layernorm";
    y = feed(b, d, norm(b, d, ROLE_NORM2, part(b, second), x));
    if (around) y = norm(b, d, ROLE_NORM_OUT2, part(b, "post_feedforward_layernorm"), y);
    return build_add(b, ROLE_RESIDUAL2, x, build_dropout(b, d->dropout, y));
}

static Node *decode(Builder *b, const GatedDecoder *d, Node *x) {
    b->stack = STACK_DECODER;
    for (int i = 0; i < d->layers && b->status == STATUS_OK; i++) {
        b->layer = i;
        x = decode_layer(b, d, x);
    }
    b->layer = -1;
    x = norm(b, d, ROLE_FINAL_NORM, "norm", x);
    build_output(b, OUTPUT_STATES, x);
    return x;
}

/* ---- the model ---- */

Status gated_decoder_build(const DecoderKind *kind, Model *model, Diag *diag) {
    Builder b = {.model = model, .diag = diag, .layer = -1};
    GatedDecoder d = {.kind = kind};
    read_config(&b, &d);
    const char *class = build_config_architecture(&b, kind->classes);
    const bool plain = strcmp(class, kind->classes[0]) != 0;
    const bool tied = build_config_bool(&b, "tie_word_embeddings", kind->tied);
    b.prefix = plain ? "" : "model.";
    Node *x = decoder_embed(&b, "embed_tokens.weight", d.vocabulary, d.width);
    Node *words = b.status == STATUS_OK && tied ? x->in[1] : NULL;
    if (has(&d, DECODER_SCALED_WORDS))
        x = build_op(&b, "scale", ROLE_NONE, (Node *[4]){x}, "by=%.17g",
                     sqrt((double)d.width));
    x = decode(&b, &d, x);
    if (!plain) decoder_predict(&b, x, words, d.vocabulary, d.final_cap);
    return b.status;
}

const char *gated_decoder_rename(Arena *arena, const char *tensor) {
    (void)arena;
    return strstr(tensor, "rotary_emb.inv_freq") ? NULL : tensor;
}

#define SIZES                                                                            \
    {"num_hidden_layers", SIZE_LAYERS, STACK_DECODER, false},                            \
        {"num_attention_heads", SIZE_HEADS, STACK_DECODER, false},                       \
        {"head_dim", SIZE_HEAD_WIDTH, STACK_DECODER, false},                             \
        {"intermediate_size", SIZE_FFN, STACK_DECODER, false},                           \
        {"num_key_value_heads", SIZE_KV_HEADS, STACK_DECODER, false},                    \
        {"vocab_size", SIZE_VOCABULARY, STACK_EMBEDDINGS, false}, {                      \
        "embedding_size", SIZE_EMBEDDING, STACK_EMBEDDINGS, false                        \
    }

const SizeKey gated_decoder_sizes[] = {SIZES, {NULL}};
const SizeKey gated_decoder_window_sizes[] = {
    SIZES, {"layer_types", SIZE_REACH, STACK_DECODER, false}, {NULL}};
const char *const gated_decoder_follows[] = {"sliding_window", "partial_rotary_factor",
                                             NULL};
