/* Resample: resizing images as Pillow and torchvision do.
 *
 * A pixel of the result is the mean of the pixels under a filter around its place. When
 * an image shrinks, the filter is stretched by the same factor (antialiasing). Bilinear:
 * a triangle of radius 1; bicubic: Keys' cubic of radius 2 with a = -1/2 (Keys, Cubic
 * convolution interpolation for digital image processing, 1981). Rows are resampled
 * first, then columns. */
#ifndef COMPRESS_IO_DATASETS_RESAMPLE_H
#define COMPRESS_IO_DATASETS_RESAMPLE_H

#include "io/datasets/image.h"

#define RESAMPLE_NAMES "bilinear|bicubic"
typedef enum ResampleKind { RESAMPLE_BILINEAR, RESAMPLE_BICUBIC } ResampleKind;

/* Makes `out` from `image` with `rows` rows and `cols` columns, at least 1 each. Weights
 * are rounded to 22 bits, and values to bytes after the rows and after the columns, so
 * the bytes equal Pillow's. Fails with STATUS_MEMORY. */
Status resample_image(Image *out, const Image *image, int64_t rows, int64_t cols,
                      ResampleKind kind, Diag *diag);

/* One plane of floats, dst[rows, cols] from src[src_rows, src_cols] whose rows lie
 * `stride` floats apart; nothing is rounded or cut off. Fails with STATUS_MEMORY. */
Status resample_plane(float *dst, int64_t rows, int64_t cols, const float *src,
                      int64_t src_rows, int64_t src_cols, int64_t stride,
                      ResampleKind kind, Diag *diag);

#endif
