/* BERT (Devlin et al., 2019): bare, classifier or masked-LM head. */
#include "io/families/encoder.h"

#include <string.h>

static const TextKeys KEYS = {.width = "hidden_size",
                              .layers = "num_hidden_layers",
                              .heads = "num_attention_heads",
                              .hidden = "intermediate_size",
                              .act = "hidden_act",
                              .dropout = "hidden_dropout_prob",
                              .attention_dropout = "attention_probs_dropout_prob",
                              .head_dropout = "classifier_dropout",
                              .default_act = "gelu",
                              .default_head_dropout = -1};

static const TextNames NAMES = {.layers = "encoder.layer",
                                .inside = "",
                                .q = "attention.self.query",
                                .k = "attention.self.key",
                                .v = "attention.self.value",
                                .out = "attention.output.dense",
                                .norm1 = "attention.output.LayerNorm",
                                .ffn_in = "intermediate.dense",
                                .ffn_out = "output.dense",
                                .norm2 = "output.LayerNorm"};

static const TextHead HEAD = {.dense = "cls.predictions.transform.dense",
                              .norm = "cls.predictions.transform.LayerNorm",
                              .decoder = "cls.predictions.decoder.weight",
                              .bias = "cls.predictions.bias",
                              .pool = "pooler.dense",
                              .pool_act = "tanh",
                              .pool_is_trunk = true};

static const char *const CLASSES[] = {"BertForSequenceClassification",
                                      "BertForMaskedLM",
                                      "BertForTokenClassification",
                                      "BertForQuestionAnswering",
                                      "BertForMultipleChoice",
                                      "BertModel",
                                      NULL};

static Status build(Model *model, Diag *diag) {
    TextConfig text;
    const int64_t types = 2, types_max = 1 << 16;
    Builder b = text_begin(&text, &KEYS, &NAMES, model, diag);
    text.types = build_config_int(&b, "type_vocab_size", &types, 1, types_max);
    const char *architecture = build_config_architecture(&b, CLASSES);
    const bool plain = strcmp(architecture, "BertModel") == 0;
    b.prefix = plain ? "" : "bert.";
    Node *x = text_encode(&b, &text, text_embed(&b, &text));
    text_head(&b, &text, &HEAD, architecture, x);
    return b.status;
}

static const OptionalOutput OPTIONAL[] = {{OUTPUT_POOLER, "pooler.dense.weight"},
                                          {NULL, NULL}};

static const char *const HEADS[] = {"qa_outputs.", "pooler.", "classifier.",
                                    "cls.predictions.", NULL};

static const SizeKey SIZES[] = {
    {"num_hidden_layers", SIZE_LAYERS, STACK_ENCODER, false},
    {"num_attention_heads", SIZE_HEADS, STACK_ENCODER, false},
    {"head_dim", SIZE_HEAD_WIDTH, STACK_ENCODER, false},
    {"intermediate_size", SIZE_FFN, STACK_ENCODER, false},
    {"vocab_size", SIZE_VOCABULARY, STACK_EMBEDDINGS, false},
    {"embedding_size", SIZE_EMBEDDING, STACK_EMBEDDINGS, false},
    {"type_vocab_size", SIZE_TYPES, STACK_EMBEDDINGS, false},
    {NULL}};

const Family family_bert = {.model_type = "bert",
                            .summary = "BERT: text encoder, classification, masked LM",
                            .classes = CLASSES,
                            .build = build,
                            .sizes = SIZES,
                            .rename = text_rename,
                            .prefix = "bert.",
                            .spare = text_spare,
                            .optional = OPTIONAL,
                            .heads = HEADS};
