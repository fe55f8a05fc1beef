/* Vision transformers: pre-norm encoder over image patches, in transformers' names. */
#include "io/families/vision.h"

#include <string.h>

enum { PIXELS_MAX = 1 << 14, CHANNELS_MAX = 1 << 10 };

/* Height and width: one integer or a list of two. */
static void config_size(Builder *b, const char *key, int64_t max, int64_t out[2]) {
    const Tree *value = build_config_value(b, key);
    if (!value || value->kind != TREE_LIST) {
        out[0] = out[1] = build_config_int(b, key, NULL, 1, max);
        return;
    }
    const Tree *item = value->first;
    bool good = value->count == 2;
    for (int i = 0; good && i < 2; i++, item = item->next) {
        good = item->kind == TREE_INT && item->integer >= 1 && item->integer <= max;
        if (good) out[i] = item->integer;
    }
    if (good) return;
    out[0] = out[1] = 1;
    if (b->status == STATUS_OK)
        b->status =
            diag_fail(b->diag, STATUS_MODEL, value->loc, key,
                      "expected an integer or two, each from 1 to %lld", (long long)max);
}

void vision_config_image(Builder *b, Vision *vision) {
    int64_t image[2], patch[2];
    config_size(b, "image_size", PIXELS_MAX, image);
    config_size(b, "patch_size", PIXELS_MAX, patch);
    vision->height_px = image[0];
    vision->width_px = image[1];
    vision->patch = patch[0];
    if (b->status != STATUS_OK) return;
    if (patch[0] == patch[1] && image[0] % patch[0] == 0 && image[1] % patch[0] == 0)
        return;
    b->status =
        diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, "patch_size"), "patch_size",
                  "expected square patches that divide the image of %lld x %lld, "
                  "found %lld x %lld",
                  (long long)image[0], (long long)image[1], (long long)patch[0],
                  (long long)patch[1]);
}

void vision_read(Builder *b, Vision *vision, double eps) {
    const double std = 0.02;
    const int64_t channels = 3;
    *vision = (Vision){0};
    vision->width = build_config_int(b, "hidden_size", NULL, 1, BUILD_WIDTH_MAX);
    vision->layers = build_config_int(b, "num_hidden_layers", NULL, 1, BUILD_LAYERS_MAX);
    vision->heads = build_config_int(b, "num_attention_heads", NULL, 1, BUILD_WIDTH_MAX);
    vision->channels = build_config_int(b, "num_channels", &channels, 1, CHANNELS_MAX);
    vision_config_image(b, vision);
    vision->qkv_bias = build_config_bool(b, "qkv_bias", true);
    vision->act = build_config_activation(b, "hidden_act", "gelu");
    vision->eps = build_config_real(b, "layer_norm_eps", &eps, 0, 1);
    vision->dropout = build_config_dropout(b, "hidden_dropout_prob", 0);
    build_config_attention_dropout(b, "attention_probs_dropout_prob");
    b->std = build_config_real(b, "initializer_range", &std, 0, 100);
    build_config_heads(b, "num_attention_heads", vision->heads, "hidden_size",
                       vision->width);
}

Builder vision_begin(Vision *vision, Model *model, Diag *diag) {
    Builder b = {.model = model, .diag = diag, .layer = -1, .prefix = ""};
    vision_read(&b, vision, 1e-12);
    vision->hidden = build_config_int(&b, "intermediate_size", NULL, 1, BUILD_FFN_MAX);
    return b;
}

Node *vision_patches(Builder *b, const Vision *vision) {
    const int64_t image[] = {DIM_N, vision->channels, vision->height_px,
                             vision->width_px};
    const int64_t weight[] = {vision->width, vision->channels, vision->patch,
                              vision->patch};
    Node *in[4] = {build_input(b, INPUT_PIXELS, DTYPE_F32, 4, image)};
    Node *patches =
        build_op(b, "patches", ROLE_PATCHES, in, "size=%lld", (long long)vision->patch);
    in[0] = patches;
    in[1] = build_param(b, "embeddings.patch_embeddings.projection.weight",
                        INIT_TRUNC_NORMAL, 4, weight);
    in[2] = build_param(b, "embeddings.patch_embeddings.projection.bias", INIT_ZEROS, 1,
                        weight);
    return build_op(b, "linear", ROLE_EMBED, in, NULL);
}

static Node *embed_token(Builder *b, const Vision *vision, const char *name, Node *x) {
    const int64_t dim[] = {1, 1, vision->width};
    Node *const in[4] = {x, build_param(b, name, INIT_TRUNC_NORMAL, 3, dim)};
    return build_op(b, "prepend_token", ROLE_TOKEN, in, NULL);
}

Node *vision_embed(Builder *b, const Vision *vision, bool distillation) {
    b->stack = STACK_EMBEDDINGS;
    Node *x = vision_patches(b, vision);
    if (distillation) x = embed_token(b, vision, "embeddings.distillation_token", x);
    x = embed_token(b, vision, "embeddings.cls_token", x);
    const int64_t dim[] = {1, x->type.dim[1], vision->width};
    Node *position =
        build_param(b, "embeddings.position_embeddings", INIT_TRUNC_NORMAL, 3, dim);
    return build_dropout(b, vision->dropout, build_add(b, ROLE_POSITION, x, position));
}

const char *vision_part(Builder *b, const char *name) {
    return arena_printf(b->model->arena, "encoder.layer.%d.%s", b->layer, name);
}

Node *vision_attend(Builder *b, const Vision *vision, Node *x) {
    bool bias = vision->qkv_bias;
    int64_t width = vision->width;
    Node *q = build_linear(b, ROLE_Q, vision_part(b, "attention.attention.query"), x,
                           width, bias);
    Node *k = build_linear(b, ROLE_K, vision_part(b, "attention.attention.key"), x, width,
                           bias);
    Node *v = build_linear(b, ROLE_V, vision_part(b, "attention.attention.value"), x,
                           width, bias);
    Node *const in[4] = {q, k, v};
    x = build_op(b, "attention", ROLE_ATTENTION, in, "heads=%lld",
                 (long long)vision->heads);
    return build_linear(b, ROLE_OUT, vision_part(b, "attention.output.dense"), x, width,
                        true);
}

static Node *encode_layer(Builder *b, const Vision *vision, Node *x) {
    Node *norm = build_layer_norm(b, ROLE_NORM1, vision_part(b, "layernorm_before"), x,
                                  vision->eps);
    Node *attended = build_dropout(b, vision->dropout, vision_attend(b, vision, norm));
    x = build_add(b, ROLE_RESIDUAL1, x, attended);
    norm = build_layer_norm(b, ROLE_NORM2, vision_part(b, "layernorm_after"), x,
                            vision->eps);
    Node *fed = build_linear(b, ROLE_FFN_IN, vision_part(b, "intermediate.dense"), norm,
                             vision->hidden, true);
    fed = build_op(b, "activation", ROLE_FFN_ACT, (Node *[4]){fed}, "fn=%s", vision->act);
    fed = build_linear(b, ROLE_FFN_OUT, vision_part(b, "output.dense"), fed,
                       vision->width, true);
    return build_add(b, ROLE_RESIDUAL2, x, build_dropout(b, vision->dropout, fed));
}

Node *vision_encode_layers(Builder *b, const Vision *vision, VisionLayer *encode,
                           Node *x) {
    b->stack = STACK_ENCODER;
    for (int i = 0; i < vision->layers && b->status == STATUS_OK; i++) {
        b->layer = i;
        x = encode(b, vision, x);
    }
    b->layer = -1;
    x = build_layer_norm(b, ROLE_FINAL_NORM, "layernorm", x, vision->eps);
    build_output(b, OUTPUT_STATES, x);
    return x;
}

Node *vision_encode(Builder *b, const Vision *vision, Node *x) {
    return vision_encode_layers(b, vision, encode_layer, x);
}

Node *vision_classify(Builder *b, Role role, const char *name, Node *x, int index,
                      int64_t labels) {
    b->stack = STACK_HEAD;
    Node *const in[4] = {x};
    Node *token = build_op(b, "select_token", ROLE_POOL, in, "index=%d", index);
    return build_linear(b, role, name, token, labels, true);
}

void vision_pool(Builder *b, const Vision *vision, Node *x) {
    static const char KEY[] = "pooler_act";
    const int64_t width =
        build_config_int(b, "pooler_output_size", &vision->width, 1, BUILD_WIDTH_MAX);
    const bool tanh = strcmp(build_config_string(b, KEY, "tanh"), "tanh") == 0;
    const char *act = tanh ? "tanh" : build_config_activation(b, KEY, "tanh");
    b->stack = STACK_HEAD;
    x = build_op(b, "select_token", ROLE_POOL, (Node *[4]){x}, "index=0");
    x = build_linear(b, ROLE_NONE, "pooler.dense", x, width, true);
    build_output(b, OUTPUT_POOLER,
                 build_op(b, "activation", ROLE_NONE, (Node *[4]){x}, "fn=%s", act));
}

const OptionalOutput vision_optional[] = {{OUTPUT_POOLER, "pooler.dense.weight"},
                                          {NULL, NULL}};

bool vision_spare(const char *tensor) {
    static const char *const POOLER[] = {"pooler.dense.weight", "pooler.dense.bias"};
    const char *dot = strchr(tensor, '.');
    const bool trunk =
        strncmp(tensor, "vit.", 4) == 0 || strncmp(tensor, "deit.", 5) == 0;
    const char *name = trunk ? dot + 1 : tensor;
    return strcmp(name, POOLER[0]) == 0 || strcmp(name, POOLER[1]) == 0;
}

const char *vision_rename(Arena *arena, const char *tensor) {
    (void)arena;
    return text_ends_with(tensor, "embeddings.mask_token") ? NULL : tensor;
}
