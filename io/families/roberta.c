/* RoBERTa (Liu et al., 2019) and XLM-RoBERTa (Conneau et al., 2020), which is the same
 * with another vocabulary: BERT with positions that padding does not count, and with
 * heads of their own. */
#include "io/families/encoder.h"

static Status build_class(Model *model, const char *const *classes, Diag *diag) {
    TextConfig text;
    const int64_t padding = 1;
    Builder b = text_begin(&text, &text_bert_keys, &text_bert_names, model, diag);
    text_read_types(&b, &text);
    text.padding = build_config_int(&b, "pad_token_id", &padding, 0, text.positions - 2);
    const char *class = build_config_architecture(&b, classes);
    b.prefix = text_ends_with(class, "Model") ? "" : "roberta.";
    text_head(&b, &text, &text_roberta_head, class,
              text_encode(&b, &text, text_embed(&b, &text)));
    return b.status;
}

static const char *const CLASSES[] = {"RobertaForSequenceClassification",
                                      "RobertaForMaskedLM",
                                      "RobertaForTokenClassification",
                                      "RobertaForQuestionAnswering",
                                      "RobertaForMultipleChoice",
                                      "RobertaModel",
                                      NULL};

static const char *const XLM_CLASSES[] = {"XLMRobertaForSequenceClassification",
                                          "XLMRobertaForMaskedLM",
                                          "XLMRobertaForTokenClassification",
                                          "XLMRobertaForQuestionAnswering",
                                          "XLMRobertaForMultipleChoice",
                                          "XLMRobertaModel",
                                          NULL};

static Status build(Model *model, Diag *diag) {
    return build_class(model, CLASSES, diag);
}

static Status build_xlm(Model *model, Diag *diag) {
    return build_class(model, XLM_CLASSES, diag);
}

const Family family_roberta = {.model_type = "roberta",
                               .summary =
                                   "RoBERTa: BERT whose positions leave padding out",
                               .classes = CLASSES,
                               .build = build,
                               .sizes = text_bert_sizes,
                               .rename = text_rename,
                               .prefix = "roberta.",
                               .spare = text_spare,
                               .optional = text_bert_optional,
                               .heads = text_roberta_heads,
                               .follows = text_follows};

const Family family_xlm_roberta = {.model_type = "xlm-roberta",
                                   .summary = "XLM-RoBERTa: RoBERTa for many languages",
                                   .classes = XLM_CLASSES,
                                   .build = build_xlm,
                                   .sizes = text_bert_sizes,
                                   .rename = text_rename,
                                   .prefix = "roberta.",
                                   .spare = text_spare,
                                   .optional = text_bert_optional,
                                   .heads = text_roberta_heads,
                                   .follows = text_follows};
