/* Kernels: what computes an op, and what its forward and backward receive.
 *
 * Files under exec/ops/ are compiled several times: with REAL = float for work, and with
 * REAL = double (-DREAL_IS_DOUBLE) for gradient checks and exactness checks. OP_SUFFIX
 * tells the sets apart (f32, f64): everything that such a file exports goes through
 * REAL_FN(name), so that all sets link together. An op's file ends with its record,
 * OP_RECORD(name) = {...}, which exists once in the program (from the set compiled with
 * OP_RECORDS), and KERNEL(name) = {...}, which exists once per set. */
#ifndef COMPRESS_EXEC_OPS_KERNEL_H
#define COMPRESS_EXEC_OPS_KERNEL_H

#include "exec/ops.h"
#include "ir/graph.h"

#ifdef REAL_IS_DOUBLE
typedef double REAL;
#else
typedef float REAL;
#endif

/* The name of this set's `name`: name_f32. */
#ifndef OP_SUFFIX
#define OP_SUFFIX f32
#endif
#define OP_JOIN_AGAIN(name, suffix) name##_##suffix
#define OP_JOIN(name, suffix)       OP_JOIN_AGAIN(name, suffix)
#define REAL_FN(name)               OP_JOIN(name, OP_SUFFIX)

/* The record of an op, and its first line: name and index, from exec/ops.def. */
#ifdef OP_RECORDS
enum OpIndex {
#define OP_ROW(id) OP_INDEX_##id,
#include "exec/ops.def"
#undef OP_ROW
};
#define OP_RECORD(id) const Op op_##id
#define OP_ID(id)     .name = #id, .index = OP_INDEX_##id
#else
#define OP_RECORD(id) static const Op record_##id __attribute__((unused))
#define OP_ID(id)     .name = #id
#endif

struct Matrix; /* exec/linalg/gemv.h */

/* One value a kernel works on. `data` is REAL * or int32_t *; NULL when the operand is
 * absent, for gradients that are not needed, and for quantised weights of inference:
 * linear gets those packed, embedding reads its storage. */
typedef struct View {
    void *data;
    const struct Matrix *packed; /* NULL = not packed; without data: floats at `data`,
                                    packed in scratch while they are multiplied */
    int rank;
    int64_t dim[RANK_MAX]; /* all bound, > 0 */
    int64_t count;
    bool accumulate; /* gradients: add to the content; else overwrite all of it */
    const struct OnednnMatrix *onednn; /* weights of linears, packed; NULL = not */
    const struct Bf16Matrix *rounded;  /* weights of products, if Call.bf16 is set */
} View;

/* Call: one execution of one node. Kernels allocate nothing and cannot fail: infer has
 * checked everything that can be wrong, and the run that bound the inputs has checked
 * integers.
 */
typedef struct Call {
    const Node *node;
    const void *attrs;
    int in_count;
    const View *in; /* values of the operands, indexed as in Node.in */
    View out;
    const View *d_in; /* backward: gradients to write, by operand */
    View d_out;       /* backward: gradient of the result; read only */
    void *aux;        /* Kernel.aux_bytes, kept from forward to backward */
    void *scratch;    /* Kernel.scratch_bytes, 64-byte aligned, contents undefined */
    uint64_t key;     /* random key of this step and node; for OP_STOCHASTIC */
    int64_t first;    /* index within the whole mini-batch of this call's first sample */
    double rows;      /* ops with count_rows: what the sum over rows is divided by; that
                         of this call, or its samples' share of the mini-batch's; with 0
                         the loss is 0 */
    bool training;
    bool bf16; /* products of linears use rounded operands: exec/ops/linear_bf16.h */
    int64_t tile, tiles; /* which of the parts that Kernel.*_tiles says; 0 of 0: all */
    int workers; /* threads that compute them, 0 = 1: used only if parts give the same
                    bytes however the call is cut */
} Call;

struct StepKernel; /* exec/generate/step.h */

/* What computes an op in one precision on one kind of processor. */
typedef struct Kernel {
    /* Bytes kept from forward to backward (statistics, masks), and bytes of scratch
     * that either function needs while it runs, for the bound types; Call.training says
     * whether the plan has a loss. NULL = none. */
    size_t (*aux_bytes)(const Call *call);
    size_t (*scratch_bytes)(const Call *call);

    void (*forward)(const Call *call);
    void (*backward)(const Call *call); /* NULL = not differentiable */

    /* Parts that forward or backward, given Call.tile and Call.tiles, may compute at the
     * same time in any order, with scratch of their own each: exec/ops/tiles.h. Below 2,
     * or NULL: the call is not cut. */
    int64_t (*forward_tiles)(const Call *call);
    int64_t (*backward_tiles)(const Call *call);

    /* One token at a time, with the state of earlier tokens; only in float. NULL = the
     * op does not take part in generation. */
    const struct StepKernel *step;
} Kernel;

#define KERNEL(id) const Kernel REAL_FN(kernel_##id)

/* One set of kernels, by Op.index. */
struct KernelTable {
    Precision precision;
    const char *set; /* "f32": OP_SUFFIX */
    const Kernel *const *kernels;
};

/* The kernels of the set that a file is compiled for. */
extern const KernelTable REAL_FN(kernel_table);

/* The kernel of an op in a set. */
static inline const Kernel *kernel_of(const KernelTable *table, const Op *op) {
    return op->kernel ? op->kernel : table->kernels[op->index];
}

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

/* Elements from one index of a dimension to the next. */
static inline int64_t view_step(const View *v, int64_t axis) {
    int64_t step = 1;
    for (int d = (int)axis + 1; d < v->rank; d++) step *= v->dim[d];
    return step;
}

#endif
