/* Lifting: the mathematics of a net as a graph of our own ops.
 *
 * A value is lifted by the first matcher that recognises what produces it: a projection,
 * a norm, an activation, attention with its heads, patches, windows, ... Each matcher
 * lifts the values that its pattern starts from. Elements of a lifted node are in the
 * order of the value's, with the same last dimension; the dimensions before it may be
 * grouped differently.
 *
 * This header has what matchers share; each kind has its own header (lift_*.h). Private
 * to io/onnx: code that reads files uses io/onnx/onnx_read.h. */
#ifndef COMPRESS_IO_ONNX_LIFT_LIFT_H
#define COMPRESS_IO_ONNX_LIFT_LIFT_H

#include "io/onnx/net/trace.h"
#include "ir/model.h"

/* A stored matrix or vector, or a part of one, that became a storage. */
typedef struct LiftLeaf {
    const NetValue *source;
    bool turned;  /* rows became columns */
    int64_t hash; /* of the columns used, 0 = all */
    int rank;     /* of the storage: one value may be a matrix here, a vector there */
    Node *leaf;
} LiftLeaf;

typedef struct Lift Lift;

/* A value that no matcher recognised, lifted only by its operator: see
 * io/onnx/lift/lift_plain.h.
 */
typedef struct LiftPlain {
    const Node *made;
    const NetNode *node, *stop; /* its producer; what stopped the matchers, or NULL */
    const char *why;
} LiftPlain;

enum { LIFT_DEPTH_MAX = 500 };

/* The default reason why an operator is not lifted. */
#define LIFT_NO_OP "no op of ours does this"

/* Finds what produces a value; NULL when it is nothing known. */
typedef Node *LiftMatch(Lift *lift, NetValue *value);

struct Lift {
    Net *net;
    LiftMatch *match; /* all matchers: io/onnx/lift/lift_match.h */
    ArrayPool *pool;
    Graph *graph;
    Arena *arena; /* the model's */
    LiftLeaf *leaves;
    int leaf_count, leaf_capacity;
    int depth;
    const NetNode *stop; /* the node that stopped the lifting of the latest value */
    const char *why;
    bool decoder;     /* some attention is causal */
    LiftMatch *plain; /* tried if no matcher recognises a value; NULL = nothing */
    LiftPlain *plains;
    int plain_count, plain_capacity;
};

/* The node of a value, lifted now or before; NULL when that is impossible: Lift.stop and
 * Lift.why then say where and why. */
Node *lift_value(Lift *lift, NetValue *value);

/* Lifts the requested values, with `plain` if matchers do not recognise all of them.
 * Fails with STATUS_MODEL, naming the node that stopped it. */
Status lift_outputs(Lift *lift, LiftMatch *plain, Diag *diag);

/* Notes why a value is not lifted, unless something deeper was noted; returns NULL. */
Node *lift_stop(Lift *lift, const NetNode *node, const char *why);

/* New node at the end of the graph by its op's name, operands in order (NULL = absent),
 * attributes as IR text in printf format or NULL. NULL when op or shapes do not fit. */
Node *lift_op(Lift *lift, const NetNode *from, const char *op, Node *const *in, int count,
              const char *attrs, ...) __attribute__((format(printf, 6, 7)));

/* The graph's input of a name with type i32[N, T] (or the type given). */
Node *lift_input(Lift *lift, const char *name, const Type *type);

#endif
