/* Preprocess: from a decoded image to the values that a model was trained on, as Hugging
 * Face's image processors and torchvision do it: resize, centre crop, rescale, normalise.
 *
 * Resizing and cropping work on bytes, so they are done once per image; a pixel's value
 * is then (byte * rescale - mean) / std. */
#ifndef COMPRESS_IO_DATASETS_PREPROCESS_H
#define COMPRESS_IO_DATASETS_PREPROCESS_H

#include "io/datasets/resample.h"
#include "ir/field.h"

/* RESIZE_SHORTEST: the shorter side becomes `rows`, the longer one
 * floor(rows * longer / shorter). */
typedef enum ResizeKind { RESIZE_NONE, RESIZE_EXACT, RESIZE_SHORTEST } ResizeKind;

typedef struct Preprocess {
    int resize; /* ResizeKind */
    int64_t rows, cols;
    int resample;                 /* ResampleKind */
    int64_t crop_rows, crop_cols; /* cut from the middle, with black if the image is
                                     smaller; 0 = no crop */
    double rescale;
    double mean[3], std[3];
    int background; /* ImageBackground: the background of transparent pixels */
} Preprocess;

/* No change of size, values in [0, 1]. */
extern const Preprocess preprocess_default;

/* Reads a preprocessor_config.json, or the one in a folder: do_resize, size (a number:
 * both sides, or the shorter one beside crop_pct; {height, width}; {shortest_edge}),
 * resample (2 bilinear, 3 bicubic), crop_pct (ConvNeXT: below 384 the shorter side
 * becomes size / crop_pct before a crop to size), do_center_crop, crop_size, do_rescale,
 * rescale_factor, do_normalize, image_mean, image_std, and one key of our own,
 * background ("white", "black"). Missing keys have the values of ViT's processor. Keys
 * of other classes that would change pixels cause a failure if they are true; unknown
 * ones that begin with do_ cause a warning; all others have nothing to do with pixels.
 * Fails with STATUS_IO, STATUS_FORMAT. */
Status preprocess_read(Preprocess *out, const char *path, Arena *arena, Diag *diag);

/* The same of the text of such a file; `name` is for messages. */
Status preprocess_parse(Preprocess *out, const char *name, const char *text,
                        size_t length, Arena *arena, Diag *diag);

/* A preprocessor_config.json, in the arena, for the first of Hugging Face's classes that
 * supports all of it, for images of `channels` channels; reading it back gives the same.
 * With one channel there is one mean, as both transformers and transformers.js expect,
 * and images stay grey (do_convert_rgb). A white background is not written. */
const char *preprocess_text(Arena *arena, const Preprocess *preprocess, int64_t channels);

/* Rows and columns of the resulting image. False when they are too many. */
bool preprocess_size(const Preprocess *preprocess, int64_t *rows, int64_t *cols);

/* Resizes and crops. `path` names the image in messages. Fails with STATUS_FORMAT when it
 * would get too large, with STATUS_MEMORY. */
Status preprocess_image(Image *out, const Image *image, const Preprocess *preprocess,
                        const char *path, Diag *diag);

/* The value of a byte in a channel. */
float preprocess_value(const Preprocess *preprocess, int64_t channel, int byte);

#endif
