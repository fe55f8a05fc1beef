/* Save: a model to a path of any format that can hold it. */
#ifndef COMPRESS_IO_FORMATS_SAVE_H
#define COMPRESS_IO_FORMATS_SAVE_H

#include "io/formats/format.h"

/* One place to write a model to. */
typedef struct ModelOutput {
    const char *path;
    const ModelFormat *format;
    WriteOptions options;
    Loc at;          /* in the recipe, else none */
    Written written; /* set by model_save */
    bool pieces;     /* set by output_check_model: see ModelFormat.pieces */
    bool hashed; /* whether model_save computes the hash, which may read all weights */
    char hash[HASH_TEXT_BYTES]; /* of the model with its weights as written; "" if the
                                   type is one of the format's own */
} ModelOutput;

/* Binds an output: a path, whose ending names the format, or a map with `path`, `dtype`
 * and the options of that format. Everything is copied into the arena. Fails with
 * `status`: an ending that no format has, an option that the format does not have. */
Status output_bind(ModelOutput *out, Arena *arena, const Tree *value, Status status,
                   Diag *diag);

/* Whether two paths have endings of the same format. */
bool output_same_format(const char *a, const char *b);

/* Appends the manual of a format: its ending, whether it is read and written, its
 * options; and the manual of all formats. */
void output_document_format(Text *text, const ModelFormat *format);
void output_document(Text *text);

/* Whether the model, with or without weights, can be written there, and how. Fails with
 * STATUS_MODEL: the reason, and the nearest format that can. */
Status output_check_model(ModelOutput *output, const Model *model, Diag *diag);

/* Writes the model, with its weights in the requested type; the model is unchanged.
 * Fails with STATUS_MODEL, also if a weight is not finite, and STATUS_IO. */
Status model_save(Model *model, ModelOutput *output, Diag *diag);

#endif
