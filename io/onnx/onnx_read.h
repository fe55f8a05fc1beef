/* Reading ONNX: transformer graphs from PyTorch's and Hugging Face's exporters, as
 * exported or after onnxruntime's basic fusions, as models that passes work on. */
#ifndef COMPRESS_IO_ONNX_ONNX_READ_H
#define COMPRESS_IO_ONNX_ONNX_READ_H

#include "ir/model.h"

/* Whether a file begins as ONNX files do. */
bool onnx_probe(const char *path);

/* Reads a file and lifts its graph. Weights stay in the mapped file if their layout is
 * ours; matrices that an exporter transposed are transposed back into copies. Sizes that
 * change with the input are free in the model whatever the file says about them; keys
 * and values of earlier tokens are left out.
 *
 * A config.json next to the file, or in the folder above as with transformers.js,
 * becomes the model's configuration when it is of the family that the graph resembles;
 * without one, the configuration is derived from the graph. Tokenizers and other assets
 * are kept with the model.
 *
 * Fails with STATUS_FORMAT for damaged files and unknown operators, STATUS_MODEL naming
 * a node that none of our ops can do, STATUS_IO. */
Status onnx_read(Model **out, const char *path, const OpTable *ops, Diag *diag);

#endif
