/* ModernBERT (Warner et al., 2024): a pre-norm encoder with rotary positions and gated
 * feed-forward blocks, in which most layers see near tokens alone.
 *
 * Checkpoints keep queries, keys and values one after another in attn.Wqkv, and both
 * projections of a feed-forward block in mlp.Wi; the model has attn.q, attn.k, attn.v,
 * mlp.input and mlp.gate. */
#include "io/families/build.h"
#include "io/families/family.h"

#include <math.h>
#include <string.h>

typedef struct ModernBert {
    int64_t vocabulary, width, layers, heads, hidden;
    int64_t reach; /* of layers that see near tokens alone */
    bool *near;    /* by layer: whether it is one */
    const char *act, *head_act;
    double eps, global_theta, local_theta;
    double out_dropout, ffn_dropout, embedding_dropout, head_dropout;
    bool norm_bias, attention_bias, ffn_bias, head_bias, decoder_bias;
    bool mean; /* classifiers of samples read the mean of the tokens, not the first one */
} ModernBert;

static const char *const CLASSES[] = {"ModernBertForSequenceClassification",
                                      "ModernBertForMaskedLM",
                                      "ModernBertForTokenClassification",
                                      "ModernBertForQuestionAnswering",
                                      "ModernBertForMultipleChoice",
                                      "ModernBertModel",
                                      NULL};

/* ---- configuration ---- */

/* layer_types; without it every so many layers see all tokens. */
static void read_layers(Builder *b, ModernBert *m) {
    const int64_t usual = 3, every = build_config_int(b, "global_attn_every_n_layers",
                                                      &usual, 1, BUILD_LAYERS_MAX);
    m->near = ARENA_ARRAY(b->model->arena, bool, (size_t)m->layers);
    if (build_config_layer_types(b, m->near, m->layers, NULL)) return;
    for (int64_t i = 0; i < m->layers; i++) m->near[i] = i % every != 0;
}

/* The base of the angles of a group of layers: in rope_parameters, or a key of its own.
 */
static double read_theta(Builder *b, const char *group, const char *key, double usual) {
    static const char MAP[] = "rope_parameters";
    const double least = 1, most = 1e12;
    const double theta = build_config_real(b, key, &usual, least, most);
    const Tree *own = tree_get_nonnull(build_config_value(b, MAP), group);
    const Tree *type = tree_get_nonnull(own, "rope_type"),
               *value = tree_get_nonnull(own, "rope_theta");
    if (!own || b->status != STATUS_OK) return theta;
    double number = value ? 0 : theta;
    tree_number(value, &number);
    const bool plain =
        !type || (type->kind == TREE_STRING && strcmp(type->string, "default") == 0);
    if (plain && number >= least && number <= most) return number;
    b->status = diag_fail(b->diag, STATUS_MODEL, own->loc,
                          arena_printf(b->model->arena, "%s.%s", MAP, group),
                          "expected rope_type: default and a rope_theta from %g to %g",
                          least, most);
    return theta;
}

static void read_positions(Builder *b, ModernBert *m) {
    static const char LOCAL[] = "local_rope_theta", SCALING[] = "rope_scaling";
    const int64_t local = 128, positions = 8192, most = 1 << 20;
    const Tree *scaling = build_config_value(b, SCALING);
    build_config_choice(b, "position_embedding_type", (const char *[]){"absolute", NULL},
                        0); /* as all of them say */
    m->reach = build_config_int(b, "local_attention", &local, 0, most) / 2 + 1;
    build_config_int(b, "max_position_embeddings", &positions, 1, most);
    m->global_theta = read_theta(b, "full_attention", "global_rope_theta", 160000);
    m->local_theta = read_theta(b, "sliding_attention", LOCAL,
                                build_config_is_null(b, LOCAL) ? m->global_theta : 10000);
    if (b->status == STATUS_OK && scaling)
        b->status = diag_fail(b->diag, STATUS_MODEL, scaling->loc, SCALING,
                              "expected null: positions that are stretched are not read");
    if (b->status == STATUS_OK && m->width / m->heads % 2)
        b->status =
            diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, "num_attention_heads"),
                      "num_attention_heads",
                      "expected heads of an even width, which rotary positions "
                      "turn by pairs, found %lld",
                      (long long)(m->width / m->heads));
}

static void read_config(Builder *b, ModernBert *m) {
    static const char *const POOLING[] = {"cls", "mean", NULL};
    const double std = 0.02, eps = 1e-5;
    const int64_t words_max = 1 << 24;
    m->vocabulary = build_config_int(b, "vocab_size", NULL, 1, words_max);
    m->width = build_config_int(b, "hidden_size", NULL, 1, BUILD_WIDTH_MAX);
    m->layers = build_config_int(b, "num_hidden_layers", NULL, 1, BUILD_LAYERS_MAX);
    m->heads = build_config_int(b, "num_attention_heads", NULL, 1, BUILD_WIDTH_MAX);
    m->hidden = build_config_int(b, "intermediate_size", NULL, 1, BUILD_FFN_MAX);
    build_config_heads(b, "num_attention_heads", m->heads, "hidden_size", m->width);
    m->act = build_config_activation(b, "hidden_activation", "gelu");
    m->head_act = build_config_activation(b, "classifier_activation", "gelu");
    m->eps = build_config_real(b, "norm_eps", &eps, 0, 1);
    if (build_config_real(b, "layer_norm_eps", &m->eps, 0, 1) != m->eps)
        diag_warn(b->diag, build_config_loc(b, "layer_norm_eps"), "layer_norm_eps",
                  "norms have norm_eps");
    b->std = build_config_real(b, "initializer_range", &std, 0, 100);
    m->norm_bias = build_config_bool(b, "norm_bias", false);
    m->attention_bias = build_config_bool(b, "attention_bias", false);
    m->ffn_bias = build_config_bool(b, "mlp_bias", false);
    m->head_bias = build_config_bool(b, "classifier_bias", false);
    m->decoder_bias = build_config_bool(b, "decoder_bias", true);
    m->mean = build_config_choice(b, "classifier_pooling", POOLING, 0) == 1;
    m->out_dropout = build_config_dropout(b, "attention_dropout", 0);
    build_config_attention_dropout(b, "attention_dropout");
    m->ffn_dropout = build_config_dropout(b, "mlp_dropout", 0);
    m->embedding_dropout = build_config_dropout(b, "embedding_dropout", 0);
    m->head_dropout = build_config_dropout(b, "classifier_dropout", 0);
    build_config_require(b, "sparse_prediction", false, false);
    read_positions(b, m);
    read_layers(b, m);
}

/* ---- layers ---- */

static Node *norm(Builder *b, const ModernBert *m, Role role, const char *name, Node *x) {
    Arena *arena = b->model->arena;
    Node *in[4] = {x, build_param(b, arena_printf(arena, "%s.weight", name), INIT_ONES, 1,
                                  &m->width)};
    if (m->norm_bias)
        in[2] = build_param(b, arena_printf(arena, "%s.bias", name), INIT_ZEROS, 1,
                            &m->width);
    return build_op(b, "layer_norm", role, in, "eps=%.17g", m->eps);
}

static const char *part(Builder *b, const char *name) {
    return arena_printf(b->model->arena, "layers.%d.%s", b->layer, name);
}

/* A projection back to the width of the layers: they are many, and start small. */
static Node *project_back(Builder *b, const ModernBert *m, Role role, const char *name,
                          Node *x, bool bias) {
    const double std = b->std;
    b->std /= sqrt(2.0 * (double)m->layers);
    x = build_linear(b, role, name, x, m->width, bias);
    b->std = std;
    return x;
}

static Node *attend(Builder *b, const ModernBert *m, Node *x) {
    static const char *const NAMES[] = {"attn.q", "attn.k", "attn.v"};
    static const Role ROLES[] = {ROLE_Q, ROLE_K, ROLE_V};
    static const Role TURNED[] = {ROLE_ROTARY_Q, ROLE_ROTARY_K};
    const bool near = m->near[b->layer];
    Node *in[4] = {NULL};
    for (int i = 0; i < 3; i++)
        in[i] =
            build_linear(b, ROLES[i], part(b, NAMES[i]), x, m->width, m->attention_bias);
    for (int i = 0; i < 2; i++)
        in[i] =
            build_op(b, "rotary", TURNED[i], (Node *[4]){in[i]}, "heads=%lld theta=%.17g",
                     (long long)m->heads, near ? m->local_theta : m->global_theta);
    if (b->status == STATUS_OK) in[3] = graph_find_input(b->model->graph, INPUT_MASK);
    x = build_op(b, "attention", ROLE_ATTENTION, in, "heads=%lld reach=%lld",
                 (long long)m->heads, (long long)(near ? m->reach : 0));
    x = project_back(b, m, ROLE_OUT, part(b, "attn.Wo"), x, m->attention_bias);
    return build_dropout(b, m->out_dropout, x);
}

/* Wo(act(input(x)) * gate(x)) */
static Node *feed(Builder *b, const ModernBert *m, Node *x) {
    Node *const input[4] = {
        build_linear(b, ROLE_FFN_GATE, part(b, "mlp.input"), x, m->hidden, m->ffn_bias)};
    Node *const in[4] = {
        build_op(b, "activation", ROLE_NONE, input, "fn=%s", m->act),
        build_linear(b, ROLE_FFN_IN, part(b, "mlp.gate"), x, m->hidden, m->ffn_bias)};
    x = build_op(b, "multiply", ROLE_FFN_ACT, in, NULL);
    x = build_dropout(b, m->ffn_dropout, x);
    return project_back(b, m, ROLE_FFN_OUT, part(b, "mlp.Wo"), x, m->ffn_bias);
}

static Node *encode(Builder *b, const ModernBert *m, Node *x) {
    b->stack = STACK_ENCODER;
    for (int i = 0; i < m->layers && b->status == STATUS_OK; i++) {
        b->layer = i;
        Node *y = i > 0 ? norm(b, m, ROLE_NORM1, part(b, "attn_norm"), x) : x;
        x = build_add(b, ROLE_RESIDUAL1, x, attend(b, m, y));
        y = norm(b, m, ROLE_NORM2, part(b, "mlp_norm"), x);
        x = build_add(b, ROLE_RESIDUAL2, x, feed(b, m, y));
    }
    b->layer = -1;
    x = norm(b, m, ROLE_FINAL_NORM, "final_norm", x);
    build_output(b, OUTPUT_STATES, x);
    return x;
}

/* ---- heads ---- */

static void predict_words(Builder *b, const ModernBert *m, Node *x, Node *words) {
    if (!build_config_bool(b, "tie_word_embeddings", true)) {
        const int64_t table[] = {m->vocabulary, m->width};
        words = build_param(b, "decoder.weight", INIT_TRUNC_NORMAL, 2, table);
    }
    Node *in[4] = {x, words};
    if (m->decoder_bias)
        in[2] = build_param(b, "decoder.bias", INIT_ZEROS, 1, &m->vocabulary);
    build_logits(b, TASK_FILL_IN, build_op(b, "linear", ROLE_HEAD, in, NULL));
}

/* Dense layer, activation and norm, of the vector of a sample or of every token; then the
 * decoder or a classifier. */
static void predict(Builder *b, const ModernBert *m, const char *class, Node *x,
                    Node *words) {
    const bool choice = text_ends_with(class, "ForMultipleChoice");
    const bool samples = choice || text_ends_with(class, "ForSequenceClassification");
    const bool span = text_ends_with(class, "ForQuestionAnswering");
    b->stack = STACK_HEAD;
    b->prefix = "";
    if (samples && m->mean && b->status == STATUS_OK)
        x = build_op(b, "mean_tokens", ROLE_POOL,
                     (Node *[4]){x, graph_find_input(b->model->graph, INPUT_MASK)}, NULL);
    else if (samples)
        x = build_op(b, "select_token", ROLE_POOL, (Node *[4]){x}, "index=0");
    x = build_linear(b, ROLE_NONE, "head.dense", x, m->width, m->head_bias);
    x = build_op(b, "activation", ROLE_NONE, (Node *[4]){x}, "fn=%s", m->head_act);
    x = norm(b, m, ROLE_NONE, "head.norm", x);
    if (text_ends_with(class, "ForMaskedLM")) {
        predict_words(b, m, x, words);
        return;
    }
    const int64_t labels = choice ? 1 : span ? 2 : build_config_labels(b);
    x = build_dropout(b, m->head_dropout, x);
    x = build_linear(b, ROLE_HEAD, "classifier", x, labels, true);
    build_logits(b,
                 choice     ? TASK_CHOOSE
                 : span     ? TASK_FIND_SPAN
                 : !samples ? TASK_LABEL_TOKENS
                            : build_config_problem(b, labels),
                 x);
}

static Status build(Model *model, Diag *diag) {
    Builder b = {.model = model, .diag = diag, .layer = -1, .prefix = ""};
    ModernBert m = {0};
    const int64_t tokens[] = {DIM_N, DIM_T};
    read_config(&b, &m);
    const int64_t table[] = {m.vocabulary, m.width};
    const char *class = build_config_architecture(&b, CLASSES);
    const bool plain = strcmp(class, "ModernBertModel") == 0;
    b.prefix = plain ? "" : "model.";
    b.stack = STACK_EMBEDDINGS;
    Node *ids = build_input(&b, INPUT_IDS, DTYPE_I32, 2, tokens);
    build_input(&b, INPUT_MASK, DTYPE_I32, 2, tokens);
    Node *words =
        build_param(&b, "embeddings.tok_embeddings.weight", INIT_TRUNC_NORMAL, 2, table);
    Node *x = build_op(&b, "embedding", ROLE_EMBED, (Node *[4]){ids, words}, NULL);
    x = norm(&b, &m, ROLE_NORM0, "embeddings.norm", x);
    x = encode(&b, &m, build_dropout(&b, m.embedding_dropout, x));
    if (!plain) predict(&b, &m, class, x, words);
    return b.status;
}

/* ---- names ---- */

static const JoinedTensor JOINED[] = {
    {".attn.Wqkv.", {".attn.q.", ".attn.k.", ".attn.v."}},
    {".mlp.Wi.", {".mlp.input.", ".mlp.gate."}},
    {NULL, {NULL}}};

static const char *const HEADS[] = {"head.", "classifier.", "decoder.", NULL};

static bool is_spare(const char *tensor) {
    for (int i = 0; HEADS[i]; i++)
        if (strncmp(tensor, HEADS[i], strlen(HEADS[i])) == 0) return true;
    return false;
}

static const SizeKey SIZES[] = {
    {"num_hidden_layers", SIZE_LAYERS, STACK_ENCODER, false},
    {"layer_types", SIZE_REACH, STACK_ENCODER, false},
    {"num_attention_heads", SIZE_HEADS, STACK_ENCODER, false},
    {"head_dim", SIZE_HEAD_WIDTH, STACK_ENCODER, false},
    {"intermediate_size", SIZE_FFN, STACK_ENCODER, false},
    {"vocab_size", SIZE_VOCABULARY, STACK_EMBEDDINGS, false},
    {"embedding_size", SIZE_EMBEDDING, STACK_EMBEDDINGS, false},
    {NULL}};

const Family family_modernbert = {
    .model_type = "modernbert",
    .summary = "ModernBERT: encoder with rotary positions and near attention",
    .classes = CLASSES,
    .build = build,
    .sizes = SIZES,
    .rename = family_same_name,
    .joined = JOINED,
    .joined_rows = true,
    .prefix = "model.",
    .spare = is_spare,
    .heads = HEADS};
