/* Image set: a data set of images, whatever they are read from. Formats provide a
 * source; sizes, values, memory, augmentation and damaged images are handled here.
 *
 * Resized images are kept as bytes if all of them fit into `memory` MiB; otherwise every
 * fetch decodes what it needs. With random resized crops, the original images are
 * kept. */
#ifndef COMPRESS_IO_DATASETS_IMAGE_SET_H
#define COMPRESS_IO_DATASETS_IMAGE_SET_H

#include "io/datasets/augment.h"
#include "io/datasets/dataset.h"
#include "io/datasets/preprocess.h"

/* Keys that the formats of images share. A format's options have this as their FIRST
 * member, so that IMAGE_FIELDS rows fit; image_keys_check is its `check`. */
typedef struct ImageKeys {
    const char *preprocessor;
    IntList resize, center_crop;
    int resample; /* index into "preprocessor|bilinear|bicubic" */
    double rescale;
    RealList mean, std;
    int color;
    int background; /* index into "preprocessor|white|black" */
    int64_t memory, offset, limit;
    const Tree *augment;
    Augment changes; /* bound from `augment` */
} ImageKeys;

#define IMAGE_KEYS_DEFAULTS                                                              \
    { .memory = 4096 }

#define IMAGE_FIELDS                                                                     \
    F_STRING(ImageKeys, preprocessor,                                                    \
             "preprocessor_config.json, or a Hugging Face folder with one",              \
             .nullable = true),                                                          \
        F_INTS(ImageKeys, resize, 1, 8192,                                               \
               "one number: pixels of the shorter side; two: rows and columns"),         \
        F_INTS(ImageKeys, center_crop, 1, 8192,                                          \
               "cut from the middle: pixels of both sides, or rows and columns"),        \
        F_CHOICE(ImageKeys, resample, "preprocessor|" RESAMPLE_NAMES,                    \
                 "how images are resized; without a preprocessor: bilinear"),            \
        F_REAL(ImageKeys, rescale, 0, 1e6,                                               \
               "factor of bytes; 0 = the preprocessor's, or 1 / 255"),                   \
        F_REALS(ImageKeys, mean, -1e6, 1e6,                                              \
                "subtracted from the values: one number, or one per channel"),           \
        F_REALS(ImageKeys, std, 1e-6, 1e6,                                               \
                "values are then divided by it: one number, or one per channel"),        \
        F_CHOICE(ImageKeys, color, IMAGE_COLORS, "3 channels or 1"),                     \
        F_CHOICE(ImageKeys, background, "preprocessor|" IMAGE_BACKGROUNDS,               \
                 "what transparent pixels lie on; without a preprocessor: white"),       \
        F_INT(ImageKeys, memory, 0, 1 << 24,                                             \
              "MiB of decoded images to keep; larger sets are decoded anew each time"),  \
        F_INT(ImageKeys, offset, 0, 1e12, "leave out this many samples at the start"),   \
        F_INT(ImageKeys, limit, 0, 1e12, "use this many samples; 0 = all"),              \
        F_TREE(ImageKeys, augment, "map",                                                \
               "training: changes of the images, drawn at random", .nullable = true)

/* DataFormat.check of formats whose options begin with ImageKeys. */
Status image_keys_check(void *options, Arena *arena, Loc at, Diag *diag);

/* How the keys prepare an image: the preprocessor's file with the keys overriding its
 * values. Giving `resize` drops the file's crop. Fails with STATUS_RECIPE, or as
 * preprocess_read does. */
Status image_keys_preprocess(Preprocess *out, const ImageKeys *keys, Arena *arena, Loc at,
                             Diag *diag);

/* Where images come from. */
typedef struct ImageSource {
    void *self;
    int64_t count;
    int64_t classes;                /* 0 without labels */
    const int32_t *labels;          /* [count], NULL without; copied */
    const char *const *class_names; /* NULL = not named; copied */
    bool skip_damaged;              /* leave out what fails with STATUS_FORMAT */

    /* Image i, with `header` without its pixels. Safe to call from several threads. */
    Status (*load)(void *self, int64_t i, const ImageOptions *options, bool header,
                   Image *out, Diag *diag);
    const char *(*name)(void *self, int64_t i); /* of image i, for messages */
    void (*close)(void *self);                  /* called once; NULL = nothing to do */
} ImageSource;

/* Opens the set; `name` is for messages. Reads what it keeps, and everything when
 * damaged images are to be skipped. The source is also closed on failure. Fails with
 * STATUS_IO, STATUS_FORMAT, STATUS_RECIPE, STATUS_MEMORY. */
Status image_set_open(Batches **out, const ImageSource *source, const ImageKeys *keys,
                      const char *name, Loc at, Diag *diag);

#endif
