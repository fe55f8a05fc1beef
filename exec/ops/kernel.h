/* Kernel interface: what an op's forward and backward receive.
 *
 * Files under exec/ops/ are compiled twice: with REAL = float for work, and with REAL =
 * double (-DREAL_IS_DOUBLE) for gradient checks and exactness checks. Everything they
 * export goes through OP(name), so both can be linked together. */
#ifndef COMPRESS_EXEC_OPS_KERNEL_H
#define COMPRESS_EXEC_OPS_KERNEL_H

#include "exec/ops.h"
#include "ir/graph.h"

#ifdef REAL_IS_DOUBLE
typedef double REAL;
#define OP(name)      op_##name##_f64
#define REAL_FN(name) name##_f64
#else
typedef float REAL;
#define OP(name)      op_##name
#define REAL_FN(name) name##_f32
#endif

/* One value a kernel works on. `data` is REAL * or int32_t *; NULL when the operand is
 * absent, or for gradients when nobody wants them. */
typedef struct View {
    void *data;
    int rank;
    int64_t dim[RANK_MAX]; /* all bound, > 0 */
    int64_t count;
    bool accumulate; /* gradients: add to what is there; else overwrite all of it */
} View;

/* Call: one execution of one node. Kernels allocate nothing and cannot fail: everything
 * that can be wrong was checked by infer, and integers by the run that bound the inputs.
 */
typedef struct Call {
    const Node *node;
    const void *attrs;
    int in_count;
    const View *in; /* values of the operands, indexed as in Node.in */
    View out;
    const View *d_in; /* backward: gradients to write, per operand */
    View d_out;       /* backward: gradient of the result; read only */
    void *aux;        /* op->aux_bytes, kept from forward to backward */
    void *scratch;    /* op->scratch_bytes, 64-byte aligned, contents undefined */
    uint64_t key;     /* random key of this step and node; for OP_STOCHASTIC */
    int64_t first;    /* index within the whole mini-batch of this call's first sample */
    double rows;      /* ops with count_rows: what the sum over rows is divided by; that
                         of this call, or its samples' share of the mini-batch's; with 0
                         the loss is 0 */
    bool training;
} Call;

/* What operand `i` holds; NULL when it is absent. */
static inline const void *call_data(const Call *call, int i) {
    return node_has(call->node, i) ? call->in[i].data : NULL;
}

/* Size helpers: last dimension, and the number of rows before it. */
static inline int64_t view_last(const View *v) {
    return v->dim[v->rank - 1];
}
static inline int64_t view_rows(const View *v) {
    return v->count / view_last(v);
}

#endif
