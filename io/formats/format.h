/* Format: one kind of file, or folder, that models are read from or written to.
 *
 * Each format's file ends with its record, `const ModelFormat model_format_<name>`, and
 * io/formats/formats.def lists them. Reading tells formats apart by content
 * (io/formats/load.h), writing by the ending of the path (io/formats/save.h). */
#ifndef COMPRESS_IO_FORMATS_FORMAT_H
#define COMPRESS_IO_FORMATS_FORMAT_H

#include "ir/model.h"

/* Changes made while a Hugging Face folder is read; all zero = none. */
typedef struct HfOptions {
    const Tree *overrides; /* map of keys that replace config.json's; NULL = none */
    bool create_heads; /* heads without a tensor in the checkpoint, or with `num_labels`
                          in overrides without one of that size, are created */
    uint64_t seed;     /* of their initial values */
} HfOptions;

/* How to write a model. */
typedef struct WriteOptions {
    const char *dtype;   /* one of ModelFormat.dtypes; weights were cast already unless it
                            is the format's own */
    const void *options; /* struct of ModelFormat.options_size; NULL = its defaults */
} WriteOptions;

/* What was written. */
typedef struct Written {
    int64_t bytes; /* on disk, all files together */
    int files;
} Written;

typedef struct ModelFormat {
    const char *name;    /* as in `compress formats` and messages: "onnx" */
    const char *what;    /* for messages: "a Hugging Face folder" */
    const char *ending;  /* of paths that are written: ".onnx"; "/" = a folder */
    const char *summary; /* one line: what it holds, what reads it */

    /* Whether a path has this format, by its content; opens and maps nothing large. NULL
     * = not read. */
    bool (*probe)(const char *path);
    /* Reads a model; names and shapes of weights are checked, their numbers are not.
     * With `check`, stored hashes are compared; without it, no weight is touched.
     * `options` is NULL unless `changes`. Fails with STATUS_FORMAT, STATUS_MODEL or
     * STATUS_IO. */
    Status (*read)(Model **out, const char *path, const HfOptions *options,
                   const OpTable *ops, bool check, Diag *diag);
    bool changes; /* the configuration can be changed while reading */
    /* What `check` compares, for `compress verify`: "hashes of every text". NULL = the
     * format keeps no hashes. */
    const char *hashes;

    /* For a folder: the files that an existing one may hold and still be replaced
     * (io/files/outfolder.h). */
    bool (*is_ours)(const char *name);

    /* Options of writing: a struct of options_size bytes, bound by the table to the keys
     * of a recipe's output other than `path` and `dtype`. NULL = none. */
    const Field *fields;
    size_t options_size;
    const void *defaults; /* NULL = zeros */
    /* Values of `dtype`, joined by '|', the first one being the default; "keep" =
     * unchanged. Anything except keep, f32, f16 and bf16 is the format's own, and
     * reaches it in WriteOptions.dtype. NULL = "keep|f32|f16|bf16". */
    const char *dtypes;

    /* Whether a model (shapes suffice) is read, and with `dtype: keep` written, a piece
     * of a tensor at a time, with its weights as they lie in the file. NULL = no.
     */
    bool (*pieces)(const Model *model);

    /* Whether the model can be written this way; its shapes suffice. Fails with
     * STATUS_MODEL: the reason, naming the layer or node, with a hint that names the
     * nearest format that can. NULL = every model can. */
    Status (*check)(const Model *model, const WriteOptions *options, Diag *diag);
    /* Whether `write` itself finds weights that are not finite, while reading them to
     * write them (graph_verify_weights). */
    bool verifies;
    /* Writes a model whose storages all have weights, and which passed `check`. Nothing
     * is left half written: files are put in place when all are complete. Fails with
     * STATUS_IO, STATUS_MODEL. NULL = not written. */
    Status (*write)(Model *model, const char *path, const WriteOptions *options,
                    Written *written, Diag *diag);
} ModelFormat;

/* All formats, in the order in which reading tries them, ended by NULL. */
const ModelFormat *const *model_format_list(void);

/* Format by name, NULL when unknown. */
const ModelFormat *model_format_find(const char *name);

#endif
