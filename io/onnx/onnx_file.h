/* Onnx file: a model, or a part of it, as one ONNX file. */
#ifndef COMPRESS_IO_ONNX_ONNX_FILE_H
#define COMPRESS_IO_ONNX_ONNX_FILE_H

#include "io/formats/format.h"

/* What early exits become. */
typedef enum OnnxExits {
    ONNX_EXITS_OUTPUTS, /* outputs of their own, all computed */
    ONNX_EXITS_NESTED,  /* one If in the other: what lies behind an exit is computed only
                           where the model's rule does not leave there */
    ONNX_EXITS_NONE     /* left out */
} OnnxExits;

typedef struct OnnxOptions {
    int exits;              /* OnnxExits */
    bool cache;             /* states of decoders come in and go out */
    int64_t external_above; /* bytes from which weights stand in a file beside */
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

/* Whether a model has a form in ONNX; shapes suffice. Fails with STATUS_MODEL, naming the
 * node. */
Status onnx_check(const Model *model, const OnnxOptions *options, Diag *diag);

/* Writes one part of a model, computed in f16 where `half`, to a file, and where its
 * weights take more than options->external_above, those to `path`_data beside it. Adds to
 * `written`. Fails with STATUS_IO, STATUS_MODEL, STATUS_MEMORY. */
Status onnx_file_write(Model *model, OnnxPart part, const char *path, bool half,
                       const OnnxOptions *options, Written *written, Diag *diag);

#endif
