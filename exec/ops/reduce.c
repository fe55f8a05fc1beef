/* reduce(x): fn over some dimensions; dx = dy, for the mean divided by how many are
 * reduced, for the largest and smallest where x is that. cumsum(x): sums along one
 * dimension; its gradient is the same from the other end. */
#include "exec/infer.h"
#include "exec/ops/gradient.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/strides.h"

static const Operand ANY[] = {{"x", OPERAND_REQUIRED, "any shape"}, {NULL, 0, NULL}};

/* ---- reduce ---- */

static const Field FIELDS[] = {
    F_CHOICE(ReduceAttrs, fn, "sum|mean|max|min", "what becomes of the elements"),
    F_INTS(ReduceAttrs, axes, 0, RANK_MAX - 1, "dimensions that are reduced",
           .required = true),
    F_BOOL(ReduceAttrs, keep, "they stay, as dimensions of 1"), F_END};

static Status infer(const Node *node, Type *out, Diag *diag) {
    const ReduceAttrs *a = node->attrs;
    const Type *x = &node->in[0]->type;
    unsigned reduced = 0;
    for (int i = 0; i < a->axes.count; i++) {
        TRY(infer_axis(node, "axes", a->axes.items[i], diag));
        if (reduced >> a->axes.items[i] & 1)
            return infer_fail_attr(node, "axes", diag, "each dimension once");
        TRY(infer_apart(node, x->dim[a->axes.items[i]], diag));
        reduced |= 1u << a->axes.items[i];
    }
    *out = (Type){.dtype = DTYPE_F32};
    for (int d = 0; d < x->rank; d++)
        if (a->keep || !(reduced >> d & 1))
            out->dim[out->rank++] = reduced >> d & 1 ? 1 : x->dim[d];
    return STATUS_OK;
}

/* The walk over x with the place of each element's result. */
static Strides reduce_strides(const Call *call, const View *x) {
    const ReduceAttrs *a = call->attrs;
    View kept = *x;
    for (int i = 0; i < a->axes.count; i++) kept.dim[a->axes.items[i]] = 1;
    Strides s = strides_over(x);
    strides_repeat(&s, &kept);
    strides_ready(&s);
    return s;
}

static void sum_elements(Strides *s, const REAL *x, REAL *y, int64_t count) {
    const int64_t n = s->dim[0], step = s->step[0][0];
    memset(y, 0, (size_t)count * sizeof *y);
    do {
        REAL *to = y + s->at[0];
        if (step == 0)
            *to += row_sum(x, n);
        else
            for (int64_t j = 0; j < n; j++) to[j * step] += x[j];
        x += n;
    } while (strides_next(s));
}

/* The largest elements, or with sign = -1 the smallest. */
static void find_extremes(Strides *s, const REAL *x, REAL *y, int64_t count, REAL sign) {
    const int64_t n = s->dim[0], step = s->step[0][0];
    for (int64_t i = 0; i < count; i++) y[i] = -sign * (REAL)INFINITY;
    do {
        REAL *to = y + s->at[0];
        for (int64_t j = 0; j < n; j++)
            if (sign * x[j] > sign * to[j * step]) to[j * step] = x[j];
        x += n;
    } while (strides_next(s));
}

static void forward(const Call *call) {
    const int fn = ((const ReduceAttrs *)call->attrs)->fn;
    Strides s = reduce_strides(call, &call->in[0]);
    REAL *y = call->out.data;
    const int64_t count = call->out.count;
    if (fn == REDUCE_MAX || fn == REDUCE_MIN) {
        find_extremes(&s, call->in[0].data, y, count, fn == REDUCE_MAX ? 1 : -1);
        return;
    }
    sum_elements(&s, call->in[0].data, y, count);
    if (fn == REDUCE_MEAN)
        for (int64_t i = 0; i < count; i++) y[i] *= (REAL)count / (REAL)call->in[0].count;
}

static void backward(const Call *call) {
    const int fn = ((const ReduceAttrs *)call->attrs)->fn;
    const bool extreme = fn == REDUCE_MAX || fn == REDUCE_MIN;
    REAL *dx = gradient_to_add(call, 0);
    if (!dx) return;
    Strides s = reduce_strides(call, &call->in[0]);
    const int64_t n = s.dim[0], step = s.step[0][0];
    const REAL *x = call->in[0].data, *y = call->out.data, *dy = call->d_out.data;
    const REAL by =
        fn == REDUCE_MEAN ? (REAL)call->d_out.count / (REAL)call->in[0].count : 1;
    do {
        for (int64_t j = 0; j < n; j++) {
            const int64_t at = s.at[0] + j * step;
            if (!extreme || x[j] == y[at]) dx[j] += by * dy[at];
        }
        x += n;
        dx += n;
    } while (strides_next(&s));
}

OP_RECORD(reduce) = {
    OP_ID(reduce),
    .summary = "sum, mean, largest or smallest over some dimensions",
    .operands = ANY,
    .fields = FIELDS,
    .attrs_size = sizeof(ReduceAttrs),
    .traits = OP_TENSOR,
    .reads = READS_IN(0) | READS_OUT,
    .infer = infer,
};

KERNEL(reduce) = {
    .forward = forward,
    .backward = backward,
};

/* ---- cumsum ---- */

static const Field CUMSUM_FIELDS[] = {
    F_INT(CumsumAttrs, axis, 0, RANK_MAX - 1, "dimension that is summed along"),
    F_BOOL(CumsumAttrs, exclusive, "an index's own element is left out"),
    F_BOOL(CumsumAttrs, reverse, "from the last index on"), F_END};

static Status cumsum_infer(const Node *node, Type *out, Diag *diag) {
    const int64_t axis = ((const CumsumAttrs *)node->attrs)->axis;
    TRY(infer_axis(node, "axis", axis, diag));
    *out = node->in[0]->type;
    return infer_apart(node, out->dim[axis], diag);
}

/* y (+)= the sums of x, from one end or the other. */
static void sum_along(const Call *call, const REAL *x, const View *y, bool reverse) {
    const CumsumAttrs *a = call->attrs;
    const int64_t n = y->dim[a->axis];
    const int64_t step = view_step(y, a->axis), lines = y->count / n;
    for (int64_t i = 0; i < lines; i++) {
        const int64_t first = i / step * step * n + i % step;
        REAL sum = 0;
        for (int64_t k = 0; k < n; k++) {
            const int64_t at = first + step * (reverse ? n - 1 - k : k);
            const REAL next = sum + x[at], value = a->exclusive ? sum : next;
            REAL *to = (REAL *)y->data + at;
            *to = (y->accumulate ? *to : 0) + value;
            sum = next;
        }
    }
}

static void cumsum_forward(const Call *call) {
    sum_along(call, call->in[0].data, &call->out,
              ((const CumsumAttrs *)call->attrs)->reverse);
}

static void cumsum_backward(const Call *call) {
    if (call->d_in[0].data)
        sum_along(call, call->d_out.data, &call->d_in[0],
                  !((const CumsumAttrs *)call->attrs)->reverse);
}

OP_RECORD(cumsum) = {
    OP_ID(cumsum),
    .summary = "sums up to each index of one dimension",
    .operands = ANY,
    .fields = CUMSUM_FIELDS,
    .attrs_size = sizeof(CumsumAttrs),
    .traits = OP_TENSOR,
    .infer = cumsum_infer,
};

KERNEL(cumsum) = {
    .forward = cumsum_forward,
    .backward = cumsum_backward,
};
