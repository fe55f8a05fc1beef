/* DistilBERT (Sanh et al., 2019): BERT without token types and pooler. */
#include "io/families/encoder.h"

#include <string.h>

static const TextKeys KEYS = {.width = "dim",
                              .layers = "n_layers",
                              .heads = "n_heads",
                              .hidden = "hidden_dim",
                              .act = "activation",
                              .dropout = "dropout",
                              .attention_dropout = "attention_dropout",
                              .head_dropout = "seq_classif_dropout",
                              .default_act = "gelu",
                              .default_head_dropout = 0.2};

static const TextNames NAMES = {.layers = "transformer.layer",
                                .inside = "",
                                .q = "attention.q_lin",
                                .k = "attention.k_lin",
                                .v = "attention.v_lin",
                                .out = "attention.out_lin",
                                .norm1 = "sa_layer_norm",
                                .ffn_in = "ffn.lin1",
                                .ffn_out = "ffn.lin2",
                                .norm2 = "output_layer_norm"};

static const TextHead HEAD = {.dense = "vocab_transform",
                              .norm = "vocab_layer_norm",
                              .decoder = "vocab_projector.weight",
                              .bias = "vocab_projector.bias",
                              .pool = "pre_classifier",
                              .pool_act = "relu",
                              .span_dropout = "qa_dropout",
                              .plain_tokens = true};

static const char *const CLASSES[] = {"DistilBertForSequenceClassification",
                                      "DistilBertForMaskedLM",
                                      "DistilBertForTokenClassification",
                                      "DistilBertForQuestionAnswering",
                                      "DistilBertForMultipleChoice",
                                      "DistilBertModel",
                                      NULL};

static Status build(Model *model, Diag *diag) {
    TextConfig text;
    Builder b = text_begin(&text, &KEYS, &NAMES, model, diag);
    const char *architecture = build_config_architecture(&b, CLASSES);
    const bool plain = strcmp(architecture, "DistilBertModel") == 0;
    b.prefix = plain ? "" : "distilbert.";
    text_head(&b, &text, &HEAD, architecture,
              text_encode(&b, &text, text_embed(&b, &text)));
    return b.status;
}

static const char *const HEADS[] = {"qa_outputs.", "pre_classifier.", "classifier.",
                                    "vocab_", NULL};

static const SizeKey SIZES[] = {
    {"n_layers", SIZE_LAYERS, STACK_ENCODER, false},
    {"n_heads", SIZE_HEADS, STACK_ENCODER, false},
    {"head_dim", SIZE_HEAD_WIDTH, STACK_ENCODER, false},
    {"hidden_dim", SIZE_FFN, STACK_ENCODER, false},
    {"vocab_size", SIZE_VOCABULARY, STACK_EMBEDDINGS, false},
    {"embedding_size", SIZE_EMBEDDING, STACK_EMBEDDINGS, false},
    {NULL}};

const Family family_distilbert = {.model_type = "distilbert",
                                  .summary =
                                      "DistilBERT: BERT without token types and pooler",
                                  .classes = CLASSES,
                                  .build = build,
                                  .sizes = SIZES,
                                  .rename = text_rename,
                                  .prefix = "distilbert.",
                                  .spare = text_spare,
                                  .heads = HEADS,
                                  .follows = text_follows};
