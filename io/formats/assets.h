/* Assets: the small files beside a model's weights that others need to use it. */
#ifndef COMPRESS_IO_FORMATS_ASSETS_H
#define COMPRESS_IO_FORMATS_ASSETS_H

#include "ir/model.h"

/* Most that one asset may hold: the largest published tokenizers have a third of it. */
#define ASSET_BYTES_MAX ((size_t)64 << 20)

/* What a file is of a tokenizer. */
typedef enum AssetPart {
    ASSET_OTHER = 1,    /* nothing */
    ASSET_TOKENS = 2,   /* its tokens, or some of the files that have them */
    ASSET_SETTINGS = 4, /* what is set beside them */
} AssetPart;

/* A small file that may lie beside weights. */
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

/* Takes the folder's assets into the model. A link that leads out of the folder, and a
 * file that is too large or cannot be read, is left out with a warning: it is missed by
 * whoever wants it, not by the model. */
void assets_read(Model *model, const char *folder, Diag *diag);

/* Takes one file, wherever it lies, as the asset `name`. Warns as assets_read; nothing
 * where there is none. */
void assets_read_file(Model *model, const char *path, const char *name, Diag *diag);

/* Takes the files of the tokenizer that tokenizer_read finds at `path`: those of a
 * folder, or a file, under the name that its kind has in a folder, and the settings
 * beside it. Warns as assets_read. */
void assets_read_tokenizer(Model *model, const char *path, Diag *diag);

/* Writes the model's assets into a folder and adds their bytes and number. Fails with
 * STATUS_IO. */
Status assets_write(const Model *model, const char *folder, int64_t *bytes, int *files,
                    Diag *diag);

#endif
