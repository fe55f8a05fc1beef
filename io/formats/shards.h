/* Shards: a folder's tensors, from one file or from several with an index. */
#ifndef COMPRESS_IO_FORMATS_SHARDS_H
#define COMPRESS_IO_FORMATS_SHARDS_H

#include "io/formats/checkpoint.h"

/* Reads a folder's `model.safetensors`, or the shards of `model.safetensors.index.json`;
 * if there is neither, `pytorch_model.bin` or the shards of
 * `pytorch_model.bin.index.json`. Shard names must be plain file names within the
 * folder; every tensor must be where the index says. Fails with STATUS_FORMAT or
 * STATUS_IO. */
Status checkpoint_read(Checkpoint **out, const char *folder, Diag *diag);

/* Reads the tensors of a path of any kind, recognised by content: a folder, a PyTorch
 * file (those under the key `from`, see pytorch_read_from; NULL = not given), or a
 * safetensors file. Fails with STATUS_FORMAT or STATUS_IO. */
Status checkpoint_read_path(Checkpoint **out, const char *path, const char *from,
                            Diag *diag);

#endif
