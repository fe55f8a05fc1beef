/* MPNet (Song et al., 2020): RoBERTa without token types, with biases by the distance of
 * a key that all layers share. */
#include "io/families/encoder.h"

#include <string.h>

static const TextKeys KEYS = {.width = "hidden_size",
                              .layers = "num_hidden_layers",
                              .heads = "num_attention_heads",
                              .hidden = "intermediate_size",
                              .act = "hidden_act",
                              .dropout = "hidden_dropout_prob",
                              .attention_dropout = "attention_probs_dropout_prob",
                              .head_dropout = "hidden_dropout_prob",
                              .default_act = "gelu",
                              .default_head_dropout = -1};

static const TextNames NAMES = {.layers = "encoder.layer",
                                .inside = "",
                                .q = "attention.attn.q",
                                .k = "attention.attn.k",
                                .v = "attention.attn.v",
                                .out = "attention.attn.o",
                                .norm1 = "attention.LayerNorm",
                                .ffn_in = "intermediate.dense",
                                .ffn_out = "output.dense",
                                .norm2 = "output.LayerNorm"};

static const char *const CLASSES[] = {"MPNetForSequenceClassification",
                                      "MPNetForMaskedLM",
                                      "MPNetForTokenClassification",
                                      "MPNetForQuestionAnswering",
                                      "MPNetForMultipleChoice",
                                      "MPNetModel",
                                      NULL};

static Status build(Model *model, Diag *diag) {
    TextConfig text;
    const int64_t buckets = TEXT_BUCKETS;
    Builder b = text_begin(&text, &KEYS, &NAMES, model, diag);
    build_config_int(&b, "relative_attention_num_buckets", &buckets, buckets, buckets);
    text.padding = 1; /* whatever pad_token_id says */
    text.distances = "encoder.relative_attention_bias.weight";
    const char *class = build_config_architecture(&b, CLASSES);
    b.prefix = strcmp(class, "MPNetModel") == 0 ? "" : "mpnet.";
    text_head(&b, &text, &text_roberta_head, class,
              text_encode(&b, &text, text_embed(&b, &text)));
    return b.status;
}

const Family family_mpnet = {.model_type = "mpnet",
                             .summary = "MPNet: RoBERTa with biases by distance",
                             .classes = CLASSES,
                             .build = build,
                             .sizes = text_bert_sizes,
                             .rename = text_rename,
                             .prefix = "mpnet.",
                             .spare = text_spare,
                             .optional = text_bert_optional,
                             .heads = text_roberta_heads};
