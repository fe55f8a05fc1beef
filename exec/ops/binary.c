/* binary(a[...], b[...]?): y = fn(a, b), each repeated as NumPy does it, and
 * where(condition, a?, b?): a where the condition is above 0, else b; an absent operand
 * is a number. A gradient is summed over what was repeated. */
#include "exec/infer.h"
#include "exec/ops/gradient.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/strides.h"

/* ---- binary ---- */

static const Operand OPERANDS[] = {
    {"a", OPERAND_REQUIRED, "any shape"},
    {"b", OPERAND_OPTIONAL, "a shape that goes with it; absent: `number`"},
    {NULL, 0, NULL}};

static const Field FIELDS[] = {
    F_CHOICE(BinaryAttrs, fn, BINARY_NAMES, "function; comparisons give 1 and 0"),
    F_REAL(BinaryAttrs, number, 0, 0, "in place of b where that is absent"), F_END};

static Status infer(const Node *node, Type *out, Diag *diag) {
    return infer_broadcast(node, 2, out, diag);
}

KERNEL_INLINE REAL power(REAL a, REAL b) {
    return b == 2 ? a * a : b == 1 ? a : (REAL)pow((double)a, (double)b);
}

KERNEL_INLINE REAL value_of(BinaryFn fn, REAL a, REAL b) {
    switch (fn) {
    case BINARY_ADD: return a + b;
    case BINARY_SUBTRACT: return a - b;
    case BINARY_MULTIPLY: return a * b;
    case BINARY_DIVIDE: return a / b;
    case BINARY_POWER: return power(a, b);
    case BINARY_MINIMUM: return a < b ? a : b;
    case BINARY_MAXIMUM: return a > b ? a : b;
    case BINARY_EQUAL: return a == b;
    case BINARY_LESS: return a < b;
    default: return a > b;
    }
}

/* Derivatives for a and for b. */
KERNEL_INLINE REAL slope_a(BinaryFn fn, REAL a, REAL b) {
    switch (fn) {
    case BINARY_ADD:
    case BINARY_SUBTRACT: return 1;
    case BINARY_MULTIPLY: return b;
    case BINARY_DIVIDE: return 1 / b;
    case BINARY_POWER: return b == 0 ? 0 : b * power(a, b - 1);
    case BINARY_MINIMUM: return a < b;
    case BINARY_MAXIMUM: return a > b;
    default: return 0;
    }
}

KERNEL_INLINE REAL slope_b(BinaryFn fn, REAL a, REAL b) {
    switch (fn) {
    case BINARY_ADD: return 1;
    case BINARY_SUBTRACT: return -1;
    case BINARY_MULTIPLY: return a;
    case BINARY_DIVIDE: return -a / (b * b);
    case BINARY_POWER: return a > 0 ? power(a, b) * (REAL)log((double)a) : 0;
    case BINARY_MINIMUM: return a < b ? (REAL)0 : (REAL)1;
    case BINARY_MAXIMUM: return a > b ? (REAL)0 : (REAL)1;
    default: return 0;
    }
}

/* The walk over the result with both operands, and where they are: b may be a number. */
typedef struct Pair {
    Strides s;
    const REAL *a, *b;
    REAL number;
    BinaryFn fn;
} Pair;

static void pair_start(Pair *p, const Call *call, const View *shape) {
    const BinaryAttrs *attrs = call->attrs;
    *p = (Pair){.s = strides_over(shape),
                .a = call->in[0].data,
                .number = (REAL)attrs->number,
                .fn = (BinaryFn)attrs->fn};
    strides_repeat(&p->s, &call->in[0]);
    const bool number = !node_has(call->node, 1);
    strides_repeat(&p->s, number ? &(View){0} : &call->in[1]);
    p->b = number ? &p->number : call->in[1].data;
    strides_ready(&p->s);
}

static void forward(const Call *call) {
    Pair p;
    pair_start(&p, call, &call->out);
    const int64_t n = p.s.dim[0], step_a = p.s.step[0][0], step_b = p.s.step[1][0];
    REAL *restrict y = call->out.data;
    do {
        const REAL *a = p.a + p.s.at[0], *b = p.b + p.s.at[1];
        if (step_a == 1 && step_b == 1)
            for (int64_t j = 0; j < n; j++) y[j] = value_of(p.fn, a[j], b[j]);
        else
            for (int64_t j = 0; j < n; j++)
                y[j] = value_of(p.fn, a[j * step_a], b[j * step_b]);
        y += n;
    } while (strides_next(&p.s));
}

static void backward(const Call *call) {
    Pair p;
    pair_start(&p, call, &call->d_out);
    const int64_t n = p.s.dim[0], step_a = p.s.step[0][0], step_b = p.s.step[1][0];
    REAL *da = gradient_to_add(call, 0), *db = gradient_to_add(call, 1);
    const REAL *dy = call->d_out.data;
    do {
        const REAL *a = p.a + p.s.at[0], *b = p.b + p.s.at[1];
        for (int64_t j = 0; da && j < n; j++)
            da[p.s.at[0] + j * step_a] +=
                dy[j] * slope_a(p.fn, a[j * step_a], b[j * step_b]);
        for (int64_t j = 0; db && j < n; j++)
            db[p.s.at[1] + j * step_b] +=
                dy[j] * slope_b(p.fn, a[j * step_a], b[j * step_b]);
        dy += n;
    } while (strides_next(&p.s));
}

OP_RECORD(binary) = {
    OP_ID(binary),
    .summary = "a function of elements of two values, repeated to one shape",
    .operands = OPERANDS,
    .fields = FIELDS,
    .attrs_size = sizeof(BinaryAttrs),
    .traits = OP_TENSOR,
    .reads = READS_IN(0) | READS_IN(1),
    .infer = infer,
};

KERNEL(binary) = {
    .forward = forward,
    .backward = backward,
};

/* ---- where ---- */

static const Operand WHERE[] = {
    {"condition", OPERAND_REQUIRED | OPERAND_CONSTANT, "any shape; above 0: a is taken"},
    {"a", OPERAND_OPTIONAL, "a shape that goes with it; absent: `a_number`"},
    {"b", OPERAND_OPTIONAL, "likewise; absent: `b_number`"},
    {NULL, 0, NULL}};

static const Field WHERE_FIELDS[] = {
    F_REAL(WhereAttrs, a_number, 0, 0, "in place of a where that is absent"),
    F_REAL(WhereAttrs, b_number, 0, 0, "in place of b where that is absent"), F_END};

static Status where_infer(const Node *node, Type *out, Diag *diag) {
    return infer_broadcast(node, 3, out, diag);
}

/* The walk; absent operands stand still. */
static Strides where_strides(const Call *call, const View *shape) {
    Strides s = strides_over(shape);
    for (int i = 0; i < 3; i++)
        strides_repeat(&s, node_has(call->node, i) ? &call->in[i] : &(View){0});
    strides_ready(&s);
    return s;
}

static void where_forward(const Call *call) {
    const WhereAttrs *attrs = call->attrs;
    const REAL numbers[2] = {(REAL)attrs->a_number, (REAL)attrs->b_number};
    const REAL *a = call_data(call, 1), *b = call_data(call, 2);
    Strides s = where_strides(call, &call->out);
    const int64_t n = s.dim[0];
    REAL *restrict y = call->out.data;
    do {
        const REAL *condition = (const REAL *)call->in[0].data + s.at[0];
        const REAL *x = a ? a + s.at[1] : &numbers[0], *z = b ? b + s.at[2] : &numbers[1];
        for (int64_t j = 0; j < n; j++)
            y[j] = condition[j * s.step[0][0]] > 0 ? x[j * s.step[1][0]]
                                                   : z[j * s.step[2][0]];
        y += n;
    } while (strides_next(&s));
}

static void where_backward(const Call *call) {
    REAL *const d[2] = {gradient_to_add(call, 1), gradient_to_add(call, 2)};
    Strides s = where_strides(call, &call->d_out);
    const int64_t n = s.dim[0];
    const REAL *dy = call->d_out.data;
    do {
        const REAL *condition = (const REAL *)call->in[0].data + s.at[0];
        for (int64_t j = 0; j < n; j++) {
            const int taken = !(condition[j * s.step[0][0]] > 0);
            if (d[taken]) d[taken][s.at[1 + taken] + j * s.step[1 + taken][0]] += dy[j];
        }
        dy += n;
    } while (strides_next(&s));
}

OP_RECORD(where) = {
    OP_ID(where),
    .summary = "elements of a where the condition is above 0, else of b",
    .operands = WHERE,
    .fields = WHERE_FIELDS,
    .attrs_size = sizeof(WhereAttrs),
    .traits = OP_TENSOR,
    .reads = READS_IN(0),
    .infer = where_infer,
};

KERNEL(where) = {
    .forward = where_forward,
    .backward = where_backward,
};
