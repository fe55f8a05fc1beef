/* Ops that put elements elsewhere, whatever the shape: reshape, transpose, expand, slice,
 * gather, concat. Their gradients go the same way back, summed where an element was taken
 * several times. */
#include "exec/infer.h"
#include "exec/ops/gradient.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/strides.h"

static const Operand ANY[] = {{"x", OPERAND_REQUIRED, "any shape"}, {NULL, 0, NULL}};

/* Copies what a walk over the result finds of value 0, the operand, to it in order. */
static void take_elements(const Call *call, Strides s) {
    const int64_t n = s.dim[0], step = s.step[0][0];
    REAL *to = call->out.data;
    do {
        const REAL *x = (const REAL *)call->in[0].data + s.at[0];
        if (step == 1)
            put_row(to, x, n, false);
        else
            for (int64_t j = 0; j < n; j++) to[j] = x[j * step];
        to += n;
    } while (strides_next(&s));
}

/* The way back: adds the result's gradient in order to where the walk finds value 0. */
static void add_elements(const Call *call, Strides s) {
    const int64_t n = s.dim[0], step = s.step[0][0];
    REAL *dx = gradient_to_add(call, 0);
    if (!dx) return;
    const REAL *from = call->d_out.data;
    do {
        REAL *x = dx + s.at[0];
        for (int64_t j = 0; j < n; j++) x[j * step] += from[j];
        from += n;
    } while (strides_next(&s));
}

/* ---- reshape ---- */

static const Field RESHAPE_FIELDS[] = {F_STRING(ShapeAttrs, shape,
                                                "of the result: \"N, T, 12, 64\"",
                                                .empty = true, .dims = true),
                                       F_END};
static const ShapeAttrs SHAPE_DEFAULTS = {.shape = ""};

static Status reshape_infer(const Node *node, Type *out, Diag *diag) {
    const Type *x = &node->in[0]->type;
    int64_t have, want;
    TRY(infer_spelled(node, "shape", ((const ShapeAttrs *)node->attrs)->shape, out,
                      diag));
    if (dims_product(x->rank, x->dim, &have) &&
        dims_product(out->rank, out->dim, &want) && have == want)
        return STATUS_OK;
    return infer_fail(node, 0, diag, "as many elements as in [%.120s]",
                      ((const ShapeAttrs *)node->attrs)->shape);
}

static void reshape_forward(const Call *call) {
    put_row(call->out.data, call->in[0].data, call->out.count, false);
}

static void reshape_backward(const Call *call) {
    const View *dx = &call->d_in[0];
    if (dx->data) put_row(dx->data, call->d_out.data, dx->count, dx->accumulate);
}

OP_RECORD(reshape) = {
    OP_ID(reshape),
    .summary = "the same elements in another shape",
    .operands = ANY,
    .fields = RESHAPE_FIELDS,
    .attrs_size = sizeof(ShapeAttrs),
    .defaults = &SHAPE_DEFAULTS,
    .traits = OP_TENSOR,
    .infer = reshape_infer,
};

KERNEL(reshape) = {
    .forward = reshape_forward,
    .backward = reshape_backward,
};

/* ---- transpose ---- */

static const Field TRANSPOSE_FIELDS[] = {F_INTS(AxesAttrs, axes, 0, RANK_MAX - 1,
                                                "dimensions of x in their new order",
                                                .required = true, .empty = true),
                                         F_END};

static Status transpose_infer(const Node *node, Type *out, Diag *diag) {
    const IntList *axes = &((const AxesAttrs *)node->attrs)->axes;
    const Type *x = &node->in[0]->type;
    unsigned seen = 0;
    for (int i = 0; i < axes->count && i < RANK_MAX; i++) {
        TRY(infer_axis(node, "axes", axes->items[i], diag));
        seen |= 1u << axes->items[i];
        out->dim[i] = x->dim[axes->items[i]];
    }
    if (axes->count != x->rank || seen != (1u << x->rank) - 1)
        return infer_fail_attr(node, "axes", diag, "each of the %d dimensions of x once",
                               x->rank);
    out->dtype = DTYPE_F32;
    out->rank = x->rank;
    return STATUS_OK;
}

/* The walk over the result with the place of each element in x. */
static Strides transpose_strides(const Call *call, const View *out) {
    const IntList *axes = &((const AxesAttrs *)call->attrs)->axes;
    int64_t each[RANK_MAX] = {0}, step[RANK_MAX] = {0}, size = 1;
    for (int d = out->rank - 1; d >= 0; d--) {
        each[d] = size;
        size *= call->in[0].dim[d];
    }
    for (int i = 0; i < out->rank; i++) step[out->rank - 1 - i] = each[axes->items[i]];
    Strides s = strides_over(out);
    strides_add(&s, step, 0);
    strides_ready(&s);
    return s;
}

static void transpose_forward(const Call *call) {
    take_elements(call, transpose_strides(call, &call->out));
}

static void transpose_backward(const Call *call) {
    add_elements(call, transpose_strides(call, &call->d_out));
}

OP_RECORD(transpose) = {
    OP_ID(transpose),
    .summary = "dimensions in another order",
    .operands = ANY,
    .fields = TRANSPOSE_FIELDS,
    .attrs_size = sizeof(AxesAttrs),
    .traits = OP_TENSOR,
    .infer = transpose_infer,
};

KERNEL(transpose) = {
    .forward = transpose_forward,
    .backward = transpose_backward,
};

/* ---- expand ---- */

static Status expand_infer(const Node *node, Type *out, Diag *diag) {
    const Type *x = &node->in[0]->type;
    char text[DIM_TEXT_BYTES];
    TRY(infer_spelled(node, "shape", ((const ShapeAttrs *)node->attrs)->shape, out,
                      diag));
    if (x->rank > out->rank)
        return infer_fail(node, 0, diag, "a rank of at most %d", out->rank);
    for (int d = 0; d < x->rank; d++) {
        const int64_t dim = out->dim[d + out->rank - x->rank];
        if (x->dim[d] != dim && x->dim[d] != 1)
            return infer_fail(node, 0, diag, "%s (as in the shape) or 1 as dimension %d",
                              dim_text(text, dim), d);
    }
    return STATUS_OK;
}

static Strides expand_strides(const Call *call, const View *out) {
    Strides s = strides_over(out);
    strides_repeat(&s, &call->in[0]);
    strides_ready(&s);
    return s;
}

static void expand_forward(const Call *call) {
    take_elements(call, expand_strides(call, &call->out));
}

static void expand_backward(const Call *call) {
    add_elements(call, expand_strides(call, &call->d_out));
}

OP_RECORD(expand) = {
    OP_ID(expand),
    .summary = "x repeated along dimensions that it lacks in front, or where it has 1",
    .operands = ANY,
    .fields = RESHAPE_FIELDS,
    .attrs_size = sizeof(ShapeAttrs),
    .defaults = &SHAPE_DEFAULTS,
    .traits = OP_TENSOR,
    .infer = expand_infer,
};

KERNEL(expand) = {
    .forward = expand_forward,
    .backward = expand_backward,
};

/* ---- slice ---- */

static const Field SLICE_FIELDS[] = {
    F_INT(SliceAttrs, axis, 0, RANK_MAX - 1, "dimension of x that is cut"),
    F_INT(SliceAttrs, start, -(1LL << 40), 1LL << 40,
          "first index taken; negative ones count from the end"),
    F_INT(SliceAttrs, step, -(1LL << 40), 1LL << 40, "from one index to the next"),
    F_STRING(SliceAttrs, size, "how many are taken: \"64\", \"T\"", .dims = true), F_END};
static const SliceAttrs SLICE_DEFAULTS = {.step = 1, .size = "1"};

static int64_t slice_start(const SliceAttrs *a, int64_t dim) {
    return a->start < 0 ? a->start + dim : a->start;
}

/* Whether the indices of a slice lie in a dimension. */
static bool slice_fits(const SliceAttrs *a, int64_t size, int64_t dim) {
    const int64_t start = slice_start(a, dim);
    int64_t way, last;
    return start >= 0 && start < dim &&
           !__builtin_mul_overflow(size - 1, a->step, &way) &&
           !__builtin_add_overflow(start, way, &last) && last >= 0 && last < dim;
}

static Status slice_infer(const Node *node, Type *out, Diag *diag) {
    const SliceAttrs *a = node->attrs;
    Type size;
    TRY(infer_axis(node, "axis", a->axis, diag));
    TRY(infer_apart(node, node->in[0]->type.dim[a->axis], diag));
    TRY(infer_spelled(node, "size", a->size, &size, diag));
    if (size.rank != 1 || a->step == 0)
        return infer_fail_attr(node, "step, size", diag,
                               "a step that is not 0, one size");
    *out = node->in[0]->type;
    const int64_t dim = out->dim[a->axis];
    const bool turned = a->start == -1 && a->step == -1 && size.dim[0] == dim;
    if (size.dim[0] < 0 && !turned && (a->start < 0 || a->step < 0))
        return infer_fail_attr(node, "start, step", diag,
                               "above 0 where the size is a symbol, or both -1 and all");
    if (size.dim[0] > 0 && dim > 0 && !slice_fits(a, size.dim[0], dim))
        return infer_fail(node, 0, diag,
                          "room for %lld steps of %lld from index %lld as dimension %lld",
                          (long long)(size.dim[0] - 1), (long long)a->step,
                          (long long)a->start, (long long)a->axis);
    out->dim[a->axis] = size.dim[0];
    out->dtype = DTYPE_F32;
    return STATUS_OK;
}

static Status slice_check(const Call *call, Diag *diag) {
    const SliceAttrs *a = call->attrs;
    const int64_t size = call->out.dim[a->axis], dim = call->in[0].dim[a->axis];
    if (slice_fits(a, size, dim)) return STATUS_OK;
    return diag_fail(diag, STATUS_MODEL, call->node->loc, NULL,
                     "slice: %lld from index %lld of dimension %lld asked for, which has "
                     "%lld",
                     (long long)size, (long long)a->start, (long long)a->axis,
                     (long long)dim);
}

static Strides slice_strides(const Call *call, const View *out) {
    const SliceAttrs *a = call->attrs;
    int64_t step[RANK_MAX] = {0}, each = 1, start = 0;
    for (int i = 0; i < out->rank; i++) {
        const int d = out->rank - 1 - i;
        step[i] = d == a->axis ? a->step * each : each;
        if (d == a->axis) start = slice_start(a, call->in[0].dim[d]) * each;
        each *= call->in[0].dim[d];
    }
    Strides s = strides_over(out);
    strides_add(&s, step, start);
    strides_ready(&s);
    return s;
}

static void slice_forward(const Call *call) {
    take_elements(call, slice_strides(call, &call->out));
}

static void slice_backward(const Call *call) {
    add_elements(call, slice_strides(call, &call->d_out));
}

OP_RECORD(slice) = {
    OP_ID(slice),
    .summary = "every step-th index of one dimension",
    .operands = ANY,
    .fields = SLICE_FIELDS,
    .attrs_size = sizeof(SliceAttrs),
    .defaults = &SLICE_DEFAULTS,
    .traits = OP_TENSOR,
    .infer = slice_infer,
    .check = slice_check,
};

KERNEL(slice) = {
    .forward = slice_forward,
    .backward = slice_backward,
};

/* ---- gather ---- */

static const Operand GATHER[] = {
    {"x", OPERAND_REQUIRED, "any shape of rank 1 and more"},
    {"indices", OPERAND_REQUIRED | OPERAND_CONSTANT,
     "real numbers that are integers, any shape; negative ones count from the end"},
    {NULL, 0, NULL}};
static const Field GATHER_FIELDS[] = {
    F_INT(AxisAttrs, axis, 0, RANK_MAX - 1, "dimension of x that is indexed"), F_END};

static Status gather_infer(const Node *node, Type *out, Diag *diag) {
    const int64_t axis = ((const AxisAttrs *)node->attrs)->axis;
    const Type *x = &node->in[0]->type, *at = &node->in[1]->type;
    TRY(infer_axis(node, "axis", axis, diag));
    TRY(infer_apart(node, x->dim[axis], diag));
    if (x->rank - 1 + at->rank > RANK_MAX)
        return infer_fail(node, 1, diag, "a rank of at most %d", RANK_MAX + 1 - x->rank);
    *out = (Type){.dtype = DTYPE_F32};
    for (int d = 0; d < axis; d++) out->dim[out->rank++] = x->dim[d];
    for (int d = 0; d < at->rank; d++) out->dim[out->rank++] = at->dim[d];
    for (int d = (int)axis + 1; d < x->rank; d++) out->dim[out->rank++] = x->dim[d];
    return infer_samples(node, out, diag);
}

/* A computed index is kept inside of the dimension, wherever it points. */
static int64_t index_in(REAL index, int64_t size) {
    const REAL whole = (REAL)trunc((double)index);
    const REAL at = whole < 0 ? whole + (REAL)size : whole;
    return at >= 0 && at < (REAL)size ? (int64_t)at : at > 0 ? size - 1 : 0;
}

/* Puts rows of x into `y` or, for gradients, adds those of y to it. */
static void gather_rows(const Call *call, REAL *x, REAL *y, bool back) {
    const View *shape = &call->in[0], *at = &call->in[1];
    const int64_t axis = ((const AxisAttrs *)call->attrs)->axis, n = shape->dim[axis];
    const int64_t inner = view_step(shape, axis);
    for (int64_t o = 0; o < shape->count / (n * inner); o++, x += n * inner)
        for (int64_t i = 0; i < at->count; i++, y += inner) {
            REAL *row = x + index_in(((const REAL *)at->data)[i], n) * inner;
            put_row(back ? row : y, back ? y : row, inner, back);
        }
}

static void gather_forward(const Call *call) {
    gather_rows(call, call->in[0].data, call->out.data, false);
}

static void gather_backward(const Call *call) {
    REAL *dx = gradient_to_add(call, 0);
    if (dx) gather_rows(call, dx, call->d_out.data, true);
}

OP_RECORD(gather) = {
    OP_ID(gather),
    .summary = "the parts of x along one dimension that computed indices name",
    .operands = GATHER,
    .fields = GATHER_FIELDS,
    .attrs_size = sizeof(AxisAttrs),
    .traits = OP_TENSOR,
    .reads = READS_IN(1),
    .infer = gather_infer,
};

KERNEL(gather) = {
    .forward = gather_forward,
    .backward = gather_backward,
};

/* ---- concat ---- */

static const Operand CONCAT[] = {
    {"x", OPERAND_REQUIRED | OPERAND_VARIADIC, "one shape but for the joined dimension"},
    {NULL, 0, NULL}};
static const Field CONCAT_FIELDS[] = {
    F_INT(AxisAttrs, axis, 0, RANK_MAX - 1, "dimension that is joined"), F_END};

static Status concat_infer(const Node *node, Type *out, Diag *diag) {
    const int64_t axis = ((const AxisAttrs *)node->attrs)->axis;
    TRY(infer_axis(node, "axis", axis, diag));
    *out = node->in[0]->type;
    for (int i = 1; i < node->in_count; i++) {
        const Type *x = &node->in[i]->type;
        TRY(infer_rank(node, i, out->rank, out->rank, diag));
        for (int d = 0; d < out->rank; d++)
            if (d != axis) TRY(infer_dim(node, i, d, out->dim[d], "the first x", diag));
        if (x->dim[axis] < 0 || out->dim[axis] < 0 ||
            __builtin_add_overflow(out->dim[axis], x->dim[axis], &out->dim[axis]))
            return infer_fail(node, i, diag, "numbers as dimension %lld of all",
                              (long long)axis);
    }
    return STATUS_OK;
}

/* Elements of a value that follow each other in the joined one. */
static int64_t block_of(const Call *call, const View *x) {
    const int64_t axis = ((const AxisAttrs *)call->attrs)->axis;
    return x->dim[axis] * view_step(x, axis);
}

static void concat_forward(const Call *call) {
    const int64_t all = block_of(call, &call->out);
    REAL *y = call->out.data;
    for (int i = 0; i < call->in_count; i++) {
        const int64_t part = block_of(call, &call->in[i]);
        for (int64_t o = 0; o < call->out.count / all; o++)
            put_row(y + o * all, (const REAL *)call->in[i].data + o * part, part, false);
        y += part;
    }
}

static void concat_backward(const Call *call) {
    const int64_t all = block_of(call, &call->d_out);
    const REAL *dy = call->d_out.data;
    for (int i = 0; i < call->in_count; i++) {
        const int64_t part = block_of(call, &call->in[i]);
        const bool add = gradient_adds(call, i);
        REAL *dx = gradient_of(call, i);
        for (int64_t o = 0; dx && o < call->d_out.count / all; o++)
            put_row(dx + o * part, dy + o * all, part, add);
        dy += part;
    }
}

OP_RECORD(concat) = {
    OP_ID(concat),
    .summary = "values one after the other along one dimension",
    .operands = CONCAT,
    .fields = CONCAT_FIELDS,
    .attrs_size = sizeof(AxisAttrs),
    .traits = OP_TENSOR,
    .infer = concat_infer,
};

KERNEL(concat) = {
    .forward = concat_forward,
    .backward = concat_backward,
};
