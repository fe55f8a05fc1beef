/* Onnx graph: which nodes of a model a file's graph has, and its inputs and outputs. */
#ifndef COMPRESS_IO_ONNX_WRITE_ONNX_GRAPH_H
#define COMPRESS_IO_ONNX_WRITE_ONNX_GRAPH_H

#include "io/onnx/write/onnx_export.h"

/* What early exits become. */
typedef enum OnnxExits {
    ONNX_EXITS_OUTPUTS, /* separate outputs, all computed */
    ONNX_EXITS_NESTED, /* nested Ifs: what follows an exit is computed only if the model's
                          rule does not leave there */
    ONNX_EXITS_NONE    /* left out */
} OnnxExits;

/* How values become 8-bit numbers before products (act=i8). */
typedef enum OnnxActivations {
    ONNX_ACTIVATIONS_DYNAMIC, /* DynamicQuantizeLinear: one scale for all of them */
    ONNX_ACTIVATIONS_ROWS     /* one for each row, as this program computes */
} OnnxActivations;

/* How 8-bit weights are stored for products with such values. */
typedef enum OnnxBytes {
    ONNX_BYTES_UNSIGNED, /* unsigned: onnxruntime is exact on every processor */
    ONNX_BYTES_SIGNED    /* unchanged: faster with VNNI, wrong sums without */
} OnnxBytes;

typedef struct OnnxOptions {
    int exits;              /* OnnxExits */
    int activations;        /* OnnxActivations */
    int bytes;              /* OnnxBytes */
    bool cache;             /* states of decoders are inputs and outputs */
    int64_t external_above; /* bytes above which weights go into a separate file */
} OnnxOptions;

/* Their rows and defaults. */
extern const Field ONNX_FIELDS[];
extern const OnnxOptions ONNX_DEFAULTS;

/* Which part of a model a file holds. */
typedef enum OnnxPart {
    ONNX_WHOLE,
    ONNX_ENCODER, /* of an encoder-decoder model: source to states */
    ONNX_DECODER  /* states and the target so far to logits, with states if `cache` */
} OnnxPart;

/* Appends the operators of a part of a model with its inputs and outputs, named as
 * Hugging Face's exporter names them. The graph's nodes are numbered; x->b, x->graph and
 * x->values are set. The model passed onnx_check. */
void onnx_export_part(OnnxExport *x, const Model *model, OnnxPart part,
                      const OnnxOptions *options);

/* Whether a decoder is written with its states. */
bool onnx_is_cached(const Graph *graph, const OnnxOptions *options);

/* Whether every state of a decoder has a layer of its own. Fails with STATUS_MODEL. */
Status onnx_check_states(const Graph *graph, Diag *diag);

/* An extra layer after the others, whose keys of no bytes tell the current length of a
 * text if no layer has keys; -1 if some layer has keys. */
int onnx_length_layer(const Graph *graph);

#endif
