/* Marian (Junczys-Dowmunt et al., 2018): the encoder-decoder transformer (Vaswani et al.,
 * 2017) of the OPUS-MT translation models, with positions that are computed.
 *
 * Norms stand after the residual sums; a configuration may ask for them before the blocks
 * or on the branches. See seq2seq.h for inputs and outputs. */
#include "io/families/seq2seq.h"

#include <math.h>
#include <string.h>

typedef enum NormPlace { NORM_POST, NORM_PRE, NORM_BRANCH } NormPlace;

/* Encoder or decoder. */
typedef struct MarianSide {
    const char *name; /* stack, and part of the storages' names */
    int64_t layers, heads, hidden, vocabulary;
    Node *ids, *mask;
    bool decoder;
} MarianSide;

typedef struct Marian {
    int64_t width;
    const char *act;
    double eps, dropout, act_dropout;
    NormPlace place;
    bool shared, scaled, embedding_norm, final_norm;
    MarianSide encoder, decoder;
    const MarianSide *side; /* that which is being built */
    Node *memory;           /* what the encoder hands to the decoder */
} Marian;

static const char *const CLASSES[] = {"MarianMTModel", "MarianModel", NULL};

/* ---- configuration ---- */

static NormPlace read_place(Builder *b) {
    static const char *const NAMES[] = {
        [NORM_POST] = "post", [NORM_PRE] = "pre", [NORM_BRANCH] = "branch"};
    const bool before = build_config_bool(b, "normalize_before", false);
    const NormPlace usual = before ? NORM_PRE : NORM_POST;
    const char *name = build_config_string(b, "norm", NAMES[usual]);
    for (int i = 0; i < 3; i++)
        if (strcmp(name, NAMES[i]) == 0) return (NormPlace)i;
    if (b->status == STATUS_OK)
        b->status = diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, "norm"), "norm",
                              "expected pre, post or branch, found '%.60s'", name);
    return usual;
}

static void read_side(Builder *b, const Marian *marian, MarianSide *side,
                      const char *name) {
    Arena *arena = b->model->arena;
    const char *heads = arena_printf(arena, "%s_attention_heads", name);
    *side = (MarianSide){
        .name = name,
        .layers = build_config_int(b, arena_printf(arena, "%s_layers", name), NULL, 1,
                                   BUILD_LAYERS_MAX),
        .heads = build_config_int(b, heads, NULL, 1, BUILD_WIDTH_MAX),
        .hidden = build_config_int(b, arena_printf(arena, "%s_ffn_dim", name), NULL, 1,
                                   BUILD_FFN_MAX),
    };
    build_config_heads(b, heads, side->heads, "d_model", marian->width);
}

/* Both vocabularies, which one table serves when they are shared. */
static void read_vocabularies(Builder *b, Marian *marian) {
    const int64_t source =
        build_config_int(b, "vocab_size", NULL, 1, SEQ2SEQ_VOCABULARY_MAX);
    const int64_t target =
        build_config_int(b, "decoder_vocab_size", &source, 1, SEQ2SEQ_VOCABULARY_MAX);
    marian->encoder.vocabulary = source;
    marian->decoder.vocabulary = target;
    marian->shared = build_config_bool(b, "share_encoder_decoder_embeddings", true);
    if (b->status == STATUS_OK && marian->shared && source != target)
        b->status =
            diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, "decoder_vocab_size"),
                      "decoder_vocab_size",
                      "expected vocab_size %lld, as the embeddings are shared "
                      "(share_encoder_decoder_embeddings), found %lld",
                      (long long)source, (long long)target);
}

static void read_config(Builder *b, Marian *marian) {
    const double std = 0.02, eps = 1e-5;
    const int64_t positions = 1024;
    *marian = (Marian){
        .width = build_config_int(b, "d_model", NULL, 1, BUILD_WIDTH_MAX),
        .act = build_config_activation(b, "activation_function", "gelu"),
        .eps = build_config_real(b, "layer_norm_eps", &eps, 0, 1),
        .place = read_place(b),
        .scaled = build_config_bool(b, "scale_embedding", false),
        .embedding_norm = build_config_bool(b, "normalize_embedding", false),
    };
    marian->final_norm =
        build_config_bool(b, "add_final_layer_norm", marian->place != NORM_POST);
    read_side(b, marian, &marian->encoder, "encoder");
    read_side(b, marian, &marian->decoder, "decoder");
    marian->decoder.decoder = true;
    read_vocabularies(b, marian);
    marian->dropout = build_config_dropout(b, "dropout", 0.1);
    marian->act_dropout = build_config_dropout(b, "activation_dropout", 0);
    build_config_attention_dropout(b, "attention_dropout");
    build_config_left_out(b, "encoder_layerdrop", "dropout of layers");
    build_config_left_out(b, "decoder_layerdrop", "dropout of layers");
    build_config_int(b, "max_position_embeddings", &positions, 1, 1 << 24);
    build_config_require(b, "static_position_embeddings", true, true);
    b->std = build_config_real(b, "init_std", &std, 0, 100);
    if (b->status == STATUS_OK && marian->width % 2)
        b->status =
            diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, "d_model"), "d_model",
                      "expected an even width, half sines and half cosines of "
                      "the positions, found %lld",
                      (long long)marian->width);
}

/* ---- blocks ---- */

/* Storage name of a part of the current layer. */
static const char *part(Builder *b, const Marian *marian, const char *name) {
    return arena_printf(b->model->arena, "%s.layers.%d.%s", marian->side->name, b->layer,
                        name);
}

static Node *project(Builder *b, const Marian *marian, Role role, const char *name,
                     Node *x, int64_t width) {
    return build_linear(b, role, part(b, marian, name), x, width, true);
}

static Node *attend(Builder *b, const Marian *marian, Node *x) {
    const MarianSide *side = marian->side;
    const int64_t width = marian->width;
    Node *const in[4] = {project(b, marian, ROLE_Q, "self_attn.q_proj", x, width),
                         project(b, marian, ROLE_K, "self_attn.k_proj", x, width),
                         project(b, marian, ROLE_V, "self_attn.v_proj", x, width),
                         side->mask};
    x = build_op(b, "attention", ROLE_ATTENTION, in, "heads=%lld causal=%s",
                 (long long)side->heads, side->decoder ? "true" : "false");
    return project(b, marian, ROLE_OUT, "self_attn.out_proj", x, width);
}

static Node *attend_source(Builder *b, const Marian *marian, Node *x) {
    Node *const memory = marian->memory;
    const int64_t width = marian->width;
    Node *const in[4] = {
        project(b, marian, ROLE_CROSS_Q, "encoder_attn.q_proj", x, width),
        project(b, marian, ROLE_CROSS_K, "encoder_attn.k_proj", memory, width),
        project(b, marian, ROLE_CROSS_V, "encoder_attn.v_proj", memory, width),
        marian->encoder.mask};
    x = build_op(b, "attention", ROLE_CROSS_ATTENTION, in, "heads=%lld",
                 (long long)marian->side->heads);
    return project(b, marian, ROLE_CROSS_OUT, "encoder_attn.out_proj", x, width);
}

static Node *feed_forward(Builder *b, const Marian *marian, Node *x) {
    x = project(b, marian, ROLE_FFN_IN, "fc1", x, marian->side->hidden);
    Node *const in[4] = {x};
    x = build_op(b, "activation", ROLE_FFN_ACT, in, "fn=%s", marian->act);
    x = build_dropout(b, marian->act_dropout, x);
    return project(b, marian, ROLE_FFN_OUT, "fc2", x, marian->width);
}

/* A residual block: what it computes, its norm and its sum. */
typedef struct ResidualBlock {
    Node *(*compute)(Builder *b, const Marian *marian, Node *x);
    const char *norm_name;
    Role norm, residual;
} ResidualBlock;

static const ResidualBlock SELF = {attend, "self_attn_layer_norm", ROLE_NORM1,
                                   ROLE_RESIDUAL1};
static const ResidualBlock CROSS = {attend_source, "encoder_attn_layer_norm",
                                    ROLE_NORM_CROSS, ROLE_RESIDUAL_CROSS};
static const ResidualBlock FEED = {feed_forward, "final_layer_norm", ROLE_NORM2,
                                   ROLE_RESIDUAL2};

static Node *add_block(Builder *b, const Marian *marian, const ResidualBlock *block,
                       Node *x) {
    const char *name = part(b, marian, block->norm_name);
    const NormPlace place = marian->place;
    Node *y = x;
    if (place == NORM_PRE) y = build_layer_norm(b, block->norm, name, y, marian->eps);
    y = block->compute(b, marian, y);
    if (place == NORM_BRANCH) y = build_layer_norm(b, block->norm, name, y, marian->eps);
    x = build_add(b, block->residual, x, build_dropout(b, marian->dropout, y));
    return place == NORM_POST ? build_layer_norm(b, block->norm, name, x, marian->eps)
                              : x;
}

/* ---- sides ---- */

static Node *embed(Builder *b, const Marian *marian) {
    const MarianSide *side = marian->side;
    const char *table =
        marian->shared
            ? "shared.weight"
            : arena_printf(b->model->arena, "%s.embed_tokens.weight", side->name);
    b->stack = side->decoder ? STACK_DECODER_EMBEDDINGS : STACK_EMBEDDINGS;
    Node *x = seq2seq_embed(b, side->ids, table, side->vocabulary, marian->width);
    Node *const in[4] = {x};
    if (marian->scaled)
        x = build_op(b, "scale", ROLE_NONE, in, "by=%.17g", sqrt((double)marian->width));
    Node *const position[4] = {x};
    x = build_op(b, "add_sinusoid", ROLE_POSITION, position, NULL);
    if (marian->embedding_norm)
        x = build_layer_norm(
            b, ROLE_NORM0,
            arena_printf(b->model->arena, "%s.layernorm_embedding", side->name), x,
            marian->eps);
    return build_dropout(b, marian->dropout, x);
}

static Node *run_side(Builder *b, Marian *marian, const MarianSide *side) {
    marian->side = side;
    Node *x = embed(b, marian);
    b->stack = side->name;
    for (int i = 0; i < side->layers && b->status == STATUS_OK; i++) {
        b->layer = i;
        x = add_block(b, marian, &SELF, x);
        if (side->decoder) x = add_block(b, marian, &CROSS, x);
        x = add_block(b, marian, &FEED, x);
    }
    b->layer = -1;
    const char *norm = arena_printf(b->model->arena, "%s.layer_norm", side->name);
    return marian->final_norm ? build_layer_norm(b, ROLE_FINAL_NORM, norm, x, marian->eps)
                              : x;
}

/* Output `logits`: x times the decoder's table of embeddings when that is tied, else a
 * matrix of its own, plus a bias. */
static void predict(Builder *b, const Marian *marian, Node *x, bool tied) {
    const int64_t dim[] = {marian->decoder.vocabulary, marian->width};
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

static Status build(Model *model, Diag *diag) {
    Builder b = {.model = model, .diag = diag, .layer = -1};
    Marian marian;
    read_config(&b, &marian);
    const bool plain = strcmp(build_config_architecture(&b, CLASSES), "MarianModel") == 0;
    const bool tied = build_config_bool(&b, "tie_word_embeddings", true);
    b.prefix = plain ? "" : "model.";
    seq2seq_inputs(&b, &marian.encoder.ids, &marian.encoder.mask, &marian.decoder.ids,
                   &marian.decoder.mask);
    marian.memory = run_side(&b, &marian, &marian.encoder);
    build_output(&b, OUTPUT_ENCODER_STATES, marian.memory);
    Node *x = run_side(&b, &marian, &marian.decoder);
    build_output(&b, OUTPUT_STATES, x);
    if (!plain) predict(&b, &marian, x, tied);
    return b.status;
}

/* ---- names ---- */

/* Early checkpoints hold the tables of positions. */
static const char *rename_tensor(Arena *arena, const char *tensor) {
    (void)arena;
    return strstr(tensor, ".embed_positions.") ? NULL : tensor;
}

/* Copies of the shared table, and the head that is the table. */
static bool spare(const char *tensor) {
    return strcmp(tensor, "lm_head.weight") == 0 ||
           strcmp(tensor, "final_logits_bias") == 0 ||
           strstr(tensor, ".embed_tokens.weight");
}

static const char *const HEADS[] = {"lm_head.", "final_logits_bias", NULL};

static const char *const ROWS[] = {"final_logits_bias", NULL};

/* In transformers norms stand after the sums, and nowhere else. */
static const OwnKey OWN_KEYS[] = {{"normalize_before", "false"},
                                  {"norm", "\"post\""},
                                  {"add_final_layer_norm", "false"},
                                  {"normalize_embedding", "false"},
                                  {NULL, NULL}};

static const SizeKey SIZES[] = {
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

const Family family_marian = {.model_type = "marian",
                              .summary = "Marian: encoder-decoder for translation",
                              .classes = CLASSES,
                              .build = build,
                              .sizes = SIZES,
                              .rename = rename_tensor,
                              .own_keys = OWN_KEYS,
                              .rows = ROWS,
                              .prefix = "model.",
                              .spare = spare,
                              .heads = HEADS};
