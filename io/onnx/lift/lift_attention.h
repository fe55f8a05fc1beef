/* Lifting attention: joined heads of softmax(q k^T + masks) v, whatever reshapes,
 * transposes and scalings stand between. */
#ifndef COMPRESS_IO_ONNX_LIFT_LIFT_ATTENTION_H
#define COMPRESS_IO_ONNX_LIFT_LIFT_ATTENTION_H

#include "io/onnx/lift/lift.h"

/* The window_partition that a node's tokens come from, NULL if none. */
const Node *partition_of(const Node *node);

/* Rejoined heads of a product of a softmax with values: `trace` is of the joined
 * value. */
Node *match_attention(Lift *lift, NetValue *value, const Trace *trace);

#endif
