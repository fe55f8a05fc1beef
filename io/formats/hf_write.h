/* Hugging Face folders out: what transformers, and every tool that reads its folders, can
 * load.
 *
 *     config.json         of what the model is; keys that it does not change are kept
 *     model.safetensors   or shards of it, with their index
 *     tokenizer.json ...  the model's assets
 */
#ifndef COMPRESS_IO_FORMATS_HF_WRITE_H
#define COMPRESS_IO_FORMATS_HF_WRITE_H

#include "io/formats/format.h"

typedef struct HfWriteOptions {
    bool densify;        /* make the model stock where it is so but for factors and shared
                            weights: multiply out the ones and copy the others */
    int64_t shard_bytes; /* weights of one file at most; a larger tensor has its own */
} HfWriteOptions;

extern const Field hf_write_fields[];
extern const HfWriteOptions hf_write_defaults;

/* Whether a file of this name is one that such a folder has. */
bool hf_is_ours(const char *name);

/* ModelFormat.check and ModelFormat.write: see format.h. */
Status hf_check(const Model *model, const WriteOptions *options, Diag *diag);
Status hf_write(Model *model, const char *path, const WriteOptions *options,
                Written *written, Diag *diag);

#endif
