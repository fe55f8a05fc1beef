/* Image: pictures in PNG and JPEG files, as bytes.
 *
 * Files are hostile until decoded: sides, pixels, and pixels against the size of the file
 * are checked before anything is allocated, and a file that ends early or whose check
 * sums are wrong is refused.
 *
 * What is read: PNG of every colour type and depth (16 bits are scaled to 8, palettes
 * looked up, transparency composited over the background), JPEG in grey, YCbCr, RGB,
 * CMYK and YCCK (CMYK as r = c k / 255 with inks inverted as Adobe writes them). Colour
 * profiles, gamma and EXIF orientation are ignored, as torchvision does. */
#ifndef COMPRESS_IO_DATASETS_IMAGE_H
#define COMPRESS_IO_DATASETS_IMAGE_H

#include "ir/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Largest side of an image, and most pixels of one in a folder of images. */
#define IMAGE_SIDE_MAX   ((int64_t)1 << 20)
#define IMAGE_PIXELS_MAX ((int64_t)1 << 26)

/* How colours are converted. Grey is 0.299 r + 0.587 g + 0.114 b, rounded. */
#define IMAGE_COLORS "rgb|gray"
typedef enum ImageColor {
    IMAGE_RGB,
    IMAGE_GRAY,
    IMAGE_ANY /* 1 or 3 channels, as in the file; for readers that convert later */
} ImageColor;

/* The background of transparent pixels. */
#define IMAGE_BACKGROUNDS "white|black"
typedef enum ImageBackground { IMAGE_WHITE, IMAGE_BLACK } ImageBackground;

typedef struct ImageOptions {
    int color;      /* ImageColor */
    int background; /* ImageBackground */
    int64_t pixels; /* most that an image may have */
} ImageOptions;

typedef struct Image {
    int64_t rows, cols, channels; /* channels: 3 = red, green, blue; 1 = grey */
    uint8_t *pixels;              /* [rows, cols, channels]; owned */
} Image;

/* Allocates the pixels. Fails with STATUS_MEMORY. */
Status image_create(Image *out, int64_t rows, int64_t cols, int64_t channels, Diag *diag);

/* Decodes a file, whose kind is recognised by its first bytes. Fails with STATUS_IO,
 * with STATUS_FORMAT naming the file, with STATUS_MEMORY. */
Status image_read(Image *out, const char *path, const ImageOptions *options, Diag *diag);

/* The same for bytes in memory, which messages call `name`; with `header`, only what
 * image_measure reads. Fails with STATUS_FORMAT, STATUS_MEMORY. */
Status image_decode(Image *out, const char *name, const void *data, size_t bytes,
                    const ImageOptions *options, bool header, Diag *diag);

/* Converts the pixels in place, which may move them. On failure the image is freed. Fails
 * with STATUS_MEMORY. */
Status image_convert(Image *image, int color, Diag *diag);

/* Reads only rows, cols and channels (IMAGE_ANY: 3), from the file's header; `pixels` is
 * NULL. Fails as image_read does. */
Status image_measure(Image *out, const char *path, const ImageOptions *options,
                     Diag *diag);

/* Frees the pixels and clears the image. */
void image_free(Image *image);

#endif
