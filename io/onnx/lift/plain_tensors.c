/* Plain ops of operators that put elements elsewhere, multiply matrices or make tensors
 * of sizes. See lift_plain.h. */
#include "io/onnx/lift/lift_plain.h"
#include "io/onnx/net/eval.h"

static const Array *shape_in(const NetNode *node, int i) {
    const NetValue *value = net_operand(node, i);
    return value ? value->probe[0] : NULL;
}

/* ---- shapes ---- */

/* Reshape, Flatten, Squeeze, Unsqueeze: the probes know the shape. */
static Node *rule_reshape(Lift *lift, NetNode *node, NetValue *value) {
    return plain_shaped(lift, value, plain_operand(lift, node, 0));
}

static Node *rule_expand(Lift *lift, NetNode *node, NetValue *value) {
    Node *x = plain_operand(lift, node, 0);
    const char *shape = x ? plain_shape(lift, value, true) : NULL;
    return shape ? lift_op(lift, node, "expand", &x, 1, "shape=\"%s\"", shape) : NULL;
}

static Node *rule_fill(Lift *lift, NetNode *node, NetValue *value) {
    const Array *array = value->probe[0];
    const char *shape = plain_shape(lift, value, true);
    if (!shape || !array->data || array->count == 0) return NULL;
    return plain_fill(lift, node, array->data[0], shape);
}

/* start + delta (0, 1, 2, ...). */
static Node *rule_range(Lift *lift, NetNode *node, NetValue *value) {
    double start, delta;
    const char *shape = plain_shape(lift, value, true);
    if (!shape || !plain_number(node, 0, &start) || !plain_number(node, 2, &delta))
        return NULL;
    Node *x = plain_fill(lift, node, delta, shape);
    x = x ? lift_op(lift, node, "cumsum", &x, 1, "axis=0 exclusive=true") : NULL;
    return start == 0 ? x : plain_with(lift, node, "add", x, start);
}

static Node *transposed(Lift *lift, const NetNode *node, Node *x, const int *axes) {
    const char *text = "";
    bool moves = false;
    if (!x) return NULL;
    for (int d = 0; d < x->type.rank; d++) {
        text = arena_printf(lift->arena, "%s%s%d", text, d ? ", " : "", axes[d]);
        moves = moves || axes[d] != d;
    }
    return moves ? lift_op(lift, node, "transpose", &x, 1, "axes=[%s]", text) : x;
}

/* With two dimensions in each other's place. */
static Node *swapped(Lift *lift, const NetNode *node, Node *x, int a, int b) {
    int axes[RANK_MAX];
    for (int d = 0; d < RANK_MAX; d++) axes[d] = d == a ? b : d == b ? a : d;
    return transposed(lift, node, x, axes);
}

static Node *rule_transpose(Lift *lift, NetNode *node, NetValue *value) {
    Node *x = plain_operand(lift, node, 0);
    int axes[RANK_MAX], count = 0;
    const int64_t *list = net_ints(node, "perm", &count);
    (void)value;
    if (!x || (list && count != x->type.rank)) return NULL;
    for (int d = 0; d < x->type.rank; d++)
        axes[d] = list ? (int)list[d] : x->type.rank - 1 - d;
    return transposed(lift, node, x, axes);
}

/* ---- parts ---- */

/* `count` elements of a dimension from `start` on; all of them is x itself. */
static Node *part(Lift *lift, const NetNode *node, Node *x, int axis, int64_t start,
                  int64_t step, int64_t count) {
    char size[DIM_TEXT_BYTES];
    if (!x || (x->type.dim[axis] == count && start == 0 && step == 1)) return x;
    return lift_op(lift, node, "slice", &x, 1, "axis=%d start=%lld step=%lld size=\"%s\"",
                   axis, (long long)start, (long long)step, dim_text(size, count));
}

/* Number `i` of an operand (or, before they were operands, attribute): the same in both
 * probes. `fallback` where the operand is absent. */
static bool listed(const NetNode *node, int operand, const char *name, int i,
                   int64_t fallback, int64_t *out) {
    int count = 0;
    const int64_t *list = net_ints(node, name, &count);
    const NetValue *value = net_operand(node, operand);
    *out = fallback;
    if (!value) {
        if (list && i < count) *out = list[i];
        return !list || i < count;
    }
    for (int p = 0; p < NET_PROBES; p++) {
        const Array *array = value->probe[p];
        if (!array || !array->data || i >= array->count) return false;
        const int64_t number = eval_integer(array->data[i]);
        if (p > 0 && number != *out) return false;
        *out = number;
    }
    return true;
}

/* Where an end follows from sizes and is no number, the size of the result tells it; one
 * that is a number would cut off what is longer than the probes. */
static bool is_open_end(const NetNode *node, int i, int64_t step) {
    int64_t end;
    if (!listed(node, 2, "ends", i, INT64_MAX, &end)) return true;
    return step > 0 ? end >= INT32_MAX : end <= -INT32_MAX;
}

/* Size of a result's dimension: that of the operand where it is the same, or what only
 * the probes know. */
static bool size_of_result(const Lift *lift, const NetNode *node, int axis, int64_t same,
                           int64_t *size) {
    const NetValue *x = node->in[0], *y = node->out[0];
    bool equal = true;
    for (int p = 0; p < NET_PROBES; p++)
        equal = equal && x->probe[p]->dim[axis] == y->probe[p]->dim[axis];
    if (equal) return *size = same, true;
    return plain_dim(lift, y, axis, size);
}

/* The slice of one dimension. */
static Node *slice_axis(Lift *lift, const NetNode *node, Node *x, int i) {
    int64_t start, step, at, count;
    int axis;
    if (!listed(node, 3, "axes", i, i, &at) || !eval_axis(at, x->type.rank, &axis) ||
        !listed(node, 4, "steps", i, 1, &step) || step == 0)
        return lift_stop(lift, node, "its axes or steps follow from sizes");
    if (!listed(node, 1, "starts", i, 0, &start))
        return lift_stop(lift, node, "where it begins follows from sizes");
    const int64_t size = x->type.dim[axis];
    if (!size_of_result(lift, node, axis, size, &count))
        return lift_stop(lift, node, "its size is none of ours");
    if (count < 0 && count != size && step != 1)
        return lift_stop(lift, node, "its length follows from sizes, its step is not 1");
    if (count < 0 && !is_open_end(node, i, step))
        return lift_stop(lift, node, "its end is a number, its length is not");
    if (size >= 0 && start < 0) start = start < -size ? 0 : start + size;
    if (size >= 0 && start >= size) start = size - 1;
    if (size < 0 && step < 0 && start >= INT32_MAX) start = -1;
    return part(lift, node, x, axis, start, step, count);
}

static Node *rule_slice(Lift *lift, NetNode *node, NetValue *value) {
    Node *x = plain_operand(lift, node, 0);
    int axes = 0;
    const bool attribute = net_ints(node, "starts", &axes) != NULL;
    if (!attribute && shape_in(node, 1)) axes = (int)shape_in(node, 1)->count;
    if (!x || !value->probe[0] || !value->probe[1]) return NULL;
    for (int i = 0; i < axes && x; i++) x = slice_axis(lift, node, x, i);
    return x;
}

static Node *rule_split(Lift *lift, NetNode *node, NetValue *value) {
    Node *x = plain_operand(lift, node, 0);
    int64_t start = 0;
    int axis;
    if (!x || !eval_axis(net_int(node, "axis", 0), x->type.rank, &axis)) return NULL;
    for (int i = 0; i < value->slot; i++) {
        const Array *before = node->out[i] ? node->out[i]->probe[0] : NULL;
        if (!before) return lift_stop(lift, node, "one of its results has no name");
        start += before->dim[axis];
    }
    if (x->type.dim[axis] < 0)
        return lift_stop(lift, node, "it splits a dimension of samples or tokens");
    return part(lift, node, x, axis, start, 1, value->probe[0]->dim[axis]);
}

static bool is_empty(const NetValue *value) {
    for (int p = 0; p < NET_PROBES; p++)
        if (!value->probe[p] || value->probe[p]->count > 0) return false;
    return true;
}

static Node *joined(Lift *lift, const NetNode *node, Node **in, int count, int axis) {
    return count == 1 ? in[0] : lift_op(lift, node, "concat", in, count, "axis=%d", axis);
}

static Node *rule_concat(Lift *lift, NetNode *node, NetValue *value) {
    Node **in = ARENA_ARRAY(lift->arena, Node *, (size_t)node->in_count + 1);
    int count = 0, axis;
    for (int i = 0; i < node->in_count; i++) {
        if (node->in[i] && is_empty(node->in[i])) continue; /* no earlier tokens */
        in[count] = plain_operand(lift, node, i);
        if (!in[count++]) return NULL;
    }
    if (count == 0 || !eval_axis(net_int(node, "axis", 0), value->probe[0]->rank, &axis))
        return NULL;
    return joined(lift, node, in, count, axis);
}

/* Copies side by side, dimension by dimension. */
static Node *rule_tile(Lift *lift, NetNode *node, NetValue *value) {
    Node *x = plain_operand(lift, node, 0);
    (void)value;
    for (int d = 0; x && d < x->type.rank; d++) {
        int64_t times;
        if (!listed(node, 1, "", d, 1, &times) || times < 1 || times > 64)
            return lift_stop(lift, node, "how often it repeats follows from sizes");
        Node *in[64];
        for (int i = 0; i < times; i++) in[i] = x;
        x = joined(lift, node, in, (int)times, d);
    }
    return x;
}

/* Numbers in front of a dimension and behind it. */
static Node *padded(Lift *lift, const NetNode *node, Node *x, int axis, int64_t before,
                    int64_t after, double number) {
    Node *in[3];
    int count = 0;
    for (int i = 0; i < 3; i++) {
        const int64_t size = i == 0 ? before : after;
        const char *shape = "";
        if (i == 1) in[count++] = x;
        if (i == 1 || size == 0) continue;
        for (int d = 0; d < x->type.rank; d++) {
            char dim[DIM_TEXT_BYTES];
            dim_text(dim, d == axis ? size : x->type.dim[d]);
            shape = arena_printf(lift->arena, "%s%s%s", shape, d ? ", " : "", dim);
        }
        in[count] = plain_fill(lift, node, number, shape);
        if (!in[count++]) return NULL;
    }
    return joined(lift, node, in, count, axis);
}

/* Axes may be given since version 18; a negative number takes elements away. */
static Node *rule_pad(Lift *lift, NetNode *node, NetValue *value) {
    Node *x = plain_operand(lift, node, 0);
    double number = net_real(node, "value", 0);
    (void)value;
    if (!x || !net_string_is(node, "mode", "constant", "constant") || shape_in(node, 3))
        return lift_stop(lift, node, "only constants on all axes are padded with");
    if (shape_in(node, 2) && !plain_number(node, 2, &number)) return NULL;
    const int rank = x->type.rank;
    for (int d = 0; d < rank && x; d++) {
        int64_t before, after;
        if (!listed(node, 1, "pads", d, 0, &before) ||
            !listed(node, 1, "pads", rank + d, 0, &after))
            return lift_stop(lift, node, "how much it pads follows from sizes");
        const int64_t size = x->type.dim[d], cut = (before < 0) * before,
                      end = (after < 0) * after;
        if (cut || end) x = part(lift, node, x, d, -cut, 1, size + cut + end);
        if (x && (before > 0 || after > 0))
            x = padded(lift, node, x, d, before > 0 ? before : 0, after > 0 ? after : 0,
                       number);
    }
    return x;
}

/* Elements at (row, column) where column - row >= k, or <= k. */
static Node *rule_trilu(Lift *lift, NetNode *node, NetValue *value) {
    Node *x = plain_operand(lift, node, 0), *place[2];
    double k = 0;
    (void)value;
    if (!x || x->type.rank < 2) return NULL;
    if (shape_in(node, 1) && !plain_number(node, 1, &k)) return NULL;
    const bool upper = net_int(node, "upper", 1) != 0;
    const int rank = x->type.rank;
    for (int i = 0; i < 2; i++) {
        char dim[DIM_TEXT_BYTES];
        dim_text(dim, x->type.dim[rank - 2 + i]);
        Node *ones = plain_fill(lift, node, 1,
                                arena_printf(lift->arena, i ? "1, %s" : "%s, 1", dim));
        place[i] = ones ? lift_op(lift, node, "cumsum", &ones, 1, "axis=%d", i) : NULL;
    }
    Node *off = plain_binary(lift, node, "subtract", place[1], place[0]);
    Node *in[2] = {plain_with(lift, node, upper ? "greater" : "less", off,
                              upper ? k - 0.5 : k + 0.5),
                   x};
    return in[0] ? lift_op(lift, node, "where", in, 2, NULL) : NULL;
}

/* One constant index is a slice. */
static Node *rule_gather(Lift *lift, NetNode *node, NetValue *value) {
    double number;
    int axis;
    Node *in[2] = {plain_operand(lift, node, 0)};
    if (!in[0] || !eval_axis(net_int(node, "axis", 0), in[0]->type.rank, &axis))
        return NULL;
    if (plain_number(node, 1, &number))
        return plain_shaped(lift, value,
                            part(lift, node, in[0], axis, eval_integer(number), 1, 1));
    in[1] = plain_operand(lift, node, 1);
    return in[1] ? lift_op(lift, node, "gather", in, 2, "axis=%d", axis) : NULL;
}

/* ---- products ---- */

/* Vectors are matrices of one row, or of one column on the right. */
static Node *product(Lift *lift, const NetNode *node, Node *a, Node *b) {
    char dim[DIM_TEXT_BYTES];
    Node *in[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        if (!in[i]) return NULL;
        if (in[i]->type.rank != 1) continue;
        dim_text(dim, in[i]->type.dim[0]);
        in[i] = lift_op(lift, node, "reshape", &in[i], 1,
                        i ? "shape=\"%s, 1\"" : "shape=\"1, %s\"", dim);
        if (!in[i]) return NULL;
    }
    return lift_op(lift, node, "matmul", in, 2, NULL);
}

/* MatMul, FusedMatMul and Gemm: transposed operands, factors, something added. */
static Node *rule_product(Lift *lift, NetNode *node, NetValue *value) {
    const bool gemm = net_is(node, "Gemm");
    const char *const TURNED[2] = {"transA", "transB"};
    Node *in[2], *y;
    if (net_int(node, "transBatchA", 0) || net_int(node, "transBatchB", 0)) return NULL;
    for (int i = 0; i < 2; i++) {
        in[i] = plain_operand(lift, node, i);
        const int rank = in[i] ? in[i]->type.rank : 0;
        if (rank > 1 && net_int(node, TURNED[i], 0))
            in[i] = swapped(lift, node, in[i], rank - 2, rank - 1);
    }
    y = plain_scaled(lift, node, product(lift, node, in[0], in[1]),
                     net_real(node, "alpha", 1));
    if (gemm && y && shape_in(node, 2)) {
        Node *c = plain_operand(lift, node, 2);
        y = plain_binary(lift, node, "add", y,
                         plain_scaled(lift, node, c, net_real(node, "beta", 1)));
    }
    return plain_shaped(lift, value, y);
}

/* ---- over one dimension ---- */

/* x with what stands from a dimension on in one, as versions before 13 ask for it. */
static Node *flattened(Lift *lift, const NetNode *node, Node *x, int axis) {
    int64_t dim[RANK_MAX];
    char text[DIMS_TEXT_BYTES];
    for (int d = 0; d < axis; d++) dim[d] = x->type.dim[d];
    if (!dims_product(x->type.rank - axis, x->type.dim + axis, &dim[axis])) return NULL;
    return lift_op(lift, node, "reshape", &x, 1, "shape=\"%s\"",
                   dims_text(text, axis + 1, dim));
}

/* x - max - log(sum(exp(x - max))) over the last dimension. */
static Node *log_softmax(Lift *lift, const NetNode *node, Node *x) {
    const int along = x->type.rank - 1;
    Node *most =
        lift_op(lift, node, "reduce", &x, 1, "fn=max axes=[%d] keep=true", along);
    Node *y = plain_binary(lift, node, "subtract", x, most);
    Node *sum = plain_unary(lift, node, "exp", y);
    if (!sum) return NULL;
    sum = lift_op(lift, node, "reduce", &sum, 1, "fn=sum axes=[%d] keep=true", along);
    return plain_binary(lift, node, "subtract", y, plain_unary(lift, node, "log", sum));
}

static Node *rule_softmax(Lift *lift, NetNode *node, NetValue *value) {
    Node *x = plain_operand(lift, node, 0);
    int axis;
    const bool old = lift->net->opset < 13;
    if (!x || !eval_axis(net_int(node, "axis", old ? 1 : -1), x->type.rank, &axis))
        return NULL;
    const int last = x->type.rank - 1;
    x = old ? flattened(lift, node, x, axis) : swapped(lift, node, x, axis, last);
    if (!x) return NULL;
    if (dim_power(x->type.dim[x->type.rank - 1], DIM_N))
        return lift_stop(lift, node, "it is over samples, which stay apart");
    Node *y = net_is(node, "LogSoftmax") ? log_softmax(lift, node, x)
                                         : lift_op(lift, node, "softmax", &x, 1, NULL);
    return old ? plain_shaped(lift, value, y) : swapped(lift, node, y, axis, last);
}

/* Means over all but samples and channels. */
static Node *rule_global_pool(Lift *lift, NetNode *node, NetValue *value) {
    Node *x = plain_operand(lift, node, 0);
    const char *axes = "2";
    (void)value;
    if (!x || x->type.rank < 3) return NULL;
    for (int d = 3; d < x->type.rank; d++)
        axes = arena_printf(lift->arena, "%s, %d", axes, d);
    return lift_op(lift, node, "reduce", &x, 1, "fn=mean axes=[%s] keep=true", axes);
}

const PlainRow plain_tensor_rows[] = {{"Reshape", rule_reshape, NULL},
                                      {"Flatten", rule_reshape, NULL},
                                      {"Squeeze", rule_reshape, NULL},
                                      {"Unsqueeze", rule_reshape, NULL},
                                      {"Expand", rule_expand, NULL},
                                      {"ConstantOfShape", rule_fill, NULL},
                                      {"Range", rule_range, NULL},
                                      {"Transpose", rule_transpose, NULL},
                                      {"Slice", rule_slice, NULL},
                                      {"Split", rule_split, NULL},
                                      {"Concat", rule_concat, NULL},
                                      {"Tile", rule_tile, NULL},
                                      {"Pad", rule_pad, NULL},
                                      {"Trilu", rule_trilu, NULL},
                                      {"Gather", rule_gather, NULL},
                                      {"MatMul", rule_product, NULL},
                                      {"Gemm", rule_product, NULL},
                                      {"com.microsoft.FusedMatMul", rule_product, NULL},
                                      {"Softmax", rule_softmax, NULL},
                                      {"LogSoftmax", rule_softmax, NULL},
                                      {"GlobalAveragePool", rule_global_pool, NULL},
                                      {NULL, NULL, NULL}};
