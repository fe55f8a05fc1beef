/* Lifting nodes that stand for several others: LayerNormalization and onnxruntime's
 * fusions (https://github.com/microsoft/onnxruntime, docs/ContribOperators.md). */
#ifndef COMPRESS_IO_ONNX_LIFT_LIFT_FUSED_H
#define COMPRESS_IO_ONNX_LIFT_LIFT_FUSED_H

#include "io/onnx/lift/lift.h"

/* LayerNormalization and the fusions, by their names. */
Node *match_fused(Lift *lift, NetNode *node, NetValue *value);

#endif
