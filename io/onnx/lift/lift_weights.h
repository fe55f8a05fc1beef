/* Lifting weights: stored tensors become storages, in the layout of our ops and with
 * names that say where they belong. */
#ifndef COMPRESS_IO_ONNX_LIFT_LIFT_WEIGHTS_H
#define COMPRESS_IO_ONNX_LIFT_LIFT_WEIGHTS_H

#include "io/onnx/lift/lift.h"

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

/* The same for a node, by its operands: of the kind of Gemm, or else of MatMul. */
bool match_matrix_product(NetNode *node, bool gemm, Projection *out);

/* Lifts outputs columns[0..count) of a projection, in this order; NULL columns = all. */
Node *lift_projection(Lift *lift, const Projection *projection, const int64_t *columns,
                      int64_t count);

/* The storage of a stored value, unchanged except for its shape, which has the same
 * number of elements; NULL dim = as stored. A value computed from constants also becomes
 * a storage. */
Node *lift_stored(Lift *lift, NetValue *value, int rank, const int64_t *dim);

/* A storage for a value, from a tensor whose reference is taken over. */
Node *lift_leaf(Lift *lift, const NetValue *value, Tensor *tensor);

/* The stored tensor that a value comes from, through nodes that keep its numbers;
 * `turned` says whether rows became columns on the way. NULL if there is none. */
NetValue *stored_matrix(NetValue *value, bool *turned);

#endif
