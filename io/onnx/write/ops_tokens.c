/* Ops that cut, move, pick and average tokens, and the convolution over their grid. */
#include "io/onnx/write/onnx_export.h"

/* ---- grids ---- */

const char *onnx_op_patches(OnnxExport *x, const Node *node) {
    const int64_t *in = node->in[0]->type.dim, p = node_integer(node, "size");
    const char *y = ONNX_RESHAPE(x->b, onnx_operand(x, node, 0), 0, in[1], in[2] / p, p,
                                 in[3] / p, p);
    y = ONNX_TRANSPOSE(x->b, y, 0, 2, 4, 1, 3, 5);
    return ONNX_RESHAPE(x->b, y, 0, node->type.dim[1], node->type.dim[2]);
}

/* A grid of tokens [N, h, w, D] padded with zeros to whole windows of `window`. */
static const char *pad_grid(OnnxBuild *b, const char *y, int64_t below, int64_t right) {
    if (below == 0 && right == 0) return y;
    return ONNX_NODE(b, "Pad", y, ONNX_VECTOR(b, 0, 0, 0, 0, 0, below, right, 0));
}

/* y[.., i, ..] = x[.., (i + by) mod size, ..] along an axis. */
static const char *turn(OnnxBuild *b, const char *y, int64_t by, int64_t axis) {
    const char *at = ONNX_VECTOR(b, by);
    const char *behind = onnx_slice(b, y, at, ONNX_VECTOR(b, INT64_MAX), axis);
    return onnx_concat(b, axis, behind, onnx_slice(b, y, ONNX_VECTOR(b, 0), at, axis));
}

/* How a grid is cut. */
typedef struct Cut {
    int64_t height, width, window, shift, down, across, full_height, full_width;
} Cut;

static Cut cut_of(const Node *node, int64_t window) {
    Cut c = {.height = node_integer(node, "grid_h"),
             .width = node_integer(node, "grid_w"),
             .window = window,
             .shift = node_integer(node, "shift")};
    c.down = (c.height + window - 1) / window;
    c.across = (c.width + window - 1) / window;
    c.full_height = c.down * window;
    c.full_width = c.across * window;
    return c;
}

const char *onnx_op_window_partition(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b;
    const Cut c = cut_of(node, node_integer(node, "window"));
    const int64_t D = node->type.dim[2];
    const char *y = ONNX_RESHAPE(b, onnx_operand(x, node, 0), 0, c.height, c.width, D);
    y = pad_grid(b, y, c.full_height - c.height, c.full_width - c.width);
    if (c.shift) y = turn(b, turn(b, y, c.shift, 1), c.shift, 2);
    y = ONNX_RESHAPE(b, y, 0, c.down, c.window, c.across, c.window, D);
    return ONNX_RESHAPE(b, ONNX_TRANSPOSE(b, y, 0, 1, 3, 2, 4, 5), 0, node->type.dim[1],
                        D);
}

const char *onnx_op_window_reverse(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b;
    const Cut c = cut_of(node, node_integer(node, "window"));
    const int64_t D = node->type.dim[2];
    const char *y = ONNX_RESHAPE(b, onnx_operand(x, node, 0), 0, c.down, c.across,
                                 c.window, c.window, D);
    y = ONNX_TRANSPOSE(b, y, 0, 1, 3, 2, 4, 5);
    y = ONNX_RESHAPE(b, y, 0, c.full_height, c.full_width, D);
    if (c.shift)
        y = turn(b, turn(b, y, c.full_height - c.shift, 1), c.full_width - c.shift, 2);
    const char *zero = ONNX_VECTOR(b, 0);
    if (c.full_height > c.height) y = onnx_slice(b, y, zero, ONNX_VECTOR(b, c.height), 1);
    if (c.full_width > c.width) y = onnx_slice(b, y, zero, ONNX_VECTOR(b, c.width), 2);
    return ONNX_RESHAPE(b, y, 0, node->type.dim[1], D);
}

/* Within 2 x 2 tokens columns come first: (0, 0), (1, 0), (0, 1), (1, 1). */
const char *onnx_op_patch_merging(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b;
    const Cut c = cut_of(node, 2);
    const int64_t D = node->type.dim[2] / 4;
    const char *y = ONNX_RESHAPE(b, onnx_operand(x, node, 0), 0, c.height, c.width, D);
    y = pad_grid(b, y, c.full_height - c.height, c.full_width - c.width);
    y = ONNX_RESHAPE(b, y, 0, c.down, 2, c.across, 2, D);
    return ONNX_RESHAPE(b, ONNX_TRANSPOSE(b, y, 0, 1, 3, 4, 2, 5), 0, node->type.dim[1],
                        node->type.dim[2]);
}

const char *onnx_op_depthwise_conv(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b;
    const int64_t skip = node_integer(node, "skip"), D = node->type.dim[2];
    const int64_t h = node_integer(node, "grid_h"), w = node_integer(node, "grid_w");
    const int64_t K = node->in[1]->type.dim[2];
    const char *y = onnx_operand(x, node, 0);
    if (skip) y = onnx_slice(b, y, ONNX_VECTOR(b, skip), ONNX_VECTOR(b, INT64_MAX), 1);
    y = ONNX_TRANSPOSE(b, ONNX_RESHAPE(b, y, 0, h, w, D), 0, 3, 1, 2);
    const char *weight = onnx_operand(x, node, 1), *bias = onnx_operand(x, node, 2);
    y = bias ? ONNX_NODE(b, "Conv", y, weight, bias) : ONNX_NODE(b, "Conv", y, weight);
    onnx_set_int(b, "group", D);
    onnx_set_ints(b, "kernel_shape", ONNX_I64S(K, K), 2);
    onnx_set_ints(b, "pads", ONNX_I64S(K / 2, K / 2, K / 2, K / 2), 4);
    y = ONNX_RESHAPE(b, ONNX_TRANSPOSE(b, y, 0, 2, 3, 1), 0, h * w, D);
    return skip ? ONNX_NODE(b, "Pad", y, ONNX_VECTOR(b, 0, skip, 0, 0, 0, 0)) : y;
}

/* ---- tokens ---- */

const char *onnx_op_prepend_token(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b;
    const char *tokens = onnx_operand(x, node, 0);
    const char *shape = ONNX_NODE(b, "Concat", onnx_dim(b, tokens, 0),
                                  ONNX_VECTOR(b, 1, node->type.dim[2]));
    onnx_set_int(b, "axis", 0);
    const char *token = onnx_operand(x, node, 1);
    return onnx_concat(b, 1, ONNX_NODE(b, "Expand", token, shape), tokens);
}

const char *onnx_op_slice_tokens(OnnxExport *x, const Node *node) {
    const int64_t from = node_integer(node, "from");
    const char *tokens = onnx_operand(x, node, 0);
    return from ? onnx_slice(x->b, tokens, ONNX_VECTOR(x->b, from),
                             ONNX_VECTOR(x->b, INT64_MAX), 1)
                : tokens;
}

const char *onnx_op_select_token(OnnxExport *x, const Node *node) {
    return onnx_gather(x->b, onnx_operand(x, node, 0),
                       onnx_i64(x->b, node_integer(node, "index")), 1);
}

const char *onnx_op_gather_tokens(OnnxExport *x, const Node *node) {
    const char *at = onnx_unsqueeze(x->b, onnx_operand(x, node, 1), 2);
    const char *y = ONNX_NODE(x->b, "GatherND", onnx_operand(x, node, 0), at);
    onnx_set_int(x->b, "batch_dims", 1);
    return y;
}

static const char *sum_tokens(OnnxBuild *b, const char *y) {
    y = ONNX_NODE(b, "ReduceSum", y, ONNX_VECTOR(b, 1));
    onnx_set_int(b, "keepdims", 0);
    return y;
}

const char *onnx_op_mean_tokens(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b;
    const char *tokens = onnx_operand(x, node, 0);
    if (!node_has(node, 1)) {
        const char *mean = ONNX_NODE(b, "ReduceMean", tokens);
        onnx_set_ints(b, "axes", ONNX_I64S(1), 1);
        onnx_set_int(b, "keepdims", 0);
        return mean;
    }
    const char *mask = onnx_unsqueeze(b, onnx_mask_real(x, onnx_operand(x, node, 1)), 2);
    const char *sum = sum_tokens(b, ONNX_NODE(b, "Mul", tokens, mask));
    const char *count = ONNX_NODE(b, "Max", sum_tokens(b, mask), onnx_real(b, 1));
    return ONNX_NODE(b, "Div", sum, count);
}

/* The last place with a mask is the largest of place times mask. */
const char *onnx_op_last_token(OnnxExport *x, const Node *node) {
    OnnxBuild *b = x->b;
    const char *tokens = onnx_operand(x, node, 0);
    if (!node_has(node, 1)) return onnx_gather(b, tokens, onnx_i64(b, -1), 1);
    const char *mask =
        onnx_cast(b, onnx_cast(b, onnx_operand(x, node, 1), ONNX_BOOL), ONNX_I64);
    const char *length = onnx_dim(b, tokens, 1);
    const char *places = onnx_range(b, ONNX_VECTOR(b, 0), length);
    const char *at = ONNX_NODE(b, "ReduceMax", ONNX_NODE(b, "Mul", mask, places));
    onnx_set_ints(b, "axes", ONNX_I64S(1), 1);
    onnx_set_int(b, "keepdims", 1);
    const char *y = ONNX_NODE(b, "GatherND", tokens, at);
    onnx_set_int(b, "batch_dims", 1);
    return y;
}
