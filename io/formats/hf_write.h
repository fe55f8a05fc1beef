/* Writing Hugging Face folders, which transformers and every tool that reads its folders
 * can load.
 *
 *     config.json         of what the model is; keys that it does not change are kept
 *     model.safetensors   or shards of it, with their index
 *     tokenizer.json ...  the model's assets
 */
#ifndef COMPRESS_IO_FORMATS_HF_WRITE_H
#define COMPRESS_IO_FORMATS_HF_WRITE_H

#include "io/formats/format.h"

typedef struct HfWriteOptions {
    bool densify; /* make the model stock if only factors and shared weights prevent that:
                     multiply out the factors and copy the shared weights */
    int64_t shard_bytes; /* most bytes of weights per file; a larger tensor gets its own
                            file */
} HfWriteOptions;

extern const Field hf_write_fields[];
extern const HfWriteOptions hf_write_defaults;

/* Whether such a folder can contain a file of this name. */
bool hf_is_ours(const char *name);

/* ModelFormat.check and ModelFormat.write: see format.h. */
Status hf_check(const Model *model, const WriteOptions *options, Diag *diag);
Status hf_write(Model *model, const char *path, const WriteOptions *options,
                Written *written, Diag *diag);

#endif
