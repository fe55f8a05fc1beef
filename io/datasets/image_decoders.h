/* Decoders of images, one for each kind of file, called by io/datasets/image.c; and what
 * they check before they allocate. See io/datasets/image.h. */
#ifndef COMPRESS_IO_DATASETS_IMAGE_DECODERS_H
#define COMPRESS_IO_DATASETS_IMAGE_DECODERS_H

#include "io/datasets/image.h"

#include <stddef.h>

/* A file's bytes. */
typedef struct ImageFile {
    const char *path;
    const uint8_t *data;
    size_t bytes;
} ImageFile;

/* A decoder: into 3 channels, or 1 if the file has only grey; with `header`, only rows
 * and cols. On failure the pixels, if any, are freed. Fails with STATUS_FORMAT, naming
 * the file, or STATUS_MEMORY. */
Status png_decode(Image *out, const ImageFile *file, const ImageOptions *options,
                  bool header, Diag *diag);

/* The same for JPEG. */
Status jpeg_decode(Image *out, const ImageFile *file, const ImageOptions *options,
                   bool header, Diag *diag);

/* Checks the sizes that a header declares; `bytes` is the least size of the decoded
 * image, and a file holds at most `ratio` times its own size. NULL when they are fine,
 * else what is wrong, in `message`. */
const char *image_check_size(char *message, size_t length, const ImageFile *file,
                             const ImageOptions *options, int64_t rows, int64_t cols,
                             double bytes, double ratio);

#endif
