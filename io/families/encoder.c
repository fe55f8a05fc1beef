/* Text encoders: post-norm layers over embedded tokens. See encoder.h. */
#include "io/families/encoder.h"

#include <string.h>

enum { VOCABULARY_MAX = 1 << 24, POSITIONS_MAX = 1 << 20 };

static const double HIDDEN_DROPOUT = 0.1; /* where the configuration gives none */

const TextKeys text_bert_keys = {.width = "hidden_size",
                                 .layers = "num_hidden_layers",
                                 .heads = "num_attention_heads",
                                 .hidden = "intermediate_size",
                                 .act = "hidden_act",
                                 .dropout = "hidden_dropout_prob",
                                 .attention_dropout = "attention_probs_dropout_prob",
                                 .head_dropout = "classifier_dropout",
                                 .default_act = "gelu",
                                 .default_head_dropout = -1};

const TextNames text_bert_names = {.layers = "encoder.layer",
                                   .inside = "",
                                   .q = "attention.self.query",
                                   .k = "attention.self.key",
                                   .v = "attention.self.value",
                                   .out = "attention.output.dense",
                                   .norm1 = "attention.output.LayerNorm",
                                   .ffn_in = "intermediate.dense",
                                   .ffn_out = "output.dense",
                                   .norm2 = "output.LayerNorm"};

const SizeKey text_bert_sizes[] = {
    {"num_hidden_layers", SIZE_LAYERS, STACK_ENCODER, false},
    {"num_attention_heads", SIZE_HEADS, STACK_ENCODER, false},
    {"head_dim", SIZE_HEAD_WIDTH, STACK_ENCODER, false},
    {"intermediate_size", SIZE_FFN, STACK_ENCODER, false},
    {"vocab_size", SIZE_VOCABULARY, STACK_EMBEDDINGS, false},
    {"embedding_size", SIZE_EMBEDDING, STACK_EMBEDDINGS, false},
    {"type_vocab_size", SIZE_TYPES, STACK_EMBEDDINGS, false},
    {NULL}};

const OptionalOutput text_bert_optional[] = {{OUTPUT_POOLER, "pooler.dense.weight"},
                                             {NULL, NULL}};

const TextHead text_roberta_head = {.dense = "lm_head.dense",
                                    .norm = "lm_head.layer_norm",
                                    .decoder = "lm_head.decoder.weight",
                                    .bias = "lm_head.bias",
                                    .act = "gelu",
                                    .pool = "pooler.dense",
                                    .pool_act = "tanh",
                                    .pool_is_trunk = true,
                                    .sample_act = "tanh"};

const char *const text_roberta_heads[] = {"qa_outputs.", "pooler.", "classifier.",
                                          "lm_head.", NULL};

static void require_false(Builder *b, const char *key) {
    if (build_config_bool(b, key, false) && b->status == STATUS_OK)
        b->status = diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, key), key,
                              "expected false: this family has encoders only");
}

const char *const text_follows[] = {"pruned_heads", NULL};

/* Checks that what a layer lacks are some of its heads, each told of once. */
static bool are_heads(const Tree *list, int64_t heads) {
    if (list->kind != TREE_LIST || list->count >= heads) return false;
    for (const Tree *head = list->first; head; head = head->next) {
        if (head->kind != TREE_INT || head->integer < 0 || head->integer >= heads)
            return false;
        for (const Tree *other = list->first; other != head; other = other->next)
            if (other->integer == head->integer) return false;
    }
    return true;
}

/* Heads that transformers left out of layers ({"2": [0, 3]}): their rows are not in the
 * checkpoint. */
static void read_pruned(Builder *b, TextConfig *text, const TextKeys *keys) {
    const Tree *pruned = tree_get_nonnull(b->model->config, "pruned_heads");
    if (!pruned || b->status != STATUS_OK) return;
    bool good = pruned->kind == TREE_MAP;
    for (const Tree *list = good ? pruned->first : NULL; list && good;
         list = list->next) {
        bool known = false;
        for (int i = 0; i < text->layers && !known; i++) {
            char name[16];
            snprintf(name, sizeof name, "%d", i);
            known = strcmp(list->key, name) == 0;
        }
        good = known && are_heads(list, text->heads);
    }
    if (!good)
        b->status = diag_fail(
            b->diag, STATUS_MODEL, build_config_loc(b, "pruned_heads"), "pruned_heads",
            "expected a map from layers below %s %lld to lists of some "
            "of their %lld heads",
            keys->layers, (long long)text->layers, (long long)text->heads);
    text->pruned = pruned;
}

Builder text_begin(TextConfig *text, const TextKeys *keys, const TextNames *names,
                   Model *model, Diag *diag) {
    Builder b = {.model = model, .diag = diag, .layer = -1, .prefix = ""};
    const double std = 0.02, eps = 1e-12;
    *text = (TextConfig){.names = names, .padding = -1, .ffn_dropout = true};
    text->vocabulary = build_config_int(&b, "vocab_size", NULL, 1, VOCABULARY_MAX);
    text->positions =
        build_config_int(&b, "max_position_embeddings", NULL, 1, POSITIONS_MAX);
    text->width = build_config_int(&b, keys->width, NULL, 1, BUILD_WIDTH_MAX);
    text->layers = build_config_int(&b, keys->layers, NULL, 1, BUILD_LAYERS_MAX);
    text->heads = build_config_int(&b, keys->heads, NULL, 1, BUILD_WIDTH_MAX);
    text->hidden = build_config_int(&b, keys->hidden, NULL, 1, BUILD_FFN_MAX);
    text->embedding = text->width;
    text->groups = text->layers;
    text->act = build_config_activation(&b, keys->act, keys->default_act);
    text->eps = build_config_real(&b, "layer_norm_eps", &eps, 0, 1);
    b.std = build_config_real(&b, "initializer_range", &std, 0, 100);
    text->dropout = build_config_dropout(&b, keys->dropout, HIDDEN_DROPOUT);
    const double head =
        keys->default_head_dropout < 0 ? text->dropout : keys->default_head_dropout;
    text->head_dropout = build_config_dropout(&b, keys->head_dropout, head);
    build_config_attention_dropout(&b, keys->attention_dropout);
    build_config_choice(&b, "position_embedding_type", (const char *[]){"absolute", NULL},
                        0);
    require_false(&b, "is_decoder");
    require_false(&b, "add_cross_attention");
    build_config_heads(&b, keys->heads, text->heads, keys->width, text->width);
    read_pruned(&b, text, keys);
    return b;
}

void text_read_types(Builder *b, TextConfig *text) {
    const int64_t types = 2, most = 1 << 16;
    text->types = build_config_int(b, "type_vocab_size", &types, 1, most);
}

/* ---- embeddings ---- */

static Node *input_ids(Builder *b, const char *name) {
    const int64_t dim[] = {DIM_N, DIM_T};
    return build_input(b, name, DTYPE_I32, 2, dim);
}

static Node *table(Builder *b, const char *name, int64_t rows, int64_t width) {
    return build_param(b, name, INIT_NORMAL, 2, (const int64_t[]){rows, width});
}

Node *text_embed(Builder *b, const TextConfig *text) {
    b->stack = STACK_EMBEDDINGS;
    Node *ids = input_ids(b, INPUT_IDS);
    input_ids(b, INPUT_MASK);
    Node *types = text->types > 0 ? input_ids(b, INPUT_TYPES) : NULL;
    Node *const word[4] = {ids, table(b, "embeddings.word_embeddings.weight",
                                      text->vocabulary, text->embedding)};
    Node *x = build_op(b, "embedding", ROLE_EMBED, word, NULL);
    if (types) {
        Node *const type[4] = {types, table(b, "embeddings.token_type_embeddings.weight",
                                            text->types, text->embedding)};
        x = build_add(b, ROLE_TOKEN_TYPE, x,
                      build_op(b, "embedding", ROLE_NONE, type, NULL));
    }
    Node *const position[4] = {x,
                               table(b, "embeddings.position_embeddings.weight",
                                     text->positions, text->embedding),
                               text->padding < 0 ? NULL : ids};
    x = build_op(b, "add_position", ROLE_POSITION, position, "offset=%lld",
                 (long long)text->padding + 1);
    x = build_layer_norm(b, ROLE_NORM0, "embeddings.LayerNorm", x, text->eps);
    return build_dropout(b, text->dropout, x);
}

/* ---- layers ---- */

/* Storage name of one part of the current layer. */
static const char *part(Builder *b, const TextConfig *text, const char *name) {
    const long long group = (long long)b->layer * text->groups / text->layers;
    return arena_printf(b->model->arena, "%s.%lld%s.%s", text->names->layers, group,
                        text->names->inside, name);
}

static Node *project(Builder *b, const TextConfig *text, Role role, const char *name,
                     Node *x, int64_t width) {
    return build_linear(b, role, part(b, text, name), x, width, true);
}

static Node *attend(Builder *b, const TextConfig *text, Node *x) {
    const TextNames *names = text->names;
    const Tree *lacks =
        tree_get(text->pruned, arena_printf(b->model->arena, "%d", b->layer));
    const int64_t heads = text->heads - (lacks ? lacks->count : 0),
                  width = text->width / text->heads * heads;
    Node *in[4] = {NULL};
    in[0] = project(b, text, ROLE_Q, names->q, x, width);
    in[1] = project(b, text, ROLE_K, names->k, x, width);
    in[2] = project(b, text, ROLE_V, names->v, x, width);
    if (b->status == STATUS_OK) in[3] = graph_find_input(b->model->graph, INPUT_MASK);
    if (!text->distances) {
        x = build_op(b, "attention", ROLE_ATTENTION, in, "heads=%lld", (long long)heads);
    } else {
        x = build_op(b, "attention", ROLE_ATTENTION, in,
                     "heads=%lld buckets=%d distance=%d bidirectional=true",
                     (long long)text->heads, TEXT_BUCKETS, TEXT_DISTANCE);
        build_operand(b, x, "rel_bias",
                      table(b, text->distances, TEXT_BUCKETS, text->heads));
    }
    return project(b, text, ROLE_OUT, names->out, x, text->width);
}

static Node *encode_layer(Builder *b, const TextConfig *text, Node *x) {
    const TextNames *names = text->names;
    Node *attended = build_dropout(b, text->dropout, attend(b, text, x));
    x = build_add(b, ROLE_RESIDUAL1, x, attended);
    x = build_layer_norm(b, ROLE_NORM1, part(b, text, names->norm1), x, text->eps);
    Node *fed = project(b, text, ROLE_FFN_IN, names->ffn_in, x, text->hidden);
    fed = build_op(b, "activation", ROLE_FFN_ACT, (Node *[4]){fed}, "fn=%s", text->act);
    fed = project(b, text, ROLE_FFN_OUT, names->ffn_out, fed, text->width);
    fed = build_dropout(b, text->ffn_dropout ? text->dropout : 0, fed);
    x = build_add(b, ROLE_RESIDUAL2, x, fed);
    return build_layer_norm(b, ROLE_NORM2, part(b, text, names->norm2), x, text->eps);
}

Node *text_encode(Builder *b, const TextConfig *text, Node *x) {
    b->stack = STACK_ENCODER;
    for (int i = 0; i < text->layers && b->status == STATUS_OK; i++) {
        b->layer = i;
        x = encode_layer(b, text, x);
    }
    b->layer = -1;
    build_output(b, OUTPUT_STATES, x);
    return x;
}

/* ---- heads ---- */

/* A projection of a vector, and an activation where `act` is not NULL. */
static Node *transform(Builder *b, const char *name, const char *act, Node *x,
                       int64_t width) {
    Node *const in[4] = {build_linear(b, ROLE_NONE, name, x, width, true)};
    return act ? build_op(b, "activation", ROLE_NONE, in, "fn=%s", act) : in[0];
}

static void predict_masked(Builder *b, const TextConfig *text, const TextHead *head,
                           Node *x) {
    const bool tied = build_config_bool(b, "tie_word_embeddings", true);
    Node *words = table(b, "embeddings.word_embeddings.weight", text->vocabulary,
                        text->embedding); /* under the trunk's prefix: the same leaf */
    b->prefix = "";
    x = transform(b, head->dense, head->act ? head->act : text->act, x, text->embedding);
    x = build_layer_norm(b, ROLE_NONE, head->norm, x, text->eps);
    if (!tied) words = table(b, head->decoder, text->vocabulary, text->embedding);
    Node *const in[4] = {x, words,
                         build_param(b, head->bias, INIT_ZEROS, 1, &text->vocabulary)};
    build_logits(b, TASK_FILL_IN, build_op(b, "linear", ROLE_HEAD, in, NULL));
}

/* Dropout and a linear classifier of samples or tokens. */
static Node *classify(Builder *b, const char *name, double dropout, Node *x,
                      int64_t outputs) {
    b->prefix = "";
    return build_linear(b, ROLE_HEAD, name, build_dropout(b, dropout, x), outputs, true);
}

/* The classes of transformers, by how their names end. */
typedef enum HeadKind {
    HEAD_BARE,
    HEAD_MASKED,
    HEAD_SAMPLES,
    HEAD_TOKENS,
    HEAD_SPAN,
    HEAD_CHOICE
} HeadKind;

static HeadKind head_kind(const char *class) {
    static const char *const ENDS[] = {
        [HEAD_MASKED] = "ForMaskedLM",
        [HEAD_SAMPLES] = "ForSequenceClassification",
        [HEAD_TOKENS] = "ForTokenClassification",
        [HEAD_SPAN] = "ForQuestionAnswering",
        [HEAD_CHOICE] = "ForMultipleChoice",
    };
    for (HeadKind i = HEAD_MASKED; i <= HEAD_CHOICE; i++)
        if (text_ends_with(class, ENDS[i])) return i;
    return HEAD_BARE;
}

/* Classes of every token, or the ends of an answer. */
static void predict_tokens(Builder *b, const TextConfig *text, const TextHead *head,
                           HeadKind kind, Node *x) {
    const double usual = head->plain_tokens ? text->dropout : text->head_dropout;
    const char *key = head->span_dropout;
    if (kind == HEAD_TOKENS)
        build_logits(b, TASK_LABEL_TOKENS,
                     classify(b, "classifier", usual, x, build_config_labels(b)));
    else
        build_logits(
            b, TASK_FIND_SPAN,
            classify(b, "qa_outputs", key ? build_config_dropout(b, key, 0.1) : 0, x, 2));
}

/* What the first token says of a sample or of a choice; of a bare model its vector. */
static void predict_samples(Builder *b, const TextConfig *text, const TextHead *head,
                            HeadKind kind, Node *x) {
    const bool twice = kind == HEAD_SAMPLES && head->sample_act;
    const bool trunk = head->pool_is_trunk && !twice;
    const char *name = twice ? "classifier.dense" : head->pool;
    double dropout = text->head_dropout;
    if (kind == HEAD_BARE && !trunk) return;
    if (kind == HEAD_CHOICE && head->choice_dropout)
        dropout = build_config_dropout(b, head->choice_dropout, 0.1);
    x = build_op(b, "select_token", ROLE_POOL, (Node *[4]){x}, "index=0");
    if (!trunk) b->prefix = "";
    if (twice) x = build_dropout(b, dropout, x);
    if (name)
        x = transform(b, name, twice ? head->sample_act : head->pool_act, x, text->width);
    if (trunk) build_output(b, OUTPUT_POOLER, x);
    if (kind == HEAD_BARE) return;
    const int64_t labels = kind == HEAD_CHOICE ? 1 : build_config_labels(b);
    x = classify(b, twice ? "classifier.out_proj" : "classifier", dropout, x, labels);
    build_logits(b, kind == HEAD_CHOICE ? TASK_CHOOSE : build_config_problem(b, labels),
                 x);
}

void text_head(Builder *b, const TextConfig *text, const TextHead *head,
               const char *class, Node *x) {
    const HeadKind kind = head_kind(class);
    b->stack = STACK_HEAD;
    if (kind == HEAD_MASKED)
        predict_masked(b, text, head, x);
    else if (kind == HEAD_TOKENS || kind == HEAD_SPAN)
        predict_tokens(b, text, head, kind, x);
    else
        predict_samples(b, text, head, kind, x);
}

/* ---- names ---- */

const char *text_rename(Arena *arena, const char *tensor) {
    const int stem = (int)strlen(tensor) - (int)strlen("gamma");
    if (text_ends_with(tensor, "embeddings.position_ids") ||
        text_ends_with(tensor, "embeddings.token_type_ids") ||
        strcmp(tensor, "lm_head.decoder.bias") == 0) /* lm_head.bias once more */
        return NULL;
    if (text_ends_with(tensor, "LayerNorm.gamma"))
        return arena_printf(arena, "%.*sweight", stem, tensor);
    if (text_ends_with(tensor, "LayerNorm.beta"))
        return arena_printf(arena, "%.*sbias", stem + 1, tensor);
    return tensor;
}

bool text_spare(const char *tensor) {
    static const char *const TRUNKS[] = {"bert.",    "distilbert.", "albert.",
                                         "roberta.", "electra.",    "mpnet."};
    static const char *const HEADS[] = {
        "cls.",        "pooler.",         "classifier.",
        "vocab_",      "pre_classifier.", "predictions.",
        "qa_outputs.", "sop_classifier.", "lm_head.",
        "generator_",  "discriminator_",  "sequence_summary."};
    for (size_t i = 0; i < sizeof TRUNKS / sizeof *TRUNKS; i++)
        if (strncmp(tensor, TRUNKS[i], strlen(TRUNKS[i])) == 0) {
            tensor += strlen(TRUNKS[i]);
            break;
        }
    for (size_t i = 0; i < sizeof HEADS / sizeof *HEADS; i++)
        if (strncmp(tensor, HEADS[i], strlen(HEADS[i])) == 0) return true;
    return false;
}
