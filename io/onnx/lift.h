/* Lifting: the mathematics of a net as a graph of our own ops.
 *
 * A value is lifted by the first matcher that knows what it ends: a projection, a norm,
 * an activation, attention with its heads, patches, windows, ... Each matcher lifts the
 * values that what it found begins with. Elements of a lifted node stand in the order of
 * the value's, with the same last dimension; dimensions before it may be gathered in
 * another way.
 *
 * Private to io/onnx: the matchers and what they share. Who reads files calls
 * io/onnx/onnx_read.h. */
#ifndef COMPRESS_IO_ONNX_LIFT_H
#define COMPRESS_IO_ONNX_LIFT_H

#include "io/onnx/trace.h"
#include "ir/model.h"

/* A stored matrix or vector, or a part of one, that became a storage. */
typedef struct LiftLeaf {
    const NetValue *source;
    bool turned;  /* rows became columns */
    int64_t hash; /* of the columns taken, 0 = all */
    int rank;     /* of the storage: one value may be a matrix here, a vector there */
    Node *leaf;
} LiftLeaf;

typedef struct Lift {
    Net *net;
    ArrayPool *pool;
    Graph *graph;
    Arena *arena; /* the model's */
    LiftLeaf *leaves;
    int leaf_count, leaf_capacity;
    int depth;
    const NetNode *stop; /* the node that stopped the lifting of the latest value */
    const char *why;
    bool decoder; /* some attention is causal */
} Lift;

/* ---- driver (lift.c) ---- */

/* The node of a value, lifted now or before; NULL when it cannot be: Lift.stop and
 * Lift.why then say where and why. */
Node *lift_value(Lift *lift, NetValue *value);

/* Lifts the values that users ask for. Fails with STATUS_MODEL, naming the node that
 * stopped it. */
Status lift_outputs(Lift *lift, Diag *diag);

/* Notes why a value is not lifted, unless something deeper was noted; returns NULL. */
Node *lift_stop(Lift *lift, const NetNode *node, const char *why);

/* New node at the end of the graph by its op's name, operands in order (NULL = absent),
 * attributes as IR text in printf format or NULL. NULL when op or shapes do not fit. */
Node *lift_op(Lift *lift, const NetNode *from, const char *op, Node *const *in, int count,
              const char *attrs, ...) __attribute__((format(printf, 6, 7)));

/* The graph's input of a name with type i32[N, T] (or the type given). */
Node *lift_input(Lift *lift, const char *name, const Type *type);

/* ---- weights (lift_weights.c) ---- */

/* A projection: x W^T + b. */
typedef struct Projection {
    const NetNode *node;
    NetValue *x;
    NetValue *weight;      /* stored matrix */
    bool rows_are_outputs; /* [out, in]; else [in, out] */
    NetValue *bias;        /* stored vector, NULL = none */
} Projection;

/* Whether a value is a projection of an unknown value. */
bool match_projection(const Lift *lift, NetValue *value, Projection *out);

/* The same of a node, by its operands: of Gemm's, or else of MatMul's kind. */
bool match_matrix_product(NetNode *node, bool gemm, Projection *out);

/* Lifts outputs columns[0..count) of a projection, in this order; NULL columns = all. */
Node *lift_projection(Lift *lift, const Projection *projection, const int64_t *columns,
                      int64_t count);

/* The storage of a stored value, as it is but for its shape, which has the same number of
 * elements; NULL dim = as it is stored. A value that is computed from constants becomes a
 * storage, too. */
Node *lift_stored(Lift *lift, NetValue *value, int rank, const int64_t *dim);

/* The stored tensor that a value is, behind nodes that keep its numbers; `turned` says
 * whether rows became columns on the way. NULL when it is none. */
NetValue *stored_matrix(NetValue *value, bool *turned);

/* ---- rows (lift_rows.c): norms, activations, sums ---- */

/* Each gives the node of the value that `node` ends, or NULL when it is none of these:
 * rows of a stored table by ids; softmax over the last dimension; a sum, with positions
 * or with something stored; a product with a number or of two values. */
Node *match_embedding(Lift *lift, NetNode *node);
Node *match_softmax(Lift *lift, NetNode *node);
Node *match_sum(Lift *lift, NetNode *node);
Node *match_product(Lift *lift, NetNode *node);

/* A sum of two values: of unknown ones, or with positions or something stored. */
Node *lift_sum(Lift *lift, const NetNode *node, NetValue *a, NetValue *b);

/* Layer norm and RMS norm in parts; an activation, whatever it is made of. */
Node *match_norm(Lift *lift, NetValue *value);
Node *match_activation(Lift *lift, NetValue *value);

/* layer_norm or, without a bias, rms_norm of `x`. */
Node *lift_norm(Lift *lift, const NetNode *node, Node *x, NetValue *weight,
                NetValue *bias, double eps);

/* The shortest decimal number that is the same in float32, which is all that files have.
 */
const char *short_decimal(const Lift *lift, double x);

/* A number that was computed from rounded ones, to the three digits that it was meant to
 * have where it has them. */
double round_digits(double x);

/* ---- heads (lift_heads.c) ---- */

/* Queries, keys or values: columns of a node that has them token by token. */
typedef struct Heads {
    Node *node; /* [N, tokens, groups * width] */
    int64_t groups, width;
    double scale;
} Heads;

/* Lifts the tokens of a value [.., rows, width] of heads, or of its transpose [.., width,
 * rows]. False: lift->stop says where it does not go on. */
bool lift_heads(Lift *lift, NetValue *value, bool turned, Heads *out);

/* ---- attention (lift_attention.c) ---- */

/* The window_partition that a node's tokens come from, NULL when it is none. */
const Node *partition_of(const Node *node);

/* Heads joined again, of a product of a softmax with values: `trace` is of the joined
 * value. */
Node *match_attention(Lift *lift, NetValue *value, const Trace *trace);

/* ---- tokens (lift_tokens.c): what moves or chooses tokens ---- */

/* A value whose elements were moved: heads joined by attention, patches, windows, tokens
 * that are chosen, columns of a projection, tokens in front; the mean of tokens. */
Node *match_moved(Lift *lift, NetValue *value);
Node *match_pool(Lift *lift, NetNode *node);

/* ---- onnxruntime's fusions (lift_fused.c) ---- */

/* LayerNormalization and the fusions, by their names. */
Node *match_fused(Lift *lift, NetNode *node, NetValue *value);

#endif
