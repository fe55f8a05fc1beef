/* Onnx notes: what a file of ours says of the model that it was written from, so that
 * one with early exits, linear attention, mixing of heads or recurrences reads back as
 * that model, with its history, whatever operators it became.
 *
 * Entries of metadata_props:
 *     compress.version      "1"
 *     compress.weights      JSON: {storage: {tensor, form}} where an initialiser has
 *                           another name than the storage, or its bytes another order;
 *                           of quantised ones with {scales, zeros}; {values} of
 *                           numbers that no result depends on, which the file lacks
 *     compress.ir           IR text of the graph (ir/irtext.h)
 *     compress.config       JSON: Model.config
 *     compress.provenance   JSON: Model.provenance
 *     compress.hash         of the file's graph without the numbers of its weights
 *
 * A tool that changed the graph made the notes wrong: the hash tells, and the graph is
 * read as any other. Weights are the file's own, whatever they were. Of a model in two
 * files the encoder's has version, weights and hash alone. */
#ifndef COMPRESS_IO_ONNX_ONNX_NOTES_H
#define COMPRESS_IO_ONNX_ONNX_NOTES_H

#include "io/onnx/net/net.h"
#include "io/onnx/write/onnx_graph.h"

/* Adds the notes to a file's messages, whose graph is there; none where the file lacks
 * weights of the model (exits that are left out). Fails with STATUS_MEMORY. */
Status onnx_notes_put(OnnxModel *file, OnnxBuild *b, const Model *model, OnnxPart part,
                      Diag *diag);

/* Makes `model`, a new one, what the notes say, with weights of the file. False, with the
 * model to be thrown away, where there are no notes or they are not of this graph. */
bool onnx_notes_read(Model *model, const Net *net);

#endif
