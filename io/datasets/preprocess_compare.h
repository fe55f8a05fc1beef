/* Preprocess compare: whether two ways to prepare images come to the same. */
#ifndef COMPRESS_IO_DATASETS_PREPROCESS_COMPARE_H
#define COMPRESS_IO_DATASETS_PREPROCESS_COMPARE_H

#include "io/datasets/preprocess.h"

/* Images that were prepared. */
typedef struct PreparedImages {
    int64_t channels, rows, cols; /* of all of them */
    bool drawn; /* sizes on the way are drawn at random: the last one alone counts */
} PreparedImages;

/* What `own`, by which `images` were made, does otherwise than `other`: "mean 0, std 0.1
 * where that has mean 0.5, std 0.5", in the arena; NULL where they come to the same.
 * Values that lie less than half a step of a byte apart are the same; of images that
 * `own` leaves as they are `other` must do so, too; an `other` that changes no sizes says
 * nothing of them. */
const char *preprocess_difference(Arena *arena, const Preprocess *own,
                                  const Preprocess *other, const PreparedImages *images);

#endif
