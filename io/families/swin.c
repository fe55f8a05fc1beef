/* Swin: vision transformer with attention in shifted windows (Liu et al., ICCV 2021).
 *
 * Layers are numbered through all stages; patch merging stands between two stages, in the
 * encoder but in no layer. As in transformers, windows are not shifted where the smaller
 * side of the grid is one window, and the grid is padded with zeros after the norm:
 * attention sees the padding. */
#include "io/families/vision.h"

#include <string.h>

enum { STAGES_MAX = 16 };

typedef struct Swin {
    Vision vision; /* of the current stage: width, heads, hidden */
    int stages;
    int64_t depths[STAGES_MAX], heads[STAGES_MAX];
    int64_t window, rows, columns; /* of the current stage's grid */
    double mlp_ratio;
    bool absolute;
} Swin;

/* ---- configuration ---- */

/* A list of `count` integers, or of 1 to STAGES_MAX when `count` is 0; returns how many
 * there are. */
static int config_list(Builder *b, const char *key, int count, int64_t max,
                       int64_t *out) {
    const Tree *value = build_config_value(b, key);
    bool good = value && value->kind == TREE_LIST && value->count >= 1 &&
                value->count <= STAGES_MAX && (!count || value->count == count);
    int n = 0;
    for (const Tree *item = good ? value->first : NULL; item; item = item->next) {
        good &= item->kind == TREE_INT && item->integer >= 1 && item->integer <= max;
        out[n++] = good ? item->integer : 1;
    }
    if (good || b->status != STATUS_OK) return n;
    b->status =
        diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, key), key,
                  count ? "expected a list of %d integers from 1 to %lld, one for "
                          "each entry of depths"
                        : "expected a list of 1 to %d integers from 1 to %lld",
                  count ? count : STAGES_MAX, (long long)max);
    return 1;
}

static void config_stages(Builder *b, Swin *swin) {
    swin->stages = config_list(b, "depths", 0, BUILD_LAYERS_MAX, swin->depths);
    config_list(b, "num_heads", swin->stages, BUILD_WIDTH_MAX, swin->heads);
    int64_t stages = swin->stages,
            found = build_config_int(b, "num_layers", &stages, 1, STAGES_MAX);
    if (b->status == STATUS_OK && found != stages)
        b->status = diag_fail(
            b->diag, STATUS_MODEL, build_config_loc(b, "num_layers"), "num_layers",
            "expected the number of entries of depths, %lld, found %lld",
            (long long)stages, (long long)found);
}

static Builder begin(Swin *swin, Model *model, Diag *diag) {
    Builder b = {.model = model, .diag = diag, .layer = -1, .prefix = ""};
    const double std = 0.02, eps = 1e-5, ratio = 4;
    const int64_t channels = 3, window = 7;
    *swin = (Swin){0};
    Vision *vision = &swin->vision;
    vision->width = build_config_int(&b, "embed_dim", NULL, 1, BUILD_WIDTH_MAX);
    config_stages(&b, swin);
    vision->channels = build_config_int(&b, "num_channels", &channels, 1, 1 << 10);
    vision_config_image(&b, vision);
    swin->window = build_config_int(&b, "window_size", &window, 1, 1 << 10);
    swin->mlp_ratio = build_config_real(&b, "mlp_ratio", &ratio, 1e-3, 1e3);
    swin->absolute = build_config_bool(&b, "use_absolute_embeddings", false);
    vision->qkv_bias = build_config_bool(&b, "qkv_bias", true);
    vision->act = build_config_activation(&b, "hidden_act", "gelu");
    vision->eps = build_config_real(&b, "layer_norm_eps", &eps, 0, 1);
    vision->dropout = build_config_dropout(&b, "hidden_dropout_prob", 0);
    build_config_attention_dropout(&b, "attention_probs_dropout_prob");
    /* Rates of a branch left out of a sample during training. */
    build_config_left_out(&b, "drop_path_rate", "stochastic depth");
    b.std = build_config_real(&b, "initializer_range", &std, 0, 100);
    return b;
}

/* Width, heads and grid of a stage must fit. */
static void check_stage(Builder *b, const Swin *swin, int stage) {
    const Vision *vision = &swin->vision;
    if (b->status != STATUS_OK) return;
    if (vision->width > BUILD_WIDTH_MAX || vision->hidden > BUILD_FFN_MAX ||
        vision->hidden < 1)
        b->status = diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, "embed_dim"),
                              "embed_dim",
                              "expected widths that fit, found width %lld and %lld "
                              "feed-forward units in stage %d",
                              (long long)vision->width, (long long)vision->hidden, stage);
    else if (vision->width % vision->heads != 0)
        b->status = diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, "num_heads"),
                              "num_heads",
                              "expected a divisor of width %lld in stage %d, found %lld",
                              (long long)vision->width, stage, (long long)vision->heads);
    else if (swin->rows < swin->window || swin->columns < swin->window) {
        b->status = diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, "window_size"),
                              "window_size",
                              "expected windows no larger than the %lld x %lld tokens of "
                              "stage %d, found %lld",
                              (long long)swin->rows, (long long)swin->columns, stage,
                              (long long)swin->window);
        diag_hint(b->diag,
                  "a larger image_size or a smaller patch_size gives more tokens");
    }
}

/* ---- layers ---- */

/* Storage name of one part of a layer. */
static const char *part(const Builder *b, int stage, int block, const char *name) {
    return arena_printf(b->model->arena, "encoder.layers.%d.blocks.%d.%s", stage, block,
                        name);
}

/* Attributes of everything that works on the windows of a layer. */
static const char *window_attrs(const Builder *b, const Swin *swin, int block) {
    const int64_t least = swin->rows < swin->columns ? swin->rows : swin->columns;
    const int64_t shift = block % 2 && least > swin->window ? swin->window / 2 : 0;
    return arena_printf(b->model->arena, "grid_h=%lld grid_w=%lld window=%lld shift=%lld",
                        (long long)swin->rows, (long long)swin->columns,
                        (long long)swin->window, (long long)shift);
}

static Node *attend(Builder *b, const Swin *swin, int stage, int block, Node *x) {
    const Vision *vision = &swin->vision;
    const int64_t width = vision->width, side = 2 * swin->window - 1;
    const bool bias = vision->qkv_bias;
    Node *const q = build_linear(b, ROLE_Q, part(b, stage, block, "attention.self.query"),
                                 x, width, bias);
    Node *const k = build_linear(b, ROLE_K, part(b, stage, block, "attention.self.key"),
                                 x, width, bias);
    Node *const v = build_linear(b, ROLE_V, part(b, stage, block, "attention.self.value"),
                                 x, width, bias);
    Node *const table = build_param(
        b, part(b, stage, block, "attention.self.relative_position_bias_table"),
        INIT_TRUNC_NORMAL, 2, (const int64_t[]){side * side, vision->heads});
    x = build_op(b, "attention", ROLE_ATTENTION, (Node *[4]){q, k, v}, "heads=%lld %s",
                 (long long)vision->heads, window_attrs(b, swin, block));
    build_operand(b, x, "rel_bias", table);
    return build_linear(b, ROLE_OUT, part(b, stage, block, "attention.output.dense"), x,
                        width, true);
}

static Node *encode_layer(Builder *b, const Swin *swin, int stage, int block, Node *x) {
    const Vision *vision = &swin->vision;
    const char *attrs = window_attrs(b, swin, block);
    Node *y = build_layer_norm(b, ROLE_NORM1, part(b, stage, block, "layernorm_before"),
                               x, vision->eps);
    y = build_op(b, "window_partition", ROLE_WINDOWS, (Node *[4]){y}, "%s", attrs);
    y = attend(b, swin, stage, block, y);
    y = build_op(b, "window_reverse", ROLE_GRID, (Node *[4]){y}, "%s", attrs);
    x = build_add(b, ROLE_RESIDUAL1, x, build_dropout(b, vision->dropout, y));
    y = build_layer_norm(b, ROLE_NORM2, part(b, stage, block, "layernorm_after"), x,
                         vision->eps);
    y = build_linear(b, ROLE_FFN_IN, part(b, stage, block, "intermediate.dense"), y,
                     vision->hidden, true);
    y = build_op(b, "activation", ROLE_FFN_ACT, (Node *[4]){y}, "fn=%s", vision->act);
    y = build_linear(b, ROLE_FFN_OUT, part(b, stage, block, "output.dense"), y,
                     vision->width, true);
    return build_add(b, ROLE_RESIDUAL2, x, build_dropout(b, vision->dropout, y));
}

/* ---- stages ---- */

/* 2 x 2 tokens become one of twice the width. */
static Node *merge(Builder *b, Swin *swin, int stage, Node *x) {
    const double eps = 1e-5;
    const char *at = arena_printf(b->model->arena, "encoder.layers.%d.downsample", stage);
    b->layer = -1;
    x = build_op(b, "patch_merging", ROLE_MERGE, (Node *[4]){x},
                 "grid_h=%lld grid_w=%lld", (long long)swin->rows,
                 (long long)swin->columns);
    x = build_layer_norm(b, ROLE_MERGE_NORM, arena_printf(b->model->arena, "%s.norm", at),
                         x, eps);
    swin->rows = (swin->rows + 1) / 2;
    swin->columns = (swin->columns + 1) / 2;
    swin->vision.width *= 2;
    return build_linear(b, ROLE_MERGE_OUT,
                        arena_printf(b->model->arena, "%s.reduction", at), x,
                        swin->vision.width, false);
}

static Node *encode(Builder *b, Swin *swin, Node *x) {
    Vision *vision = &swin->vision;
    int layer = 0;
    b->stack = STACK_ENCODER;
    for (int stage = 0; stage < swin->stages && b->status == STATUS_OK; stage++) {
        if (stage) x = merge(b, swin, stage - 1, x);
        vision->heads = swin->heads[stage];
        vision->hidden = (int64_t)((double)vision->width * swin->mlp_ratio);
        check_stage(b, swin, stage);
        for (int i = 0; i < swin->depths[stage] && b->status == STATUS_OK; i++) {
            b->layer = layer++;
            x = encode_layer(b, swin, stage, i, x);
        }
    }
    b->layer = -1;
    x = build_layer_norm(b, ROLE_FINAL_NORM, "layernorm", x, vision->eps);
    build_output(b, OUTPUT_STATES, x);
    return x;
}

static Node *embed(Builder *b, Swin *swin) {
    const Vision *vision = &swin->vision;
    const double eps = 1e-5;
    b->stack = STACK_EMBEDDINGS;
    swin->rows = vision->height_px / (vision->patch ? vision->patch : 1);
    swin->columns = vision->width_px / (vision->patch ? vision->patch : 1);
    Node *x = build_layer_norm(b, ROLE_NORM0, "embeddings.norm",
                               vision_patches(b, vision), eps);
    if (swin->absolute) {
        const int64_t dim[] = {1, swin->rows * swin->columns, vision->width};
        Node *table =
            build_param(b, "embeddings.position_embeddings", INIT_TRUNC_NORMAL, 3, dim);
        x = build_add(b, ROLE_POSITION, x, table);
    }
    return build_dropout(b, vision->dropout, x);
}

static const char *const CLASSES[] = {"SwinForImageClassification", "SwinModel", NULL};

static Status build(Model *model, Diag *diag) {
    Swin swin;
    Builder b = begin(&swin, model, diag);
    const bool plain = strcmp(build_config_architecture(&b, CLASSES), "SwinModel") == 0;
    b.prefix = plain ? "" : "swin.";
    Node *x = encode(&b, &swin, embed(&b, &swin));
    b.stack = STACK_HEAD;
    x = build_op(&b, "mean_tokens", ROLE_POOL, (Node *[4]){x}, NULL);
    build_output(&b, OUTPUT_POOLER, x);
    if (plain) return b.status;
    b.prefix = "";
    const int64_t labels = build_config_labels(&b);
    x = build_linear(&b, ROLE_HEAD, "classifier", x, labels, true);
    build_logits(&b, build_config_problem(&b, labels), x);
    return b.status;
}

/* Indices into the tables of relative positions, and mask tokens, are left out. */
static const char *rename_tensor(Arena *arena, const char *tensor) {
    (void)arena;
    const char *dot = strrchr(tensor, '.');
    const char *last = dot ? dot + 1 : tensor;
    const bool unused =
        strcmp(last, "relative_position_index") == 0 || strcmp(last, "mask_token") == 0;
    return unused ? NULL : tensor;
}

/* relative_position_index of the layer that a table belongs to: for two tokens of a
 * window the row of the table, as the attention op counts it (dy (2 w - 1) + dx, from the
 * lower right corner). */
static Status constant(const char **name, Tensor *out, Arena *arena, const Graph *graph,
                       int i, Diag *diag) {
    static const char END[] = "relative_position_bias_table";
    *name = NULL;
    for (const Node *node = graph->first; node; node = node->next) {
        if (node->role != ROLE_ATTENTION || i-- > 0) continue;
        const char *table = node_operand(node, "rel_bias")->storage->name;
        const int64_t window = node_integer(node, "window"), count = window * window;
        void *data;
        *name = arena_printf(arena, "%.*srelative_position_index",
                             (int)(strlen(table) - strlen(END)), table);
        TRY(tensor_create(out, DTYPE_I64, 2, (const int64_t[]){count, count}, diag));
        TRY(tensor_writable(out, &data, diag));
        for (int64_t q = 0; q < count; q++)
            for (int64_t k = 0; k < count; k++)
                ((int64_t *)data)[q * count + k] =
                    (q / window - k / window + window - 1) * (2 * window - 1) +
                    q % window - k % window + window - 1;
        return STATUS_OK;
    }
    return STATUS_OK;
}

/* The classifier, where the bare model is read from a checkpoint that has one. */
static bool is_spare(const char *tensor) {
    return strncmp(tensor, "classifier.", 11) == 0;
}

static const char *const HEADS[] = {"classifier.", NULL};

static const SizeKey SIZES[] = {{"depths", SIZE_LAYERS, STACK_ENCODER, true},
                                {"num_heads", SIZE_HEADS, STACK_ENCODER, true},
                                {"head_dim", SIZE_HEAD_WIDTH, STACK_ENCODER, false},
                                {"mlp_ratio", SIZE_FFN_RATIO, STACK_ENCODER, false},
                                {NULL}};

const Family family_swin = {.model_type = "swin",
                            .summary = "Swin: vision transformer with shifted windows",
                            .classes = CLASSES,
                            .build = build,
                            .sizes = SIZES,
                            .rename = rename_tensor,
                            .constant = constant,
                            .prefix = "swin.",
                            .spare = is_spare,
                            .heads = HEADS};
