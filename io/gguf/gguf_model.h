/* GGUF as a format of models: the record is model_format_gguf, in gguf_model_write.c. */
#ifndef COMPRESS_IO_GGUF_GGUF_MODEL_H
#define COMPRESS_IO_GGUF_GGUF_MODEL_H

#include "io/formats/format.h"

/* Options of writing. */
typedef struct GgufOptions {
    int pooling; /* for BERT without a classifier: mean, cls, last, none */
} GgufOptions;

extern const GgufOptions gguf_options; /* the defaults */

/* Our own key for BERT without a classifier: whether the model gives an embedding, the
 * one that bert.pooling_type names, and whether it has length 1. llama.cpp makes one
 * from every such model and normalises it to length 1, so files from other programs are
 * read that way. */
#define GGUF_EMBEDDING            "compress.embedding"
#define GGUF_EMBEDDING_NONE       "none"
#define GGUF_EMBEDDING_PLAIN      "plain"
#define GGUF_EMBEDDING_NORMALIZED "normalized"

/* Reads a model (ModelFormat.read): llama, deci, gpt2 and bert, with the tokenizer as
 * assets; a BERT whose file names a pooling of its tokens (mean, cls, last) gives an
 * embedding (io/families/sentence.h). Weights of f32, f16 and bf16 are mapped if their
 * order is ours; those of other types become f32, with a warning that says so. */
Status gguf_read_model(Model **out, const char *path, const HfOptions *options,
                       const OpTable *ops, bool check, Diag *diag);

#endif
