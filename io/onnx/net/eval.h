/* Evaluation of one node: the shapes that an ONNX operator produces, and the numbers if
 * those of its operands are known (https://onnx.ai/onnx/operators, versions 7 to 25;
 * those of onnxruntime under com.microsoft).
 *
 * This is what folds constants: shapes, positions, masks, tables of angles. It does not
 * run a model, so operators that only a model's own values reach produce only shapes.
 */
#ifndef COMPRESS_IO_ONNX_NET_EVAL_H
#define COMPRESS_IO_ONNX_NET_EVAL_H

#include "io/onnx/net/array.h"

typedef struct EvalCall {
    ArrayPool *pool;
    const Net *net;
    const NetNode *node;
    Array *const *in; /* NULL = absent */
    int in_count;
    Array **out; /* of node->out_count, initially NULL: what stays NULL is not known */
    const char *fault; /* what the operator requires of operands that do not fit */
} EvalCall;

/* Fills call->out. False: the operator does not accept the operands. */
typedef bool EvalOperator(EvalCall *call);

typedef enum EvalKind {
    EVAL_ELEMENTS, /* element by element */
    EVAL_MOVES,    /* moves elements, or leaves some out, unchanged */
    EVAL_NUMBERS,  /* computes numbers in other ways */
    EVAL_SHAPE     /* gives only shapes */
} EvalKind;

/* A known operator. */
typedef struct EvalRow {
    const char *op; /* as NetNode.op */
    EvalOperator *run;
    EvalKind kind;
    double (*one)(double x);           /* for those that map one operand's elements */
    double (*two)(double a, double b); /* of two operands' */
} EvalRow;

/* Row of an operator, NULL when it is not known. */
const EvalRow *eval_find(const char *op);

/* Evaluates a node; `in` has NULL for absent operands. An operand of unknown shape (NULL
 * although the node has it) makes all results unknown. Fails with STATUS_FORMAT. */
Status eval_node(const Net *net, ArrayPool *pool, const NetNode *node, Array *const *in,
                 Array **out, Diag *diag);

/* ---- for operators ---- */

/* Records what is required; returns false. */
bool eval_fault(EvalCall *call, const char *what);

/* Operand `i`, NULL when absent. */
Array *eval_in(const EvalCall *call, int i);

/* Whether the first `count` operands are present, and all operands' numbers are
 * known. */
bool eval_has(const EvalCall *call, int count);
bool eval_knows(const EvalCall *call);

/* New result `i`; NULL when its shape is impossible. */
Array *eval_result(EvalCall *call, int i, int32_t type, int rank, const int64_t *dim,
                   bool known);

/* An axis counted from the end when negative; false when there is none. */
bool eval_axis(int64_t axis, int rank, int *out);

/* Integers from operand `i` (by number) or, before they were operands, attribute `name`:
 * up to NET_RANK_MAX. False when there are too many or the numbers are not known; `count`
 * is -1 when neither is given. */
bool eval_integers(const EvalCall *call, int i, const char *name, int64_t *out,
                   int *count);

/* A number as an integer within +-2^62. */
int64_t eval_integer(double x);

/* The operators, by file. */
extern const EvalRow eval_elements_rows[], eval_move_rows[], eval_layer_rows[];

#endif
