/* Onnx file: a model, or a part of it, as one ONNX file. */
#ifndef COMPRESS_IO_ONNX_WRITE_ONNX_FILE_H
#define COMPRESS_IO_ONNX_WRITE_ONNX_FILE_H

#include "io/formats/format.h"
#include "io/onnx/write/onnx_graph.h"

/* The options of an output: those of ONNX, and whether to compute in f16. */
const OnnxOptions *onnx_options(const WriteOptions *options);
bool onnx_in_half(const WriteOptions *options);

/* Whether a model has a form in ONNX; shapes suffice. Fails with STATUS_MODEL, naming the
 * node. */
Status onnx_check(const Model *model, const OnnxOptions *options, Diag *diag);

/* Suffix of a path for the accompanying file. */
#define ONNX_BESIDE "_data"

/* Writes one part of a model, computed in f16 if `half`, to a file, and, if its weights
 * take more than options->external_above, those next to it: to `path`_data if the file is
 * part of a folder that is written as a whole, else to `path`_data-HASH, with a hash of
 * the weights, so that the pair replaces another safely (outfile_commit_pair). Adds to
 * `written`. Fails with STATUS_IO, STATUS_MODEL, STATUS_MEMORY. */
Status onnx_file_write(Model *model, OnnxPart part, const char *path, bool in_folder,
                       bool half, const OnnxOptions *options, Written *written,
                       Diag *diag);

#endif
