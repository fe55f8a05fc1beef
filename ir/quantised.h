/* Quantised tensors: 8-bit or 4-bit integers and the scales that turn them into weights.
 *
 * A tensor [M, ...] of rank 2 or more is M rows of K elements, where K is the product of
 * the other dimensions. Along a row, `group` elements share a scale s (the last group of
 * a row may be shorter):
 *
 *     q8   w = s q, q from -127 to 127; one group is a row (group = K), s is float32
 *     q4   w = s (q - z), q from 0 to 15; groups of 32, 64 or 128, s is float16; z = 8,
 * or with `zeros` a whole number from 0 to 15 for each group
 *
 * One buffer holds all of it, each part at a multiple of 64 bytes from the tensor's
 * start:
 *
 *     values   q8: int8 [M, K]; q4: two to a byte, the even index in the low half, rows
 *              padded to whole bytes with zero bits
 *     scales   q8: float [M]; q4: float16 [M, groups of a row]
 *     zeros    where there are any: uint8 [M, groups of a row]
 *
 * Bytes between the parts are 0, so equal tensors are equal bytes. Scales are at least
 * 0, except for q4 with z = 8, where a negative scale puts the longer side of the number
 * range (8 steps) above 0. A scale of 0 (never -0) makes all weights of its group 0. */
#ifndef COMPRESS_IR_QUANTISED_H
#define COMPRESS_IR_QUANTISED_H

#include "ir/tensor.h"

/* Group lengths that a q4 may have. */
enum { QUANTISED_GROUPS = 3, QUANTISED_GROUP_MAX = 128 };
extern const int64_t QUANTISED_GROUP[QUANTISED_GROUPS];

/* Where the parts of a quantised tensor lie. */
typedef struct QuantisedParts {
    size_t scales, zeros, bytes;              /* offsets of the parts, and total bytes */
    size_t row_values, row_scales, row_zeros; /* bytes of each part for one row */
} QuantisedParts;
QuantisedParts quantised_parts(const Tensor *tensor);

/* Whether type, rank, groups and zero points are those of a quantised tensor as above. */
bool quantised_is_valid(const Tensor *tensor);

/* M, K and the number of groups of a row. */
int64_t quantised_rows(const Tensor *tensor);
int64_t quantised_width(const Tensor *tensor);
int64_t quantised_groups(const Tensor *tensor);

/* A shape-only q8, or q4 with groups of `group`. */
Tensor q8_shape(int rank, const int64_t *dim);
Tensor q4_shape(int rank, const int64_t *dim, int64_t group, bool zeros);

/* ---- the parts: NULL for shape-only tensors ---- */

/* int8 [M, K], or uint8 [M, (K + 1) / 2]. */
const void *tensor_q_values(const Tensor *tensor);

/* float [M], or uint16 (float16) [M, groups]. */
const void *tensor_q_scales(const Tensor *tensor);

/* [M, groups]; also NULL if groups have none: z is 8. */
const uint8_t *tensor_q_zeros(const Tensor *tensor);

/* Groups of a row: 1 for q8. */
int64_t tensor_q_groups(const Tensor *tensor);

/* ---- one group at a time ---- */

/* The values that a group can take: scale * (q - zero), q from least to most. */
typedef struct Grid {
    float scale;
    int zero, least, most;
} Grid;

/* The grid of a group, with the scale `scale` as the tensor's type stores it (float16
 * for q4: nearest, magnitude at most 65504), and the zero point `zero` if the type has
 * them. */
Grid quantised_grid(const Tensor *type, double scale, int zero);

/* The grid of a group of a tensor with data. */
Grid quantised_read_grid(const Tensor *tensor, int64_t row, int64_t group);

/* The q nearest to a weight: halves to even, clamped to the ends; 0 for the scale 0.
 */
int grid_round(const Grid *grid, double weight);

/* Writes a group of a tensor whose buffer is exclusive: its grid, and the q of its
 * elements (as many as the group has). */
void quantised_write(Tensor *tensor, int64_t row, int64_t group, const Grid *grid,
                     const int8_t *q);

/* Fills a row with the nearest numbers to K weights, on grids that reach from the
 * smallest to the largest weight of each group. `tensor` as above. */
void quantised_round_row(Tensor *tensor, int64_t row, const float *weights);

/* The grid of a group with the least squared error to its weights among these, each
 * improved by the scale that best fits the resulting numbers. q8: scales from the one
 * that reaches the largest weight down to seven eighths of it. q4: from the one with
 * which -8, or 7, is the weight farthest from 0 down to three or four fifths of it; with
 * zero points, from all to half of the range from the smallest to the largest weight. */
Grid quantised_best_grid(const Tensor *type, const float *weights, int64_t count);

/* Checks the bytes of a tensor that come from a file: numbers in range, padding of rows
 * zero, scales finite and with an allowed sign, zero points from 0 to 15. Fails with
 * `status`, naming the first that is not. */
Status quantised_check(const Tensor *tensor, Status status, const char *name, Diag *diag);

/* ---- for ir/tensor.c ---- */

/* tensor_read_f32 and tensor_read_f64 for a quantised tensor; products with scales are
 * rounded once. */
void quantised_read_f32(const Tensor *tensor, int64_t first, int64_t count, float *out);
void quantised_read_f64(const Tensor *tensor, int64_t first, int64_t count, double *out);

/* tensor_find_nonfinite: the first element of a group whose scale is not finite. */
int64_t quantised_find_nonfinite(const Tensor *tensor);

#endif
