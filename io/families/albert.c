/* ALBERT (Lan et al., 2020): BERT with narrow embeddings and layers that share weights.
 */
#include "io/families/encoder.h"

#include <string.h>

static const TextKeys KEYS = {.width = "hidden_size",
                              .layers = "num_hidden_layers",
                              .heads = "num_attention_heads",
                              .hidden = "intermediate_size",
                              .act = "hidden_act",
                              .dropout = "hidden_dropout_prob",
                              .attention_dropout = "attention_probs_dropout_prob",
                              .head_dropout = "classifier_dropout_prob",
                              .default_act = "gelu_new",
                              .default_head_dropout = 0.1};

static const TextNames NAMES = {.layers = "encoder.albert_layer_groups",
                                .inside = ".albert_layers.0",
                                .q = "attention.query",
                                .k = "attention.key",
                                .v = "attention.value",
                                .out = "attention.dense",
                                .norm1 = "attention.LayerNorm",
                                .ffn_in = "ffn",
                                .ffn_out = "ffn_output",
                                .norm2 = "full_layer_layer_norm"};

static const TextHead HEAD = {.dense = "predictions.dense",
                              .norm = "predictions.LayerNorm",
                              .decoder = "predictions.decoder.weight",
                              .bias = "predictions.bias",
                              .pool = "pooler",
                              .pool_act = "tanh",
                              .pool_is_trunk = true};

static const char *const CLASSES[] = {"AlbertForSequenceClassification",
                                      "AlbertForMaskedLM",
                                      "AlbertForTokenClassification",
                                      "AlbertForQuestionAnswering",
                                      "AlbertForMultipleChoice",
                                      "AlbertModel",
                                      NULL};

static Status build(Model *model, Diag *diag) {
    TextConfig text;
    const int64_t one = 1;
    Builder b = text_begin(&text, &KEYS, &NAMES, model, diag);
    text_read_types(&b, &text);
    text.embedding = build_config_int(&b, "embedding_size", NULL, 1, BUILD_WIDTH_MAX);
    text.groups = build_config_int(&b, "num_hidden_groups", &one, 1, text.layers);
    text.ffn_dropout = false;
    build_config_int(&b, "inner_group_num", &one, 1, 1);
    const char *architecture = build_config_architecture(&b, CLASSES);
    const bool plain = strcmp(architecture, "AlbertModel") == 0;
    b.prefix = plain ? "" : "albert.";
    Node *x = text_embed(&b, &text);
    x = build_linear(&b, ROLE_NONE, "encoder.embedding_hidden_mapping_in", x, text.width,
                     true);
    x = text_encode(&b, &text, x);
    text_head(&b, &text, &HEAD, architecture, x);
    return b.status;
}

static const OptionalOutput OPTIONAL[] = {{OUTPUT_POOLER, "pooler.weight"}, {NULL, NULL}};

static const char *const HEADS[] = {"qa_outputs.", "pooler.", "classifier.",
                                    "predictions.", NULL};

const Family family_albert = {
    .model_type = "albert",
    .summary = "ALBERT: BERT with factored embeddings and shared layers",
    .classes = CLASSES,
    .build = build,
    .sizes = text_bert_sizes,
    .rename = text_rename,
    .prefix = "albert.",
    .spare = text_spare,
    .optional = OPTIONAL,
    .heads = HEADS};
