/* ELECTRA (Clark et al., 2020): BERT with factored embeddings; the discriminator's trunk,
 * and the generator with its masked-LM head. */
#include "io/families/encoder.h"

#include <string.h>

static const TextHead HEAD = {.dense = "generator_predictions.dense",
                              .norm = "generator_predictions.LayerNorm",
                              .decoder = "generator_lm_head.weight",
                              .bias = "generator_lm_head.bias",
                              .act = "gelu",
                              .sample_act = "gelu",
                              .choice_dropout = "summary_last_dropout"};

static const char *const CLASSES[] = {"ElectraForSequenceClassification",
                                      "ElectraForMaskedLM",
                                      "ElectraForTokenClassification",
                                      "ElectraForQuestionAnswering",
                                      "ElectraForMultipleChoice",
                                      "ElectraModel",
                                      NULL};

/* What choices are scored by: the keys of transformers' SequenceSummary. */
static void read_summary(Builder *b, TextHead *head) {
    static const char ACT[] = "summary_activation";
    build_config_choice(b, "summary_type", (const char *[]){"first", NULL}, 0);
    if (build_config_bool(b, "summary_use_proj", true))
        head->pool = "sequence_summary.summary";
    build_config_require(b, "summary_proj_to_labels", false, false);
    build_config_left_out(b, "summary_first_dropout", "dropout before the projection");
    if (!build_config_is_null(b, ACT))
        head->pool_act = build_config_activation(b, ACT, "gelu");
}

static Status build(Model *model, Diag *diag) {
    TextConfig text;
    TextHead head = HEAD;
    const int64_t embedding = 128;
    Builder b = text_begin(&text, &text_bert_keys, &text_bert_names, model, diag);
    text_read_types(&b, &text);
    text.embedding =
        build_config_int(&b, "embedding_size", &embedding, 1, BUILD_WIDTH_MAX);
    const char *class = build_config_architecture(&b, CLASSES);
    b.prefix = strcmp(class, "ElectraModel") == 0 ? "" : "electra.";
    if (text_ends_with(class, "ForMultipleChoice")) read_summary(&b, &head);
    Node *x = text_embed(&b, &text);
    if (text.embedding != text.width)
        x = build_linear(&b, ROLE_NONE, "embeddings_project", x, text.width, true);
    text_head(&b, &text, &head, class, text_encode(&b, &text, x));
    return b.status;
}

static const char *const HEADS[] = {"qa_outputs.", "classifier.", "generator_",
                                    "sequence_summary.", NULL};

const Family family_electra = {.model_type = "electra",
                               .summary = "ELECTRA: BERT with factored embeddings",
                               .classes = CLASSES,
                               .build = build,
                               .sizes = text_bert_sizes,
                               .rename = text_rename,
                               .prefix = "electra.",
                               .spare = text_spare,
                               .heads = HEADS,
                               .follows = text_follows};
