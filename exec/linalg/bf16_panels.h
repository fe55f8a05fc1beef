/* Panels of bfloat16, for processors that multiply them (AVX512_BF16, AMX): the inside of
 * exec/linalg/bf16.h.
 *
 * Two elements that follow each other in k are a pair of 32 bits. The left matrix of a
 * product is packed in panels of 12 rows, pair by pair, the right one in panels of 32
 * columns; both are vectors x_i of k elements, element j at x[i * next + j * step], where
 * next or step is 1. They are filled up with zeros. For AMX's tiles, which are used if
 * present, rows of the left matrix lie one after another instead, and k is filled up to
 * a multiple of 32. */
#ifndef COMPRESS_EXEC_LINALG_BF16_PANELS_H
#define COMPRESS_EXEC_LINALG_BF16_PANELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether the processor has the instructions, and --processor does not rule them out. If
 * not, the other functions must not be called. */
bool bf16_panels_here(void);

/* Whether tiles are used. */
bool bf16_tiles_here(void);

/* Rows of the left matrix that are multiplied at a time. */
int64_t bf16_left_unit(void);

/* Bytes of `count` vectors of k elements on either side; multiples of 64. */
size_t bf16_left_bytes(int64_t count, int64_t k);
size_t bf16_right_bytes(int64_t count, int64_t k);

/* Rounds and packs; `out` is 64-byte aligned. */
void bf16_pack_left(void *out, const float *x, int64_t count, int64_t k, int64_t next,
                    int64_t step);
void bf16_pack_right(void *out, const float *x, int64_t count, int64_t k, int64_t next,
                     int64_t step);

/* c[m, n] = the products of m left and n right vectors, or with `add` added to c. */
void bf16_multiply(const void *left, const void *right, int64_t m, int64_t n, int64_t k,
                   bool add, float *c);

#endif
