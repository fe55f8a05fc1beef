/* Augment: random changes of images in training.
 *
 *     train: {format: idx, ..., augment: {flip: true, crop: 4, mixup: 0.2}}
 *
 * Everything is drawn only from the key of a fetch and the sample's number
 * (ir/random.h), so it depends neither on threads nor on how samples are batched; for
 * the same reason, the second image of a mix is drawn from the whole data set.
 *
 * In this order, each if requested: random resized crop (Szegedy et al., Going deeper
 * with convolutions, 2015), crop after padding with black, horizontal flip, random
 * erasing (Zhong et al., 2020); then, with another image changed in the same way, mixup
 * (Zhang et al., 2018) or CutMix (Yun et al., 2019). */
#ifndef COMPRESS_IO_DATASETS_AUGMENT_H
#define COMPRESS_IO_DATASETS_AUGMENT_H

#include "io/datasets/resample.h"
#include "ir/batches.h"
#include "ir/field.h"

typedef struct Augment {
    bool on; /* whether anything is requested */
    bool flip;
    int64_t crop;                         /* pixels of padding; 0 = none */
    RealList resized_crop, resized_ratio; /* least and largest; empty = none */
    int resample;                         /* ResampleKind, of resized crops */
    double erase;                         /* probability */
    int erase_fill;                       /* ERASE_ */
    double mixup, cutmix; /* parameter of the beta distribution; 0 = none */
    double mix;           /* probability that a sample is mixed */
    double cutmix_share;  /* of mixed samples, if both are given */
} Augment;

/* Binds the map of a recipe's `augment:`; NULL or null: nothing is requested. Fails with
 * STATUS_RECIPE at the place. */
Status augment_bind(Augment *out, const Tree *spec, Arena *arena, Diag *diag);

/* Whether pairs of samples are mixed. */
bool augment_mixes(const Augment *augment);

/* A part of an image, in pixels. */
typedef struct Box {
    int64_t top, left, rows, cols;
} Box;

/* The images of a data set: floats [channels, rows, cols]. */
typedef struct AugmentSource {
    const void *self;
    int64_t channels, rows, cols;
    const float *black; /* by channel: what a black pixel is; NULL = 0 */

    /* Rows and columns of a sample before it was resized to the size above. NULL: all
     * have that size, and `read` gets no boxes. */
    Status (*size)(const void *self, int64_t sample, Box *out, Diag *diag);

    /* A sample, or its part `box` resized, into dst. `key` is that of the fetch. */
    Status (*read)(const void *self, int64_t sample, uint64_t key, const Box *box,
                   float *dst, Diag *diag);
} AugmentSource;

/* How a sample is mixed. */
typedef struct Mix {
    int64_t other; /* the sample it is mixed with */
    double share;  /* share of the other in the target; 0 = not mixed */
    bool cut;      /* the box is from the other, else all pixels are a weighted mean */
    Box box;
} Mix;

/* Draws how `sample` of `count` is mixed, without reading an image. `rows` and `cols` are
 * those of the images. */
Mix augment_mix(const Augment *augment, uint64_t key, int64_t sample, int64_t count,
                int64_t rows, int64_t cols);

/* Most columns of images, in the order in which augment_fetch fills them. */
enum { IMAGE_COLUMNS = 4 };

/* Fills columns[0..IMAGE_COLUMNS): `input` f32[channels, rows, cols], labels when there
 * are any and, when the augmentation mixes labelled samples, the columns of mixes.
 * Returns their number. */
int augment_columns(Column *columns, const char *input, const Augment *augment,
                    const AugmentSource *source, bool labels);

/* Batches.fetch of a data set of images; `labels` may be NULL. With key 0 samples come as
 * they are read. */
Status augment_fetch(const Augment *augment, const AugmentSource *source,
                     const int32_t *labels, const Batches *data, const Fetch *what,
                     void *const *dst, Diag *diag);

#endif
