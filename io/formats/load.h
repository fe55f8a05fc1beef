/* Load: a model from whatever the path is. */
#ifndef COMPRESS_IO_FORMATS_LOAD_H
#define COMPRESS_IO_FORMATS_LOAD_H

#include "io/formats/hf.h"

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

/* All formats, ended by NULL. */
const ModelFormat *const *model_format_list(void);

/* Reads a model of any format, told apart by content. `check` verifies hashes and that
 * all weights are finite; without it no weight is touched (for inspect and plan). Fails
 * as ModelFormat.read does. */
Status model_load(Model **out, const char *path, const OpTable *ops, bool check,
                  Diag *diag);

/* model_load with the configuration changed; formats that cannot are refused. `options`
 * NULL = model_load. */
Status model_load_with(Model **out, const char *path, const HfOptions *options,
                       const OpTable *ops, bool check, Diag *diag);

#endif
