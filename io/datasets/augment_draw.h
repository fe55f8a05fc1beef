/* What augmentation draws, only from the key of a fetch and a sample. Internal to
 * io/datasets/augment.c. */
#ifndef COMPRESS_IO_DATASETS_AUGMENT_DRAW_H
#define COMPRESS_IO_DATASETS_AUGMENT_DRAW_H

#include "io/datasets/augment.h"

/* What fills erased boxes: 0, which is the mean if images are normalised, or standard
 * normal numbers. */
#define ERASE_FILLS "zero|noise"
enum { ERASE_ZERO, ERASE_NOISE };

/* Mirroring, and a shift by pixels. */
typedef struct Shift {
    bool flip;
    int64_t down, right;
} Shift;

/* The key of everything that is drawn for one sample. */
uint64_t draw_key(uint64_t key, int64_t sample);

/* Flip and position of the crop within the padded image. */
Shift draw_shift(const Augment *augment, uint64_t draws);

/* The part of an image of `rows` x `cols` that is resized: the area and the logarithm of
 * the ratio of width to height are uniform in their ranges; after ten parts that do not
 * fit, the largest central one with an allowed ratio. */
Box draw_resized_crop(const Augment *augment, uint64_t draws, int64_t rows, int64_t cols);

/* Whether a box is erased, and which: 2 to 33 % of the area, ratio 0.3 to 3.3. */
bool draw_erase(const Augment *augment, uint64_t draws, int64_t rows, int64_t cols,
                Box *out);

/* Number `index` of a stream that is beta(alpha, alpha) distributed. */
double draw_beta(uint64_t key, double alpha);

#endif
