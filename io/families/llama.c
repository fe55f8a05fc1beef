/* Llama (Touvron et al., 2023): pre-norm decoder with RMS norms, rotary positions, heads
 * of keys and values that several heads of queries share, and a gated feed-forward block.
 *
 * Positions are angles, not rows of a table, so no length is refused; beyond
 * max_position_embeddings the model was not trained. */
#include "io/families/decoder.h"

#include <string.h>

typedef struct Llama {
    int64_t vocabulary, width, layers, heads, kv_heads, head_width, hidden;
    const char *act;
    double eps, theta;
    bool attention_bias, mlp_bias;
} Llama;

static const char *const CLASSES[] = {"LlamaForCausalLM", "LlamaModel", NULL};

/* ---- configuration ---- */

static const char *const DEFAULT_ROPE = "default";

/* Angles that grow with the length of the text are another op. `key` names a map. */
static void check_rope(Builder *b, const char *key) {
    const Tree *map = build_config_value(b, key);
    if (!map || b->status != STATUS_OK) return;
    const Tree *type = tree_get_nonnull(map, "rope_type");
    if (!type) type = tree_get_nonnull(map, "type");
    if (map->kind == TREE_MAP &&
        (!type || (type->kind == TREE_STRING && strcmp(type->string, DEFAULT_ROPE) == 0)))
        return;
    b->status = diag_fail(b->diag, STATUS_MODEL, map->loc, key,
                          "expected null or rope_type: default, the only kind there is");
    if (type && type->kind == TREE_STRING)
        diag_note(b->diag, "found '%.60s'", type->string);
}

/* The share of a head that is turned, which later versions put there, too. */
static void check_partial(Builder *b) {
    static const char KEY[] = "partial_rotary_factor";
    const Tree *map = build_config_value(b, "rope_parameters");
    const Tree *share = tree_get_nonnull(map, KEY);
    if (b->status != STATUS_OK || !share ||
        (share->kind == TREE_INT && share->integer == 1) ||
        (share->kind == TREE_FLOAT && share->real == 1))
        return;
    b->status = diag_fail(b->diag, STATUS_MODEL, share->loc,
                          "rope_parameters.partial_rotary_factor",
                          "expected 1: rotary positions turn whole heads");
}

/* rope_theta, which later versions of transformers put into rope_parameters. */
static double read_theta(Builder *b) {
    const double usual = 10000, most = 1e12;
    check_rope(b, "rope_scaling");
    check_rope(b, "rope_parameters");
    check_partial(b);
    const double theta = build_config_real(b, "rope_theta", &usual, 1, most);
    const Tree *map = build_config_value(b, "rope_parameters");
    const Tree *own = map && map->kind == TREE_MAP ? tree_get(map, "rope_theta") : NULL;
    if (!own || b->status != STATUS_OK) return theta;
    const double value = own->kind == TREE_INT ? (double)own->integer : own->real;
    if ((own->kind == TREE_INT || own->kind == TREE_FLOAT) && value >= 1 && value <= most)
        return value;
    b->status = diag_fail(b->diag, STATUS_MODEL, own->loc, "rope_parameters.rope_theta",
                          "expected a number from 1 to %g", most);
    return theta;
}

/* The heads: key/value heads divide them; a head's width is even for the rotation. */
static void read_heads(Builder *b, Llama *llama) {
    llama->heads = build_config_int(b, "num_attention_heads", NULL, 1, BUILD_WIDTH_MAX);
    llama->kv_heads =
        build_config_int(b, "num_key_value_heads", &llama->heads, 1, BUILD_WIDTH_MAX);
    if (!build_config_value(b, "head_dim"))
        build_config_heads(b, "num_attention_heads", llama->heads, "hidden_size",
                           llama->width);
    const int64_t width = llama->width / llama->heads;
    llama->head_width =
        build_config_int(b, "head_dim", &width, 1, BUILD_WIDTH_MAX / llama->heads);
    build_config_heads(b, "num_key_value_heads", llama->kv_heads, "num_attention_heads",
                       llama->heads);
    if (b->status == STATUS_OK && llama->head_width % 2)
        b->status = diag_fail(b->diag, STATUS_MODEL, b->model->config->loc,
                              build_config_value(b, "head_dim") ? "head_dim"
                                                                : "num_attention_heads",
                              "expected heads of an even width, which rotary positions "
                              "turn by pairs, found %lld",
                              (long long)llama->head_width);
}

static void read_config(Builder *b, Llama *llama) {
    const double std = 0.02, eps = 1e-6;
    const int64_t positions = 2048;
    *llama = (Llama){
        .vocabulary = build_config_int(b, "vocab_size", NULL, 1, DECODER_VOCABULARY_MAX),
        .width = build_config_int(b, "hidden_size", NULL, 1, BUILD_WIDTH_MAX),
        .layers = build_config_int(b, "num_hidden_layers", NULL, 1, BUILD_LAYERS_MAX),
        .hidden = build_config_int(b, "intermediate_size", NULL, 1, BUILD_FFN_MAX),
        .act = build_config_activation(b, "hidden_act", "silu"),
        .eps = build_config_real(b, "rms_norm_eps", &eps, 0, 1),
        .theta = read_theta(b),
        .attention_bias = build_config_bool(b, "attention_bias", false),
        .mlp_bias = build_config_bool(b, "mlp_bias", false),
    };
    build_config_int(b, "max_position_embeddings", &positions, 1, DECODER_POSITIONS_MAX);
    b->std = build_config_real(b, "initializer_range", &std, 0, 100);
    build_config_attention_dropout(b, "attention_dropout");
    read_heads(b, llama);
}

/* ---- layers ---- */

static Node *norm(Builder *b, const Llama *llama, Role role, const char *name, Node *x) {
    const char *weight = arena_printf(b->model->arena, "%s.weight", name);
    Node *const in[4] = {x, build_param(b, weight, INIT_ONES, 1, &llama->width)};
    return build_op(b, "rms_norm", role, in, "eps=%.17g", llama->eps);
}

static const char *part(Builder *b, const char *name) {
    return decoder_part(b, "layers", name);
}

static Node *project(Builder *b, const Llama *llama, Role role, const char *name, Node *x,
                     int64_t out) {
    return build_linear(b, role, part(b, name), x, out, llama->attention_bias);
}

static Node *turn(Builder *b, const Llama *llama, Role role, Node *x, int64_t heads) {
    Node *const in[4] = {x};
    return build_op(b, "rotary", role, in, "heads=%lld theta=%.17g", (long long)heads,
                    llama->theta);
}

static Node *attend(Builder *b, const Llama *llama, Node *x) {
    const int64_t wide = llama->heads * llama->head_width;
    const int64_t narrow = llama->kv_heads * llama->head_width;
    Node *q = project(b, llama, ROLE_Q, "self_attn.q_proj", x, wide);
    Node *k = project(b, llama, ROLE_K, "self_attn.k_proj", x, narrow);
    Node *v = project(b, llama, ROLE_V, "self_attn.v_proj", x, narrow);
    q = turn(b, llama, ROLE_ROTARY_Q, q, llama->heads);
    k = turn(b, llama, ROLE_ROTARY_K, k, llama->kv_heads);
    Node *const in[4] = {q, k, v};
    if (llama->kv_heads == llama->heads)
        x = build_op(b, "attention", ROLE_ATTENTION, in, "heads=%lld causal=true",
                     (long long)llama->heads);
    else
        x = build_op(b, "attention", ROLE_ATTENTION, in,
                     "heads=%lld kv_heads=%lld causal=true", (long long)llama->heads,
                     (long long)llama->kv_heads);
    return project(b, llama, ROLE_OUT, "self_attn.o_proj", x, llama->width);
}

static Node *decode_layer(Builder *b, const Llama *llama, Node *x) {
    const bool bias = llama->mlp_bias;
    Node *y = norm(b, llama, ROLE_NORM1, part(b, "input_layernorm"), x);
    x = build_add(b, ROLE_RESIDUAL1, x, attend(b, llama, y));
    y = norm(b, llama, ROLE_NORM2, part(b, "post_attention_layernorm"), x);
    /* down(act(gate(y)) * up(y)) */
    Node *const gate[4] = {
        build_linear(b, ROLE_FFN_GATE, part(b, "mlp.gate_proj"), y, llama->hidden, bias)};
    Node *const in[4] = {
        build_op(b, "activation", ROLE_NONE, gate, "fn=%s", llama->act),
        build_linear(b, ROLE_FFN_IN, part(b, "mlp.up_proj"), y, llama->hidden, bias)};
    y = build_op(b, "multiply", ROLE_FFN_ACT, in, NULL);
    y = build_linear(b, ROLE_FFN_OUT, part(b, "mlp.down_proj"), y, llama->width, bias);
    return build_add(b, ROLE_RESIDUAL2, x, y);
}

static Node *decode(Builder *b, const Llama *llama, Node *x) {
    b->stack = STACK_DECODER;
    for (int i = 0; i < llama->layers && b->status == STATUS_OK; i++) {
        b->layer = i;
        x = decode_layer(b, llama, x);
    }
    b->layer = -1;
    x = norm(b, llama, ROLE_FINAL_NORM, "norm", x);
    build_output(b, OUTPUT_STATES, x);
    return x;
}

static Status build(Model *model, Diag *diag) {
    Builder b = {.model = model, .diag = diag, .layer = -1};
    Llama llama;
    read_config(&b, &llama);
    const bool plain = strcmp(build_config_architecture(&b, CLASSES), "LlamaModel") == 0;
    const bool tied = build_config_bool(&b, "tie_word_embeddings", false);
    b.prefix = plain ? "" : "model.";
    Node *x = decoder_embed(&b, "embed_tokens.weight", llama.vocabulary, llama.width);
    Node *words = b.status == STATUS_OK && tied ? x->in[1] : NULL;
    x = decode(&b, &llama, x);
    if (!plain) decoder_predict(&b, x, words, llama.vocabulary);
    return b.status;
}

/* Early checkpoints hold the angles. */
static const char *rename_tensor(Arena *arena, const char *tensor) {
    (void)arena;
    return strstr(tensor, "rotary_emb.inv_freq") ? NULL : tensor;
}

static const SizeKey SIZES[] = {
    {"num_hidden_layers", SIZE_LAYERS, STACK_DECODER, false},
    {"num_attention_heads", SIZE_HEADS, STACK_DECODER, false},
    {"head_dim", SIZE_HEAD_WIDTH, STACK_DECODER, false},
    {"intermediate_size", SIZE_FFN, STACK_DECODER, false},
    {"num_key_value_heads", SIZE_KV_HEADS, STACK_DECODER, false},
    {"vocab_size", SIZE_VOCABULARY, STACK_EMBEDDINGS, false},
    {"embedding_size", SIZE_EMBEDDING, STACK_EMBEDDINGS, false},
    {NULL}};

const Family family_llama = {.model_type = "llama",
                             .summary = "Llama: language model with rotary positions",
                             .classes = CLASSES,
                             .build = build,
                             .sizes = SIZES,
                             .rename = rename_tensor,
                             .prefix = "model.",
                             .spare = decoder_spare,
                             .heads = decoder_heads};
