/* GGUF as a format of models: the record is model_format_gguf, in gguf_model_write.c. */
#ifndef COMPRESS_IO_GGUF_GGUF_MODEL_H
#define COMPRESS_IO_GGUF_GGUF_MODEL_H

#include "io/formats/format.h"

/* Options of writing. */
typedef struct GgufOptions {
    int pooling; /* of BERT without a classifier: mean, cls, last, none */
} GgufOptions;

extern const GgufOptions gguf_options; /* the defaults */

/* Reads a model (ModelFormat.read): llama, deci, gpt2 and bert, with the tokenizer as
 * assets. Weights of f32, f16 and bf16 are mapped where their order is ours; those of
 * other types become f32, with a warning that says so. */
Status gguf_read_model(Model **out, const char *path, const HfOptions *options,
                       const OpTable *ops, bool check, Diag *diag);

#endif
