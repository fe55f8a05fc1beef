/* Lifting heads: which columns of which projection the queries, keys or values of
 * attention are, through views, splits, rotations by position and copies for grouped
 * queries. */
#ifndef COMPRESS_IO_ONNX_LIFT_LIFT_HEADS_H
#define COMPRESS_IO_ONNX_LIFT_LIFT_HEADS_H

#include "io/onnx/lift/lift.h"

/* Queries, keys or values: columns of a node that holds them token by token. */
typedef struct Heads {
    Node *node; /* [N, tokens, groups * width] */
    int64_t groups, width;
    double scale;
} Heads;

/* Lifts the tokens of a value [.., rows, width] of heads, or of its transpose [.., width,
 * rows]. False: lift->stop says where it stopped. */
bool lift_heads(Lift *lift, NetValue *value, bool turned, Heads *out);

#endif
