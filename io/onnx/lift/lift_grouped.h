/* Lifting what onnxruntime's exports of decoders have: GroupQueryAttention and
 * RotaryEmbedding (https://github.com/microsoft/onnxruntime, docs/ContribOperators.md).
 */
#ifndef COMPRESS_IO_ONNX_LIFT_LIFT_GROUPED_H
#define COMPRESS_IO_ONNX_LIFT_LIFT_GROUPED_H

#include "io/onnx/lift/lift.h"

/* Causal attention with any number of key heads, with queries, keys and values separate
 * or as columns of one projection, rotated by position if requested; and rows of heads
 * rotated by position. NULL, with Lift.why, if they need something that no op does. */
Node *lift_grouped_attention(Lift *lift, NetNode *node);
Node *lift_rotary_embedding(Lift *lift, NetNode *node);

#endif
