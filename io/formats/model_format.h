/* A format that models are read from; its reader ends with the record. See
 * docs/add-a-format.md. */
#ifndef COMPRESS_IO_FORMATS_MODEL_FORMAT_H
#define COMPRESS_IO_FORMATS_MODEL_FORMAT_H

#include "ir/model.h"

/* What is changed while a Hugging Face folder is read; all zero = nothing. */
typedef struct HfOptions {
    const Tree *overrides; /* map of keys in place of config.json's; NULL = none */
    bool create_heads;     /* heads of which the checkpoint has no tensor are created */
    uint64_t seed;         /* of their initial values */
} HfOptions;

/* A format that models are read from; listed in io/formats/formats.def. */
typedef struct ModelFormat {
    const char *name; /* for docs/models.md */
    const char *what; /* for messages: "a Hugging Face folder" */
    /* Whether a path is of this format, by its content; opens and maps nothing large. */
    bool (*probe)(const char *path);
    /* Reads a model; names and shapes of weights are checked, their numbers are not. With
     * `check` stored hashes are compared, without it no weight is touched. `options` is
     * NULL unless `changes`. Fails with STATUS_FORMAT, STATUS_MODEL or STATUS_IO. */
    Status (*read)(Model **out, const char *path, const HfOptions *options,
                   const OpTable *ops, bool check, Diag *diag);
    bool changes; /* the configuration can be changed while reading */
} ModelFormat;

#endif
