/* Onnx parts: which nodes of a model a file has, and its inputs and outputs. */
#ifndef COMPRESS_IO_ONNX_ONNX_PARTS_H
#define COMPRESS_IO_ONNX_ONNX_PARTS_H

#include "io/onnx/onnx_export.h"
#include "io/onnx/onnx_file.h"

/* Appends the operators of a part of a model with its inputs and outputs, named as
 * Hugging Face's exporter names them. The graph's nodes are numbered; x->b, x->graph and
 * x->values are set. The model passed onnx_check. */
void onnx_export_part(OnnxExport *x, const Model *model, OnnxPart part,
                      const OnnxOptions *options);

/* Marks what a node's value is computed from, by Node.id, up to nodes that are marked. */
void onnx_mark(const Node *node, bool *needed);

/* Whether a decoder is written with its states. */
bool onnx_is_cached(const Graph *graph, const OnnxOptions *options);

/* Layer behind the others, whose keys of no bytes tell how long a text is by now where no
 * layer has keys; -1 where some layer has. */
int onnx_length_layer(const Graph *graph);

#endif
