/* Image shards: tar archives of images, indexed once and mapped; a picture is decoded in
 * place when it is needed.
 *
 * Labels come in one of two forms. WebDataset's: files whose names agree up to the first
 * dot are one sample: KEY.jpg (or .jpeg, .png) with KEY.cls, which holds the number of
 * the class in digits, or its name; other parts of a sample are ignored. Without any
 * .cls, the folder of a file names its class. */
#ifndef COMPRESS_IO_DATASETS_IMAGE_SHARDS_H
#define COMPRESS_IO_DATASETS_IMAGE_SHARDS_H

#include "io/datasets/image.h"
#include "ir/field.h"
#include "ir/tensor.h"

/* One picture. */
typedef struct ShardImage {
    const char *name; /* SHARD/NAME, for messages */
    size_t offset, bytes;
    int32_t shard, label;
} ShardImage;

typedef struct ImageShards {
    Buf **archives;
    int archive_count;
    ShardImage *images;
    int64_t count;
    int64_t others; /* files that are not images, if folders are the classes */
} ImageShards;

/* Whether a file's name is that of a picture: .png, .jpg, .jpeg in upper or lower
 * case. */
bool image_is_named(const char *name);

/* Indexes archives, in the order of their paths. `classes` are names given by the user;
 * if it is empty and folders are the classes, it becomes their names, sorted. Names live
 * in the arena. Fails with STATUS_IO, STATUS_FORMAT, after closing what was opened. */
Status image_shards_open(ImageShards *out, Arena *arena, const StringList *paths,
                         StringList *classes, Diag *diag);

/* Image i, with `header` without its pixels; its pages are given back. Safe to call from
 * several threads. Fails as image_decode does. */
Status image_shards_load(const ImageShards *shards, int64_t i,
                         const ImageOptions *options, bool header, Image *out,
                         Diag *diag);

/* Unmaps the archives and frees the list. */
void image_shards_close(ImageShards *shards);

#endif
