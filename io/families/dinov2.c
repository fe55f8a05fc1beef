/* DINOv2 (Oquab et al., 2023): ViT whose blocks' results are scaled column by column
 * before they are added. Its classifier reads the class token beside the mean of the
 * patches. */
#include "io/families/vision.h"

#include <string.h>

static const char *const CLASSES[] = {"Dinov2Model", "Dinov2ForImageClassification",
                                      NULL};

static void read_config(Builder *b, Vision *vision) {
    static const char RATIO[] = "mlp_ratio", SCALE[] = "layerscale_value";
    const double ratio = 4, one = 1;
    vision_read(b, vision, 1e-6);
    const double wide =
        (double)vision->width * build_config_real(b, RATIO, &ratio, 1e-3, 1e3);
    vision->hidden = wide < BUILD_FFN_MAX ? (int64_t)wide : BUILD_FFN_MAX;
    if (b->status == STATUS_OK && (wide < 1 || wide >= BUILD_FFN_MAX))
        b->status = diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, RATIO), RATIO,
                              "expected at least one unit and at most %d, found %g",
                              BUILD_FFN_MAX, wide);
    if (build_config_real(b, SCALE, &one, 0, 100) != 1 && b->status == STATUS_OK)
        diag_warn(b->diag, build_config_loc(b, SCALE), SCALE,
                  "new weights of layer scales begin with 1");
    build_config_require(b, "use_swiglu_ffn", false, false);
    build_config_bool(b, "use_mask_token", true); /* which has no part in the graph */
    build_config_left_out(b, "drop_path_rate", "dropout of blocks");
}

static Node *scale(Builder *b, Role role, const char *name, const Vision *vision,
                   Node *x) {
    Node *const in[4] = {
        x, build_param(b, vision_part(b, name), INIT_ONES, 1, &vision->width)};
    return build_op(b, "layer_scale", role, in, NULL);
}

static Node *encode_layer(Builder *b, const Vision *vision, Node *x) {
    Node *y = build_layer_norm(b, ROLE_NORM1, vision_part(b, "norm1"), x, vision->eps);
    y = build_dropout(b, vision->dropout, vision_attend(b, vision, y));
    y = scale(b, ROLE_LAYER_SCALE1, "layer_scale1.lambda1", vision, y);
    x = build_add(b, ROLE_RESIDUAL1, x, y);
    y = build_layer_norm(b, ROLE_NORM2, vision_part(b, "norm2"), x, vision->eps);
    y = build_linear(b, ROLE_FFN_IN, vision_part(b, "mlp.fc1"), y, vision->hidden, true);
    y = build_op(b, "activation", ROLE_FFN_ACT, (Node *[4]){y}, "fn=%s", vision->act);
    y = build_linear(b, ROLE_FFN_OUT, vision_part(b, "mlp.fc2"), y, vision->width, true);
    y = scale(b, ROLE_LAYER_SCALE2, "layer_scale2.lambda1", vision, y);
    return build_add(b, ROLE_RESIDUAL2, x, y);
}

/* Output `logits`, of the class token and the mean of the patches side by side. */
static void classify(Builder *b, Node *x) {
    const int64_t labels = build_config_labels(b);
    Node *token = build_op(b, "select_token", ROLE_POOL, (Node *[4]){x}, "index=0");
    Node *patches = build_op(b, "slice_tokens", ROLE_NONE, (Node *[4]){x}, "from=1");
    patches = build_op(b, "mean_tokens", ROLE_NONE, (Node *[4]){patches}, NULL);
    x = build_op(b, "concat", ROLE_NONE, (Node *[4]){token, patches}, "axis=1");
    build_logits(b, build_config_problem(b, labels),
                 build_linear(b, ROLE_HEAD, "classifier", x, labels, true));
}

static Status build(Model *model, Diag *diag) {
    Builder b = {.model = model, .diag = diag, .layer = -1, .prefix = ""};
    Vision vision;
    read_config(&b, &vision);
    const bool plain = strcmp(build_config_architecture(&b, CLASSES), CLASSES[0]) == 0;
    b.prefix = plain ? "" : "dinov2.";
    Node *x =
        vision_encode_layers(&b, &vision, encode_layer, vision_embed(&b, &vision, false));
    b.prefix = "";
    b.stack = STACK_HEAD;
    if (plain)
        build_output(&b, OUTPUT_POOLER,
                     build_op(&b, "select_token", ROLE_POOL, (Node *[4]){x}, "index=0"));
    else
        classify(&b, x);
    return b.status;
}

static const SizeKey SIZES[] = {{"num_hidden_layers", SIZE_LAYERS, STACK_ENCODER, false},
                                {"num_attention_heads", SIZE_HEADS, STACK_ENCODER, false},
                                {"head_dim", SIZE_HEAD_WIDTH, STACK_ENCODER, false},
                                {"mlp_ratio", SIZE_FFN_RATIO, STACK_ENCODER, false},
                                {NULL}};

static const char *const HEADS[] = {"classifier.", NULL};

const Family family_dinov2 = {.model_type = "dinov2",
                              .summary = "DINOv2: image features, vision transformer",
                              .classes = CLASSES,
                              .build = build,
                              .sizes = SIZES,
                              .rename = vision_rename,
                              .prefix = "dinov2.",
                              .heads = HEADS};
