/* T5 (Raffel et al., 2020) and mT5 (Xue et al., 2021): the encoder-decoder transformer
 * with RMS norms before its blocks, no biases, scores that are not scaled, and positions
 * that are biases of the scores by bucket of the distance: one table for all layers of a
 * stack, which checkpoints keep in its first.
 *
 * Positions are distances, so no length is refused. The encoder alone has the inputs of a
 * text encoder. See seq2seq.h for inputs and outputs. */
#include "io/families/seq2seq.h"

#include <math.h>
#include <string.h>

/* Encoder or decoder. */
typedef struct T5Side {
    const char *name; /* stack, and beginning of the storages' names */
    int64_t layers;
    Node *ids, *mask;
    bool decoder;
} T5Side;

typedef struct T5 {
    int64_t vocabulary, width, heads, head_width, hidden, buckets, distance;
    const char *act;
    double eps, dropout, factor;
    bool gated;
    T5Side encoder, decoder;
    const T5Side *side; /* that which is being built */
    Node *memory;       /* what the encoder hands to the decoder */
} T5;

/* Classes by what they are of. */
enum { CLASS_WHOLE, CLASS_PLAIN, CLASS_ENCODER };

static const char *const CLASSES[] = {"T5ForConditionalGeneration", "T5Model",
                                      "T5EncoderModel", NULL};
static const char *const MT5_CLASSES[] = {"MT5ForConditionalGeneration", "MT5Model",
                                          "MT5EncoderModel", NULL};

/* ---- configuration ---- */

/* "relu", "gated-gelu": the function, and whether a second projection is multiplied by
 * what it gives. "gated-gelu" is the approximation by tanh; later versions of
 * transformers write function and gate beside it. */
static void read_feed_forward(Builder *b, T5 *t5, const char *usual) {
    static const char KEY[] = "feed_forward_proj", GATED[] = "gated-";
    const char *name = build_config_string(b, KEY, usual);
    const size_t skip = strncmp(name, GATED, sizeof GATED - 1) ? 0 : sizeof GATED - 1;
    const bool approximate = strcmp(name, "gated-gelu") == 0;
    t5->act = build_activation(b, KEY, approximate ? "gelu_new" : name + skip);
    t5->gated = build_config_bool(b, "is_gated_act", skip > 0);
    if (build_config_value(b, "dense_act_fn"))
        t5->act = build_config_activation(b, "dense_act_fn", NULL);
}

static void read_buckets(Builder *b, T5 *t5) {
    static const char COUNT[] = "relative_attention_num_buckets",
                      FAR[] = "relative_attention_max_distance";
    const int64_t count = 32, distance = 128, most = 65536;
    t5->buckets = build_config_int(b, COUNT, &count, 4, most);
    t5->distance = build_config_int(b, FAR, &distance, 2, most);
    if (b->status == STATUS_OK && t5->distance <= t5->buckets / 2)
        b->status = diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, FAR), FAR,
                              "expected more than half of the %lld buckets, found %lld",
                              (long long)t5->buckets, (long long)t5->distance);
}

static void read_config(Builder *b, T5 *t5, const char *feed_forward) {
    const double eps = 1e-6, factor = 1;
    const int64_t head_width = 64, positions = 512;
    *t5 = (T5){
        .vocabulary = build_config_int(b, "vocab_size", NULL, 1, SEQ2SEQ_VOCABULARY_MAX),
        .width = build_config_int(b, "d_model", NULL, 1, BUILD_WIDTH_MAX),
        .heads = build_config_int(b, "num_heads", NULL, 1, BUILD_WIDTH_MAX),
        .hidden = build_config_int(b, "d_ff", NULL, 1, BUILD_FFN_MAX),
        .eps = build_config_real(b, "layer_norm_epsilon", &eps, 0, 1),
        .dropout = build_config_dropout(b, "dropout_rate", 0.1),
        .factor = build_config_real(b, "initializer_factor", &factor, 0, 100),
        .encoder = {.name = STACK_ENCODER},
        .decoder = {.name = STACK_DECODER, .decoder = true},
    };
    t5->head_width =
        build_config_int(b, "d_kv", &head_width, 1, BUILD_WIDTH_MAX / t5->heads);
    const int64_t layers = build_config_int(b, "num_layers", NULL, 1, BUILD_LAYERS_MAX);
    t5->encoder.layers = layers;
    t5->decoder.layers =
        build_config_int(b, "num_decoder_layers", &layers, 1, BUILD_LAYERS_MAX);
    read_feed_forward(b, t5, feed_forward);
    read_buckets(b, t5);
    build_config_attention_dropout(b, "dropout_rate");
    build_config_require(b, "is_decoder", false, false);
    build_config_int(b, "n_positions", &positions, 1, 1 << 24); /* of its training */
}

/* ---- blocks ---- */

/* Storage name of a part of block `place` of the current layer. */
static const char *part(Builder *b, const T5 *t5, int place, const char *name) {
    return arena_printf(b->model->arena, "%s.block.%d.layer.%d.%s", t5->side->name,
                        b->layer, place, name);
}

/* A projection; new weights spread like `fan` inputs, without the scores' scale in the
 * queries. */
static Node *project(Builder *b, const T5 *t5, Role role, const char *name, Node *x,
                     int64_t width, int64_t fan) {
    b->std = t5->factor / sqrt((double)fan);
    return build_linear(b, role, name, x, width, false);
}

static Node *norm(Builder *b, const T5 *t5, Role role, const char *name, Node *x) {
    const char *weight = arena_printf(b->model->arena, "%s.weight", name);
    Node *const in[4] = {x, build_param(b, weight, INIT_ONES, 1, &t5->width)};
    return build_op(b, "rms_norm", role, in, "eps=%.17g", t5->eps);
}

/* The attention of a layer to itself, or with other roles to the encoder. */
typedef struct T5Attention {
    const char *name;
    Role q, k, v, attention, out;
} T5Attention;

static const T5Attention SELF = {"SelfAttention", ROLE_Q,         ROLE_K,
                                 ROLE_V,          ROLE_ATTENTION, ROLE_OUT};
static const T5Attention CROSS = {"EncDecAttention",    ROLE_CROSS_Q,
                                  ROLE_CROSS_K,         ROLE_CROSS_V,
                                  ROLE_CROSS_ATTENTION, ROLE_CROSS_OUT};

/* The stack's table of biases by distance. */
static Node *distance_table(Builder *b, const T5 *t5) {
    const int64_t table[] = {t5->buckets, t5->heads};
    const char *name =
        arena_printf(b->model->arena,
                     "%s.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
                     t5->side->name);
    b->std = t5->factor / sqrt((double)t5->width);
    return build_param(b, name, INIT_NORMAL, 2, table);
}

static Node *attend(Builder *b, const T5 *t5, const T5Attention *kind, Node *x,
                    Node *memory, Node *mask) {
    const int64_t width = t5->width, wide = t5->heads * t5->head_width;
    const bool own = kind == &SELF;
    const char *name = part(b, t5, own ? 0 : 1, kind->name);
    Arena *arena = b->model->arena;
    Node *const in[4] = {
        project(b, t5, kind->q, arena_printf(arena, "%s.q", name), x, wide,
                width * t5->head_width),
        project(b, t5, kind->k, arena_printf(arena, "%s.k", name), memory, wide, width),
        project(b, t5, kind->v, arena_printf(arena, "%s.v", name), memory, wide, width),
        mask};
    if (!own) {
        x = build_op(b, "attention", kind->attention, in, "heads=%lld scale=1",
                     (long long)t5->heads);
    } else {
        const char *causal = t5->side->decoder ? "causal=true" : "bidirectional=true";
        x = build_op(b, "attention", kind->attention, in,
                     "heads=%lld scale=1 buckets=%lld distance=%lld %s",
                     (long long)t5->heads, (long long)t5->buckets,
                     (long long)t5->distance, causal);
        build_operand(b, x, "rel_bias", distance_table(b, t5));
    }
    return project(b, t5, kind->out, arena_printf(arena, "%s.o", name), x, width, wide);
}

static Node *feed_forward(Builder *b, const T5 *t5, int place, Node *x) {
    const char *name = part(b, t5, place, "DenseReluDense");
    Arena *arena = b->model->arena;
    const int64_t width = t5->width, hidden = t5->hidden;
    const char *first = arena_printf(arena, "%s.%s", name, t5->gated ? "wi_0" : "wi");
    Node *y =
        project(b, t5, t5->gated ? ROLE_FFN_GATE : ROLE_FFN_IN, first, x, hidden, width);
    y = build_op(b, "activation", t5->gated ? ROLE_NONE : ROLE_FFN_ACT, (Node *[4]){y},
                 "fn=%s", t5->act);
    if (t5->gated) {
        Node *const in[4] = {y, project(b, t5, ROLE_FFN_IN,
                                        arena_printf(arena, "%s.wi_1", name), x, hidden,
                                        width)};
        y = build_op(b, "multiply", ROLE_FFN_ACT, in, NULL);
    }
    y = build_dropout(b, t5->dropout, y);
    return project(b, t5, ROLE_FFN_OUT, arena_printf(arena, "%s.wo", name), y, width,
                   hidden);
}

/* ---- stacks ---- */

static Node *run_layer(Builder *b, const T5 *t5, Node *x) {
    const T5Side *side = t5->side;
    int place = 0;
    Node *y = norm(b, t5, ROLE_NORM1, part(b, t5, place, "layer_norm"), x);
    y = attend(b, t5, &SELF, y, y, side->mask);
    x = build_add(b, ROLE_RESIDUAL1, x, build_dropout(b, t5->dropout, y));
    if (side->decoder) {
        y = norm(b, t5, ROLE_NORM_CROSS, part(b, t5, ++place, "layer_norm"), x);
        y = attend(b, t5, &CROSS, y, t5->memory, t5->encoder.mask);
        x = build_add(b, ROLE_RESIDUAL_CROSS, x, build_dropout(b, t5->dropout, y));
    }
    y = norm(b, t5, ROLE_NORM2, part(b, t5, ++place, "layer_norm"), x);
    y = feed_forward(b, t5, place, y);
    return build_add(b, ROLE_RESIDUAL2, x, build_dropout(b, t5->dropout, y));
}

static Node *run_side(Builder *b, T5 *t5, const T5Side *side) {
    t5->side = side;
    b->stack = side->decoder ? STACK_DECODER_EMBEDDINGS : STACK_EMBEDDINGS;
    b->std = t5->factor;
    Node *x = seq2seq_embed(b, side->ids, "shared.weight", t5->vocabulary, t5->width);
    x = build_dropout(b, t5->dropout, x);
    b->stack = side->name;
    for (int i = 0; i < side->layers && b->status == STATUS_OK; i++) {
        b->layer = i;
        x = run_layer(b, t5, x);
    }
    b->layer = -1;
    const char *name = arena_printf(b->model->arena, "%s.final_layer_norm", side->name);
    return build_dropout(b, t5->dropout, norm(b, t5, ROLE_FINAL_NORM, name, x));
}

/* Output `logits`: x times the table of embeddings, with x scaled down, or a matrix of
 * its own. */
static void predict(Builder *b, const T5 *t5, Node *x, bool tied) {
    const int64_t dim[] = {t5->vocabulary, t5->width};
    /* later versions of transformers write it; earlier ones scale where tables are tied
     */
    const bool scaled = build_config_bool(b, "scale_decoder_outputs", tied);
    b->stack = STACK_HEAD;
    b->std = t5->factor;
    if (scaled)
        x = build_op(b, "scale", ROLE_NONE, (Node *[4]){x}, "by=%.17g",
                     1 / sqrt((double)t5->width));
    Node *const in[4] = {x, build_param(b, tied ? "shared.weight" : "lm_head.weight",
                                        INIT_NORMAL, 2, dim)};
    build_logits(b, TASK_TRANSLATE, build_op(b, "linear", ROLE_HEAD, in, NULL));
}

static Status build_t5(Model *model, const char *const *classes,
                       const char *feed_forward_proj, bool usually_tied, Diag *diag) {
    Builder b = {.model = model, .diag = diag, .layer = -1, .prefix = ""};
    T5 t5;
    read_config(&b, &t5, feed_forward_proj);
    const char *class = build_config_architecture(&b, classes);
    const bool tied = build_config_bool(&b, "tie_word_embeddings", usually_tied);
    if (class == classes[CLASS_ENCODER]) {
        const int64_t tokens[] = {DIM_N, DIM_T};
        t5.encoder.ids = build_input(&b, INPUT_IDS, DTYPE_I32, 2, tokens);
        t5.encoder.mask = build_input(&b, INPUT_MASK, DTYPE_I32, 2, tokens);
        build_output(&b, OUTPUT_STATES, run_side(&b, &t5, &t5.encoder));
        return b.status;
    }
    seq2seq_inputs(&b, &t5.encoder.ids, &t5.encoder.mask, &t5.decoder.ids,
                   &t5.decoder.mask);
    t5.memory = run_side(&b, &t5, &t5.encoder);
    build_output(&b, OUTPUT_ENCODER_STATES, t5.memory);
    Node *x = run_side(&b, &t5, &t5.decoder);
    build_output(&b, OUTPUT_STATES, x);
    if (class == classes[CLASS_WHOLE]) predict(&b, &t5, x, tied);
    return b.status;
}

static Status build(Model *model, Diag *diag) {
    return build_t5(model, CLASSES, "relu", true, diag);
}

static Status build_mt5(Model *model, Diag *diag) {
    return build_t5(model, MT5_CLASSES, "gated-gelu", false, diag);
}

/* ---- names ---- */

/* Early checkpoints hold a table for attention to the encoder, which has no biases. */
static const char *rename_tensor(Arena *arena, const char *tensor) {
    (void)arena;
    return strstr(tensor, ".EncDecAttention.relative_attention_bias.") ? NULL : tensor;
}

/* Copies of the shared table, and the head that is the table. */
static bool spare(const char *tensor) {
    return strcmp(tensor, "lm_head.weight") == 0 ||
           strstr(tensor, ".embed_tokens.weight");
}

static const char *const HEADS[] = {"lm_head.", NULL};

static const SizeKey SIZES[] = {
    {"num_layers", SIZE_LAYERS, STACK_ENCODER, false},
    {"num_decoder_layers", SIZE_LAYERS, STACK_DECODER, false},
    {"num_heads", SIZE_HEADS, STACK_ENCODER, false},
    {"d_kv", SIZE_HEAD_WIDTH, STACK_ENCODER, false},
    {"d_ff", SIZE_FFN, STACK_ENCODER, false},
    {"vocab_size", SIZE_VOCABULARY, STACK_EMBEDDINGS, false},
    {"embedding_size", SIZE_EMBEDDING, STACK_EMBEDDINGS, false},
    {NULL}};

const Family family_t5 = {.model_type = "t5",
                          .summary = "T5: encoder-decoder, biases by distance",
                          .classes = CLASSES,
                          .build = build,
                          .sizes = SIZES,
                          .rename = rename_tensor,
                          .spare = spare,
                          .heads = HEADS};

const Family family_mt5 = {.model_type = "mt5",
                           .summary = "mT5: T5 with gated blocks, of many languages",
                           .classes = MT5_CLASSES,
                           .build = build_mt5,
                           .sizes = SIZES,
                           .rename = rename_tensor,
                           .spare = spare,
                           .heads = HEADS};
