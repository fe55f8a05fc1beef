/* Encoder-decoder transformer: see encoder_decoder.h. */
#include "io/families/encoder_decoder.h"

#include <math.h>
#include <string.h>

/* ---- configuration ---- */

static void read_side(Builder *b, const EncoderDecoder *m, CoderSide *side,
                      const char *name, int64_t vocabulary) {
    Arena *arena = b->model->arena;
    const char *heads = arena_printf(arena, "%s_attention_heads", name);
    *side = (CoderSide){
        .name = name,
        .layers = build_config_int(b, arena_printf(arena, "%s_layers", name), NULL, 1,
                                   BUILD_LAYERS_MAX),
        .heads = build_config_int(b, heads, NULL, 1, BUILD_WIDTH_MAX),
        .hidden = build_config_int(b, arena_printf(arena, "%s_ffn_dim", name), NULL, 1,
                                   BUILD_FFN_MAX),
        .vocabulary = vocabulary,
        .decoder = strcmp(name, STACK_DECODER) == 0,
    };
    build_config_heads(b, heads, side->heads, "d_model", m->width);
}

void encoder_decoder_read(Builder *b, EncoderDecoder *m) {
    const double std = 0.02;
    const int64_t words =
        build_config_int(b, "vocab_size", NULL, 1, SEQ2SEQ_VOCABULARY_MAX);
    *m = (EncoderDecoder){
        .width = build_config_int(b, "d_model", NULL, 1, BUILD_WIDTH_MAX),
        .act = build_config_activation(b, "activation_function", "gelu"),
        .eps = 1e-5,
        .place = NORM_POST,
        .shared = true,
        .scaled = build_config_bool(b, "scale_embedding", false),
        .dropout = build_config_dropout(b, "dropout", 0.1),
        .act_dropout = build_config_dropout(b, "activation_dropout", 0),
    };
    read_side(b, m, &m->encoder, STACK_ENCODER, words);
    read_side(b, m, &m->decoder, STACK_DECODER, words);
    build_config_attention_dropout(b, "attention_dropout");
    build_config_left_out(b, "encoder_layerdrop", "dropout of layers");
    build_config_left_out(b, "decoder_layerdrop", "dropout of layers");
    b->std = build_config_real(b, "init_std", &std, 0, 100);
}

/* ---- blocks ---- */

/* Storage name of a part of the current layer. */
static const char *part(Builder *b, const EncoderDecoder *m, const char *name) {
    return arena_printf(b->model->arena, "%s.layers.%d.%s", m->side->name, b->layer,
                        name);
}

static Node *project(Builder *b, const EncoderDecoder *m, Role role, const char *name,
                     Node *x, int64_t width) {
    return build_linear(b, role, part(b, m, name), x, width, true);
}

static Node *attend(Builder *b, const EncoderDecoder *m, Node *x) {
    const CoderSide *side = m->side;
    const int64_t width = m->width;
    Node *const in[4] = {project(b, m, ROLE_Q, "self_attn.q_proj", x, width),
                         project(b, m, ROLE_K, "self_attn.k_proj", x, width),
                         project(b, m, ROLE_V, "self_attn.v_proj", x, width), side->mask};
    x = build_op(b, "attention", ROLE_ATTENTION, in, "heads=%lld causal=%s",
                 (long long)side->heads, side->decoder ? "true" : "false");
    return project(b, m, ROLE_OUT, "self_attn.out_proj", x, width);
}

static Node *attend_source(Builder *b, const EncoderDecoder *m, Node *x) {
    Node *const memory = m->memory;
    const int64_t width = m->width;
    Node *const in[4] = {
        project(b, m, ROLE_CROSS_Q, "encoder_attn.q_proj", x, width),
        project(b, m, ROLE_CROSS_K, "encoder_attn.k_proj", memory, width),
        project(b, m, ROLE_CROSS_V, "encoder_attn.v_proj", memory, width),
        m->encoder.mask};
    x = build_op(b, "attention", ROLE_CROSS_ATTENTION, in, "heads=%lld",
                 (long long)m->side->heads);
    return project(b, m, ROLE_CROSS_OUT, "encoder_attn.out_proj", x, width);
}

static Node *feed_forward(Builder *b, const EncoderDecoder *m, Node *x) {
    x = project(b, m, ROLE_FFN_IN, "fc1", x, m->side->hidden);
    Node *const in[4] = {x};
    x = build_op(b, "activation", ROLE_FFN_ACT, in, "fn=%s", m->act);
    x = build_dropout(b, m->act_dropout, x);
    return project(b, m, ROLE_FFN_OUT, "fc2", x, m->width);
}

/* A residual block: what it computes, its norm and its sum. */
typedef struct ResidualBlock {
    Node *(*compute)(Builder *b, const EncoderDecoder *m, Node *x);
    const char *norm_name;
    Role norm, residual;
} ResidualBlock;

static const ResidualBlock SELF = {attend, "self_attn_layer_norm", ROLE_NORM1,
                                   ROLE_RESIDUAL1};
static const ResidualBlock CROSS = {attend_source, "encoder_attn_layer_norm",
                                    ROLE_NORM_CROSS, ROLE_RESIDUAL_CROSS};
static const ResidualBlock FEED = {feed_forward, "final_layer_norm", ROLE_NORM2,
                                   ROLE_RESIDUAL2};

static Node *add_block(Builder *b, const EncoderDecoder *m, const ResidualBlock *block,
                       Node *x) {
    const char *name = part(b, m, block->norm_name);
    const NormPlace place = m->place;
    Node *y = x;
    if (place == NORM_PRE) y = build_layer_norm(b, block->norm, name, y, m->eps);
    y = block->compute(b, m, y);
    if (place == NORM_BRANCH) y = build_layer_norm(b, block->norm, name, y, m->eps);
    x = build_add(b, block->residual, x, build_dropout(b, m->dropout, y));
    return place == NORM_POST ? build_layer_norm(b, block->norm, name, x, m->eps) : x;
}

/* ---- sides ---- */

/* Rows of a table of positions, of which the first BEFORE are none; or sines and cosines
 * that are computed. */
static Node *add_positions(Builder *b, const EncoderDecoder *m, Node *x) {
    enum { BEFORE = 2 };
    Node *in[4] = {x};
    if (m->positions == 0) return build_op(b, "add_sinusoid", ROLE_POSITION, in, NULL);
    in[1] = build_param(
        b, arena_printf(b->model->arena, "%s.embed_positions.weight", m->side->name),
        INIT_NORMAL, 2, (const int64_t[]){m->positions + BEFORE, m->width});
    return build_op(b, "add_position", ROLE_POSITION, in, "offset=%d", BEFORE);
}

static Node *embed(Builder *b, const EncoderDecoder *m) {
    const CoderSide *side = m->side;
    const char *table =
        m->shared ? "shared.weight"
                  : arena_printf(b->model->arena, "%s.embed_tokens.weight", side->name);
    b->stack = side->decoder ? STACK_DECODER_EMBEDDINGS : STACK_EMBEDDINGS;
    Node *x = seq2seq_embed(b, side->ids, table, side->vocabulary, m->width);
    Node *const in[4] = {x};
    if (m->scaled)
        x = build_op(b, "scale", ROLE_NONE, in, "by=%.17g", sqrt((double)m->width));
    x = add_positions(b, m, x);
    if (m->embedding_norm)
        x = build_layer_norm(
            b, ROLE_NORM0,
            arena_printf(b->model->arena, "%s.layernorm_embedding", side->name), x,
            m->eps);
    return build_dropout(b, m->dropout, x);
}

static Node *run_side(Builder *b, EncoderDecoder *m, const CoderSide *side) {
    m->side = side;
    Node *x = embed(b, m);
    b->stack = side->name;
    for (int i = 0; i < side->layers && b->status == STATUS_OK; i++) {
        b->layer = i;
        x = add_block(b, m, &SELF, x);
        if (side->decoder) x = add_block(b, m, &CROSS, x);
        x = add_block(b, m, &FEED, x);
    }
    b->layer = -1;
    const char *norm = arena_printf(b->model->arena, "%s.layer_norm", side->name);
    return m->final_norm ? build_layer_norm(b, ROLE_FINAL_NORM, norm, x, m->eps) : x;
}

/* Output `logits`: x times the decoder's table of embeddings when that is tied, else a
 * matrix of its own, plus a bias. */
static void predict(Builder *b, const EncoderDecoder *m, Node *x, bool tied) {
    const int64_t dim[] = {m->decoder.vocabulary, m->width};
    b->stack = STACK_HEAD;
    b->prefix = "";
    Node *table;
    if (tied && b->status == STATUS_OK)
        table =
            graph_find(b->model->graph, STACK_DECODER_EMBEDDINGS, -1, ROLE_EMBED)->in[1];
    else
        table = build_param(b, "lm_head.weight", INIT_TRUNC_NORMAL, 2, dim);
    Node *const in[4] = {x, table,
                         build_param(b, "final_logits_bias", INIT_ZEROS, 1, dim)};
    build_logits(b, TASK_TRANSLATE, build_op(b, "linear", ROLE_HEAD, in, NULL));
}

void encoder_decoder_build(Builder *b, EncoderDecoder *m, bool plain) {
    const bool tied = build_config_bool(b, "tie_word_embeddings", true);
    b->prefix = plain ? "" : "model.";
    seq2seq_inputs(b, &m->encoder.ids, &m->encoder.mask, &m->decoder.ids,
                   &m->decoder.mask);
    m->memory = run_side(b, m, &m->encoder);
    build_output(b, OUTPUT_ENCODER_STATES, m->memory);
    Node *x = run_side(b, m, &m->decoder);
    build_output(b, OUTPUT_STATES, x);
    if (!plain) predict(b, m, x, tied);
}

/* ---- names ---- */

bool encoder_decoder_spare(const char *tensor) {
    return strcmp(tensor, "lm_head.weight") == 0 ||
           strcmp(tensor, "final_logits_bias") == 0 ||
           strstr(tensor, ".embed_tokens.weight");
}

const char *const encoder_decoder_heads[] = {"lm_head.", "final_logits_bias", NULL};

const char *const encoder_decoder_rows[] = {"final_logits_bias", NULL};

const SizeKey encoder_decoder_sizes[] = {
    {"encoder_layers", SIZE_LAYERS, STACK_ENCODER, false},
    {"num_hidden_layers", SIZE_LAYERS, STACK_ENCODER, false},
    {"encoder_attention_heads", SIZE_HEADS, STACK_ENCODER, false},
    {"encoder_head_dim", SIZE_HEAD_WIDTH, STACK_ENCODER, false},
    {"encoder_ffn_dim", SIZE_FFN, STACK_ENCODER, false},
    {"decoder_layers", SIZE_LAYERS, STACK_DECODER, false},
    {"decoder_attention_heads", SIZE_HEADS, STACK_DECODER, false},
    {"decoder_head_dim", SIZE_HEAD_WIDTH, STACK_DECODER, false},
    {"decoder_ffn_dim", SIZE_FFN, STACK_DECODER, false},
    {"vocab_size", SIZE_VOCABULARY, STACK_EMBEDDINGS, false},
    {"embedding_size", SIZE_EMBEDDING, STACK_EMBEDDINGS, false},
    {NULL}};
