/* BERT (Devlin et al., 2019): bare, classifier or masked-LM head. */
#include "io/families/encoder.h"

#include <string.h>

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
    Builder b = text_begin(&text, &text_bert_keys, &text_bert_names, model, diag);
    text_read_types(&b, &text);
    const char *architecture = build_config_architecture(&b, CLASSES);
    const bool plain = strcmp(architecture, "BertModel") == 0;
    b.prefix = plain ? "" : "bert.";
    Node *x = text_encode(&b, &text, text_embed(&b, &text));
    text_head(&b, &text, &HEAD, architecture, x);
    return b.status;
}

static const char *const HEADS[] = {"qa_outputs.", "pooler.", "classifier.",
                                    "cls.predictions.", NULL};

const Family family_bert = {.model_type = "bert",
                            .summary = "BERT: text encoder, classification, masked LM",
                            .classes = CLASSES,
                            .build = build,
                            .sizes = text_bert_sizes,
                            .rename = text_rename,
                            .prefix = "bert.",
                            .spare = text_spare,
                            .optional = text_bert_optional,
                            .heads = HEADS,
                            .follows = text_follows};
