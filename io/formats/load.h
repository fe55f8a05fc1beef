/* Load: a model from a path of any format. */
#ifndef COMPRESS_IO_FORMATS_LOAD_H
#define COMPRESS_IO_FORMATS_LOAD_H

#include "io/formats/format.h"

/* The format of a path, by its content; NULL = none that can be read. errno is then 0,
 * or the reason why the system could not look (file_of_system). */
const ModelFormat *model_format_of(const char *path);

/* Reads a model of any format, recognised by content. `check` verifies hashes and that
 * all weights are finite; without it no weight is touched (for inspect and plan). Fails
 * as ModelFormat.read does. */
Status model_load(Model **out, const char *path, const OpTable *ops, bool check,
                  Diag *diag);

/* model_load for callers that continue with model_save, which finds weights that are not
 * finite: for formats without hashes, no weight is touched. */
Status model_load_to_save(Model **out, const char *path, const OpTable *ops, Diag *diag);

/* model_load with a changed configuration; formats that do not allow that are refused,
 * unless only the keys of an embedding are changed (io/families/sentence.h). `options`
 * NULL = model_load. */
Status model_load_with(Model **out, const char *path, const HfOptions *options,
                       const OpTable *ops, bool check, Diag *diag);

/* A model whose configuration, weights and names of weights are in separate files. */
typedef struct SeparateFiles {
    const Tree *config;  /* the configuration, a map */
    bool written;        /* written by hand: keys that nothing reads get a warning */
    const char *weights; /* path of any kind that checkpoint_read_path reads */
    const char *names; /* path of a name map (io/formats/name_rules.h); NULL = the tensors
                          have the names of the configuration's family */
    HfOptions options; /* of new heads */
} SeparateFiles;

/* Builds the model of the configuration and gives it the weights; `check` as in
 * model_load. Fails as name_rules_apply and model_load do. */
Status model_load_separate(Model **out, const SeparateFiles *files, const OpTable *ops,
                           bool check, Diag *diag);

#endif
