/* DeiT: vision transformer with a distillation token (Touvron et al., 2021). */
#include "io/families/vision.h"

#include <string.h>

/* Two classifiers, one on each token; the prediction is the mean of both. */
static void classify_twice(Builder *b, Node *x, int64_t labels) {
    Node *cls = vision_classify(b, ROLE_HEAD, "cls_classifier", x, 0, labels);
    Node *dist =
        vision_classify(b, ROLE_DIST_HEAD, "distillation_classifier", x, 1, labels);
    Node *const in[4] = {build_add(b, ROLE_NONE, cls, dist)};
    Node *logits = build_op(b, "scale", ROLE_LOGITS, in, "by=0.5");
    build_logits(b, build_config_problem(b, labels), logits);
    build_output(b, "cls_logits", cls);
    build_output(b, "distillation_logits", dist);
}

static const char *const CLASSES[] = {"DeiTForImageClassification",
                                      "DeiTForImageClassificationWithTeacher",
                                      "DeiTModel", NULL};

static Status build(Model *model, Diag *diag) {
    Vision vision;
    Builder b = vision_begin(&vision, model, diag);
    const char *architecture = build_config_architecture(&b, CLASSES);
    bool plain = strcmp(architecture, "DeiTModel") == 0;
    b.prefix = plain ? "" : "deit.";
    Node *x = vision_encode(&b, &vision, vision_embed(&b, &vision, true));
    if (plain) {
        vision_pool(&b, &vision, x);
        return b.status;
    }
    b.prefix = "";
    const int64_t labels = build_config_labels(&b);
    if (strcmp(architecture, "DeiTForImageClassificationWithTeacher") == 0)
        classify_twice(&b, x, labels);
    else
        build_logits(&b, build_config_problem(&b, labels),
                     vision_classify(&b, ROLE_HEAD, "classifier", x, 0, labels));
    return b.status;
}

static const SizeKey SIZES[] = {{"num_hidden_layers", SIZE_LAYERS, STACK_ENCODER, false},
                                {"num_attention_heads", SIZE_HEADS, STACK_ENCODER, false},
                                {"head_dim", SIZE_HEAD_WIDTH, STACK_ENCODER, false},
                                {"intermediate_size", SIZE_FFN, STACK_ENCODER, false},
                                {NULL}};

static const char *const HEADS[] = {"classifier.", "cls_classifier.",
                                    "distillation_classifier.", NULL};

const Family family_deit = {.model_type = "deit",
                            .summary = "DeiT: ViT with a distillation token",
                            .classes = CLASSES,
                            .build = build,
                            .sizes = SIZES,
                            .rename = vision_rename,
                            .prefix = "deit.",
                            .spare = vision_spare,
                            .optional = vision_optional,
                            .heads = HEADS};
