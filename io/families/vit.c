/* ViT: vision transformer (Dosovitskiy et al., 2021), with or without a classifier. */
#include "io/families/vision.h"

#include <string.h>

static const char *const CLASSES[] = {"ViTForImageClassification", "ViTModel", NULL};

static Status build(Model *model, Diag *diag) {
    Vision vision;
    Builder b = vision_begin(&vision, model, diag);
    bool plain = strcmp(build_config_architecture(&b, CLASSES), "ViTModel") == 0;
    b.prefix = plain ? "" : "vit.";
    Node *x = vision_encode(&b, &vision, vision_embed(&b, &vision, false));
    if (plain) {
        vision_pool(&b, &vision, x);
        return b.status;
    }
    b.prefix = "";
    const int64_t labels = build_config_labels(&b);
    build_logits(&b, build_config_problem(&b, labels),
                 vision_classify(&b, ROLE_HEAD, "classifier", x, 0, labels));
    return b.status;
}

static const SizeKey SIZES[] = {{"num_hidden_layers", SIZE_LAYERS, STACK_ENCODER, false},
                                {"num_attention_heads", SIZE_HEADS, STACK_ENCODER, false},
                                {"head_dim", SIZE_HEAD_WIDTH, STACK_ENCODER, false},
                                {"intermediate_size", SIZE_FFN, STACK_ENCODER, false},
                                {NULL}};

static const char *const HEADS[] = {"classifier.", NULL};

const Family family_vit = {.model_type = "vit",
                           .summary = "ViT: vision transformer, image classification",
                           .classes = CLASSES,
                           .build = build,
                           .sizes = SIZES,
                           .rename = vision_rename,
                           .prefix = "vit.",
                           .spare = vision_spare,
                           .optional = vision_optional,
                           .heads = HEADS};
