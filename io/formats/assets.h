/* Assets: the small files next to a model's weights that other programs need to use
 * it. */
#ifndef COMPRESS_IO_FORMATS_ASSETS_H
#define COMPRESS_IO_FORMATS_ASSETS_H

#include "ir/model.h"

/* Largest size of an asset: the largest published tokenizers take a third of it. */
#define ASSET_BYTES_MAX ((size_t)64 << 20)

/* The part a file plays in a tokenizer. */
typedef enum AssetPart {
    ASSET_OTHER = 1,    /* nothing */
    ASSET_TOKENS = 2,   /* its tokens, or some of the files that have them */
    ASSET_SETTINGS = 4, /* further settings */
} AssetPart;

/* A small file that may accompany weights. */
typedef struct AssetKind {
    const char *name;
    bool kept; /* a model keeps it: an asset */
    bool read; /* readers of tokenizers, configurations and preprocessors look for it */
    AssetPart part;
} AssetKind;

/* All of them by name; the last one has none. */
extern const AssetKind asset_kinds[];

/* Whether a file of this name is an asset: one of the names that Hugging Face's libraries
 * give to tokenizers, to how inputs are prepared and to how texts are generated. */
bool asset_is_known(const char *name);

/* Takes the folder's assets into the model. A link that leads out of the folder, or a
 * file that is too large or cannot be read, is left out with a warning: the model itself
 * does not need it. */
void assets_read(Model *model, const char *folder, Diag *diag);

/* Takes one file, wherever it lies, as the asset `name`. Warns as assets_read does; does
 * nothing if there is none. */
void assets_read_file(Model *model, const char *path, const char *name, Diag *diag);

/* Takes the files of the tokenizer that tokenizer_read finds at `path`: those of a
 * folder, or a file, under the name that its kind has in a folder, and the settings next
 * to it. Warns as assets_read does. */
void assets_read_tokenizer(Model *model, const char *path, Diag *diag);

/* Writes the model's assets into a folder and adds their bytes and number. Fails with
 * STATUS_IO. */
Status assets_write(const Model *model, const char *folder, int64_t *bytes, int *files,
                    Diag *diag);

#endif
