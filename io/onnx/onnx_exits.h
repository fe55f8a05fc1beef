/* Onnx exits: early exits of a model as If in If. */
#ifndef COMPRESS_IO_ONNX_ONNX_EXITS_H
#define COMPRESS_IO_ONNX_ONNX_EXITS_H

#include "io/onnx/onnx_export.h"

/* Whether the model has early exits with a rule for leaving that ONNX can follow: entropy
 * below thresholds. Fails with STATUS_MODEL. */
Status onnx_exits_check(const Model *model, Diag *diag);

#endif
