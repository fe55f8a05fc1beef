/* Onnx exits: early exits of a model as nested Ifs, so that what follows an exit is
 * computed only if the model's exit rule does not leave there. */
#ifndef COMPRESS_IO_ONNX_WRITE_ONNX_EXITS_H
#define COMPRESS_IO_ONNX_WRITE_ONNX_EXITS_H

#include "io/onnx/write/onnx_export.h"

/* Whether the model has early exits, and in its provenance a rule that ONNX can express:
 * an entropy below a threshold for each. Fails with STATUS_MODEL. */
Status onnx_exits_check(const Model *model, Diag *diag);

/* Appends the model with its exits and returns the value of the logits. A batch leaves
 * at an exit when the rule lets all of its samples leave. */
const char *onnx_export_exits(OnnxExport *x, const Model *model);

#endif
