/* Onnx notes: what a file of ours says about the model that it was written from, so that
 * a model with early exits, linear attention, mixing of heads or recurrences reads back
 * as that model, with its history, whatever operators it became.
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
 * If a tool has changed the graph, the notes are wrong: the hash shows that, and the
 * graph is read like any other. Weights are always the file's own. For a model in two
 * files, the encoder's has only version, weights and hash. */
#ifndef COMPRESS_IO_ONNX_ONNX_NOTES_H
#define COMPRESS_IO_ONNX_ONNX_NOTES_H

#include "io/onnx/net/net.h"
#include "io/onnx/write/onnx_graph.h"

/* Adds the notes to a file's messages, whose graph must be complete; adds none if the
 * file lacks weights of the model (exits that are left out). Fails with
 * STATUS_MEMORY. */
Status onnx_notes_put(OnnxModel *file, OnnxBuild *b, const Model *model, OnnxPart part,
                      Diag *diag);

/* Fills `model`, a new one, from the notes, with the file's weights. False, with the
 * model to be discarded, if there are no notes or they do not belong to this graph. */
bool onnx_notes_read(Model *model, const Net *net);

#endif
