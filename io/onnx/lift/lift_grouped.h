/* Lifting what onnxruntime's exports of decoders have: GroupQueryAttention and
 * RotaryEmbedding (https://github.com/microsoft/onnxruntime, docs/ContribOperators.md).
 */
#ifndef COMPRESS_IO_ONNX_LIFT_LIFT_GROUPED_H
#define COMPRESS_IO_ONNX_LIFT_LIFT_GROUPED_H

#include "io/onnx/lift/lift.h"

/* Causal attention with as many heads of keys as there are, queries, keys and values
 * apart or columns of one projection, turned by position where it says so; and rows of
 * heads turned by position. NULL, with Lift.why, where they ask for what no op does. */
Node *lift_grouped_attention(Lift *lift, NetNode *node);
Node *lift_rotary_embedding(Lift *lift, NetNode *node);

#endif
