/* ONNX in: transformer graphs of PyTorch's and Hugging Face's exporters, as they are
 * exported or after onnxruntime's basic fusions, as models that passes work on. */
#ifndef COMPRESS_IO_ONNX_ONNX_READ_H
#define COMPRESS_IO_ONNX_ONNX_READ_H

#include "ir/model.h"

/* Whether a file begins as ONNX files do. */
bool onnx_probe(const char *path);

/* Reads a file and lifts its graph. Weights stay in the mapped file where their layout is
 * ours; matrices that an exporter transposed are turned back into copies. Sizes that
 * change with the input are free in the model whatever the file says of them; keys and
 * values of earlier tokens are left out.
 *
 * A config.json beside the file, or in the folder above as transformers.js has it,
 * becomes the model's configuration when it is of the family that the graph is like;
 * without one the configuration is told from the graph. Tokenizers and their kin go with
 * the model.
 *
 * Fails with STATUS_FORMAT for damaged files and operators that are not known,
 * STATUS_MODEL naming the node that no op of ours can do, STATUS_IO. */
Status onnx_read(Model **out, const char *path, const OpTable *ops, Diag *diag);

#endif
