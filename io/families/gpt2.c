/* GPT-2 (Radford et al., 2019): pre-norm decoder with learned positions.
 *
 * Checkpoints keep weights as [in, out], and queries, keys and values side by side in one
 * matrix; the graph has three, used transposed. */
#include "io/families/decoder.h"

#include <math.h>
#include <string.h>

typedef struct Gpt2 {
    int64_t vocabulary, positions, width, layers, heads, hidden;
    const char *act;
    double eps, dropout, embedding_dropout;
    double out_std;           /* of the projections that end in a residual sum */
    bool scaled, layer_scale; /* scores over sqrt(d); over the number of the layer */
} Gpt2;

static const char *const CLASSES[] = {"GPT2LMHeadModel", "GPT2Model", NULL};

static void read_config(Builder *b, Gpt2 *gpt2) {
    const double std = 0.02, eps = 1e-5, rate = 0.1;
    *gpt2 = (Gpt2){
        .vocabulary = build_config_int(b, "vocab_size", NULL, 1, DECODER_VOCABULARY_MAX),
        .positions = build_config_int(b, "n_positions", NULL, 1, DECODER_POSITIONS_MAX),
        .width = build_config_int(b, "n_embd", NULL, 1, BUILD_WIDTH_MAX),
        .layers = build_config_int(b, "n_layer", NULL, 1, BUILD_LAYERS_MAX),
        .heads = build_config_int(b, "n_head", NULL, 1, BUILD_WIDTH_MAX),
        .act = build_config_activation(b, "activation_function", "gelu_new"),
        .eps = build_config_real(b, "layer_norm_epsilon", &eps, 0, 1),
        .scaled = build_config_bool(b, "scale_attn_weights", true),
        .layer_scale = build_config_bool(b, "scale_attn_by_inverse_layer_idx", false),
    };
    const int64_t hidden = 4 * gpt2->width;
    gpt2->hidden = build_config_int(b, "n_inner", &hidden, 1, BUILD_FFN_MAX);
    b->std = build_config_real(b, "initializer_range", &std, 0, 100);
    gpt2->out_std = b->std / sqrt(2.0 * (double)gpt2->layers);
    gpt2->dropout = build_config_dropout(b, "resid_pdrop", rate);
    gpt2->embedding_dropout = build_config_dropout(b, "embd_pdrop", rate);
    build_config_attention_dropout(b, "attn_pdrop");
    build_config_require(b, "add_cross_attention", false, false);
    build_config_heads(b, "n_head", gpt2->heads, "n_embd", gpt2->width);
}

/* x W + b with weight [in, out]. */
static Node *project(Builder *b, Role role, const char *name, Node *x, int64_t out) {
    if (b->status != STATUS_OK) return x;
    Arena *arena = b->model->arena;
    const int64_t dim[] = {x->type.dim[x->type.rank - 1], out};
    name = decoder_part(b, "h", name);
    Node *const in[4] = {
        x,
        build_param(b, arena_printf(arena, "%s.weight", name), INIT_TRUNC_NORMAL, 2, dim),
        build_param(b, arena_printf(arena, "%s.bias", name), INIT_ZEROS, 1, &out)};
    return build_op(b, "linear", role, in, "transposed=true");
}

/* A projection that ends in a residual sum, with its dropout. */
static Node *project_out(Builder *b, const Gpt2 *gpt2, Role role, const char *name,
                         Node *x) {
    const double std = b->std;
    b->std = gpt2->out_std;
    x = project(b, role, name, x, gpt2->width);
    b->std = std;
    return build_dropout(b, gpt2->dropout, x);
}

static Node *attend(Builder *b, const Gpt2 *gpt2, Node *x) {
    Node *const in[4] = {project(b, ROLE_Q, "attn.q", x, gpt2->width),
                         project(b, ROLE_K, "attn.k", x, gpt2->width),
                         project(b, ROLE_V, "attn.v", x, gpt2->width)};
    const double width = gpt2->scaled ? (double)(gpt2->width / gpt2->heads) : 1;
    const double scale = 1 / sqrt(width) / (gpt2->layer_scale ? b->layer + 1 : 1);
    const bool usual = gpt2->scaled && !gpt2->layer_scale;
    x = build_op(b, "attention", ROLE_ATTENTION, in, "heads=%lld causal=true scale=%.17g",
                 (long long)gpt2->heads, usual ? 0 : scale);
    return project_out(b, gpt2, ROLE_OUT, "attn.c_proj", x);
}

static Node *decode_layer(Builder *b, const Gpt2 *gpt2, Node *x) {
    Node *norm =
        build_layer_norm(b, ROLE_NORM1, decoder_part(b, "h", "ln_1"), x, gpt2->eps);
    x = build_add(b, ROLE_RESIDUAL1, x, attend(b, gpt2, norm));
    norm = build_layer_norm(b, ROLE_NORM2, decoder_part(b, "h", "ln_2"), x, gpt2->eps);
    Node *fed = project(b, ROLE_FFN_IN, "mlp.c_fc", norm, gpt2->hidden);
    fed = build_op(b, "activation", ROLE_FFN_ACT, (Node *[4]){fed}, "fn=%s", gpt2->act);
    fed = project_out(b, gpt2, ROLE_FFN_OUT, "mlp.c_proj", fed);
    return build_add(b, ROLE_RESIDUAL2, x, fed);
}

static Node *decode(Builder *b, const Gpt2 *gpt2, Node *x) {
    b->stack = STACK_DECODER;
    for (int i = 0; i < gpt2->layers && b->status == STATUS_OK; i++) {
        b->layer = i;
        x = decode_layer(b, gpt2, x);
    }
    b->layer = -1;
    x = build_layer_norm(b, ROLE_FINAL_NORM, "ln_f", x, gpt2->eps);
    build_output(b, OUTPUT_STATES, x);
    return x;
}

static Status build(Model *model, Diag *diag) {
    Builder b = {.model = model, .diag = diag, .layer = -1};
    Gpt2 gpt2;
    read_config(&b, &gpt2);
    const bool plain = strcmp(build_config_architecture(&b, CLASSES), "GPT2Model") == 0;
    const bool tied = build_config_bool(&b, "tie_word_embeddings", true);
    b.prefix = plain ? "" : "transformer.";
    Node *x = decoder_embed(&b, "wte.weight", gpt2.vocabulary, gpt2.width);
    Node *words = b.status == STATUS_OK && tied ? x->in[1] : NULL;
    const int64_t dim[] = {gpt2.positions, gpt2.width};
    Node *const position[4] = {x, build_param(&b, "wpe.weight", INIT_NORMAL, 2, dim)};
    x = build_op(&b, "add_position", ROLE_POSITION, position, NULL);
    x = decode(&b, &gpt2, build_dropout(&b, gpt2.embedding_dropout, x));
    if (!plain) decoder_predict(&b, x, words, gpt2.vocabulary, 0);
    return b.status;
}

/* ---- names ---- */

/* The causal mask is saved with some checkpoints. */
static const char *rename_tensor(Arena *arena, const char *tensor) {
    (void)arena;
    const bool mask = text_ends_with(tensor, ".attn.bias") ||
                      text_ends_with(tensor, ".attn.masked_bias");
    return mask ? NULL : tensor;
}

static const JoinedTensor JOINED[] = {
    {".attn.c_attn.", {".attn.q.", ".attn.k.", ".attn.v."}}, {NULL, {NULL}}};

static const SizeKey SIZES[] = {
    {"n_layer", SIZE_LAYERS, STACK_DECODER, false},
    {"n_head", SIZE_HEADS, STACK_DECODER, false},
    {"head_dim", SIZE_HEAD_WIDTH, STACK_DECODER, false},
    {"n_inner", SIZE_FFN, STACK_DECODER, false},
    {"vocab_size", SIZE_VOCABULARY, STACK_EMBEDDINGS, false},
    {"embedding_size", SIZE_EMBEDDING, STACK_EMBEDDINGS, false},
    {NULL}};

const Family family_gpt2 = {.model_type = "gpt2",
                            .summary = "GPT-2: language model with learned positions",
                            .classes = CLASSES,
                            .build = build,
                            .sizes = SIZES,
                            .rename = rename_tensor,
                            .joined = JOINED,
                            .prefix = "transformer.",
                            .spare = decoder_spare,
                            .heads = decoder_heads};
