/* Preprocess compare: whether two ways to prepare images are equivalent. */
#ifndef COMPRESS_IO_DATASETS_PREPROCESS_COMPARE_H
#define COMPRESS_IO_DATASETS_PREPROCESS_COMPARE_H

#include "io/datasets/preprocess.h"

/* Prepared images. */
typedef struct PreparedImages {
    int64_t channels, rows, cols; /* of all of them */
    bool drawn; /* intermediate sizes are drawn at random: only the last one counts */
} PreparedImages;

/* How `own`, which made `images`, differs from `other`: "mean 0, std 0.1 where that has
 * mean 0.5, std 0.5", in the arena; NULL if they are equivalent. Values less than half a
 * step of a byte apart are the same; images that `own` leaves unchanged must be left
 * unchanged by `other` as well; an `other` that changes no sizes makes no statement
 * about them. */
const char *preprocess_difference(Arena *arena, const Preprocess *own,
                                  const Preprocess *other, const PreparedImages *images);

#endif
