/* Op: what one kind of node is, declared once.
 *
 * The record is plain data: names, operands, attributes, shapes, FLOPs. A Kernel
 * (exec/ops/kernel.h) computes it; there is one for each precision and kind of
 * processor. ir never names an op other than the leaves below: parser and verifier
 * receive the table as an argument. */
#ifndef COMPRESS_IR_OP_H
#define COMPRESS_IR_OP_H

#include "ir/dim.h"
#include "ir/field.h"

/* Type of a node's value. Real values are F32 whatever precision they are computed in;
 * integers are I32. */
typedef struct Type {
    DType dtype;
    int rank;
    int64_t dim[RANK_MAX]; /* numbers, symbols, products: ir/dim.h */
} Type;

/* Whether two types are equal, symbols included. */
bool type_equal(const Type *a, const Type *b);

/* Elements of a type without symbols; call type_bind first. */
int64_t type_count(const Type *type);

/* Replaces symbols by sizes[DIM_INDEX(symbol)]. False when a size needed is not > 0 or
 * the product overflows. */
bool type_bind(const Type *type, const int64_t sizes[DIM_SYMBOLS], Type *out);

/* Appends "f32[N, 17, 64]". */
void type_print(Text *text, const Type *type);

typedef enum OperandFlag {
    OPERAND_REQUIRED = 0,
    OPERAND_OPTIONAL = 1, /* printed as name=%x; absent = NULL */
    OPERAND_VARIADIC = 2, /* last operand only: one or more values */
    OPERAND_INTEGER = 4,  /* the value is I32, not real */
    OPERAND_CONSTANT = 8, /* backward writes no gradient for it (a teacher's value) */
    OPERAND_SKIP = 16,    /* INDEX_SKIP is allowed among the integers: left out */
    OPERAND_UNNAMED = 32  /* optional, after the required ones, and printed like them */
} OperandFlag;

/* Marks an index that is to be left out (an unknown label). */
enum { INDEX_SKIP = -100 };

/* One operand of an op; tables end with a NULL name. */
typedef struct Operand {
    const char *name;
    int flags; /* OR of OperandFlag */
    const char *help;
} Operand;

/* Whether IR text names the operand. */
static inline bool operand_is_named(const Operand *operand) {
    return (operand->flags & OPERAND_OPTIONAL) && !(operand->flags & OPERAND_UNNAMED);
}

struct Node;   /* ir/graph.h */
struct Call;   /* exec/ops/kernel.h */
struct Kernel; /* exec/ops/kernel.h */

/* What a backward kernel reads; the planner keeps only that. */
enum {
    READS_OUT = 1u << 31,
#define READS_IN(i) (1u << (i))
    READS_ALL_IN = 0x7fffffff
};

/* What holds for an op whatever its attributes: passes and the planner ask for this
 * instead of the op's name. A row is all elements with the same indices before the last.
 * Tests compute every trait but the last from the kernels and compare, so that a missing
 * one fails just like a wrong one. */
typedef enum OpTrait {
    OP_INPUT = 1 << 0, /* a leaf: data bound by name */
    OP_PARAM = 1 << 1, /* a leaf: weights of a storage */
    OP_LEAF = OP_INPUT | OP_PARAM,
    OP_STOCHASTIC = 1 << 2,    /* may draw random numbers in training */
    OP_PASS_GRADIENT = 1 << 3, /* gradient of operand 0 equals the output's gradient */
    OP_PASS_VALUE = 1 << 4,    /* the value is that of operand 0 outside of training */
    OP_ELEMENTWISE = 1 << 5,   /* one function of elements at the same place */
    OP_PROPORTIONAL = 1 << 6,  /* elements of operand 0, times constants or weights */
    OP_ROWWISE = 1 << 7, /* a row of the result depends only on that row of the operands
                            and on weights; the position may count */
    OP_NORM = 1 << 8,    /* rows of operand 0, each to its own scale, times `weight`, plus
                            `bias` if the op has one */
    OP_PROJECTION = 1 << 9, /* linear in operand 0 and in `weight`, plus `bias` */
    OP_ATTENTION = 1 << 10, /* rows of `v` summed with weights from `q` and `k`, head by
                               head */
    OP_PICKS_TOKENS = 1 << 11, /* every row is an unchanged row of operand 0 */
    OP_LOSS = 1 << 12,         /* a number from tensors */
    OP_TENSOR = 1 << 13        /* building block of foreign graphs (io/onnx): none of its
                                  dimensions is known to be samples, tokens or heads */
} OpTrait;

typedef struct Op {
    const char *name;    /* as in IR text */
    int index;           /* in the program's table, and of its kernels in theirs */
    const char *summary; /* one line, with the formula */
    const Operand *operands;
    const Field *fields; /* attributes; NULL = none */
    size_t attrs_size;
    const void *defaults; /* struct of attrs_size bytes; NULL = zeros */
    int traits;           /* OR of OpTrait */
    unsigned reads;       /* OR of READS_; what backward reads besides d_out */
    bool couples; /* a loss that compares samples with each other: if a mini-batch is cut,
                     it is computed once, on all of its samples (exec/train/coupling.h).
                     Its operands are real [N, ...] */

    /* Checks the operands' types and attributes and gives the result's type; symbols
     * allowed. NULL for leaves, whose type is declared. Fails with STATUS_MODEL, naming
     * what was expected. */
    Status (*infer)(const struct Node *node, Type *out, Diag *diag);

    /* Integers that index something: the values of integer operand `operand` must lie in
     * [0, result); 0 = it is not an index. NULL = none is. Checked when data is
     * bound. */
    int64_t (*index_limit)(const struct Call *call, int operand);

    /* What infer cannot check while dimensions are symbols: called with bound types when
     * a graph is planned. Fails with STATUS_MODEL. NULL = nothing. */
    Status (*check)(const struct Call *call, Diag *diag);

    /* Losses that are means over rows, some of which may be left out (unknown labels,
     * padding): how many of this call's rows count. Reads integer operands only, so it
     * may be called as soon as inputs are bound. NULL = a mean over samples. */
    double (*count_rows)(const struct Call *call);

    /* Floating-point operations of one forward call on bound types (a multiply-add is
     * 2); NULL = memory-bound, counted as 0. */
    double (*flops)(const struct Call *call);

    /* An op outside the program's table brings its only kernel; NULL: the kernel is
     * looked up by index. */
    const struct Kernel *kernel;
} Op;

/* The ops a program knows; order is that of exec/ops.def. */
typedef struct OpTable {
    const Op *const *ops;
    int count;
} OpTable;

/* Op by name, NULL when unknown. */
const Op *op_find(const OpTable *table, const char *name);

/* The first op with a trait, NULL if none has it: a table's leaves. */
const Op *op_with(const OpTable *table, OpTrait trait);

/* Number of declared operands, and index of one by name (-1 when unknown). */
int op_operand_count(const Op *op);
int op_operand_index(const Op *op, const char *name);

#endif
