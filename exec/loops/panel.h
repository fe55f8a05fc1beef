/* Panels: 16 rows or columns of a matrix as products read them (exec/linalg/gemv.h),
 * made from floats while they are multiplied. Unused lanes get 0. */
#ifndef COMPRESS_EXEC_LOOPS_PANEL_H
#define COMPRESS_EXEC_LOOPS_PANEL_H

#include "exec/linalg/gemv.h"

#include <string.h>

/* 16 columns of 16 rows that are ldw apart: to[j * 16 + i] = w[i * ldw + j]. Squares of 4
 * x 4 are turned within quarters of registers, or by themselves; then they change places.
 */
#ifdef __AVX512F__
typedef float __attribute__((vector_size(64), aligned(1), may_alias)) Line;
#define TURN_LOW        0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define TURN_HIGH       2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define TURN_LOW_PAIRS  0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define TURN_HIGH_PAIRS 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define QUARTERS_EVEN   0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#define QUARTERS_ODD    4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31

/* Writes a square of 16 rows, `ldw` apart, as columns: to[j][i] = w[i][j]. */
static inline void turn_square(const float *w, int64_t ldw, float *to) {
    Line quarter[4][4]; /* [b][c]: rows 4 b .. 4 b + 3 of columns 4 q + c, q = 0 .. 3 */
    for (int b = 0; b < 4; b++) {
        const Line r0 = *(const Line *)(w + 4 * b * ldw);
        const Line r1 = *(const Line *)(w + (4 * b + 1) * ldw);
        const Line r2 = *(const Line *)(w + (4 * b + 2) * ldw);
        const Line r3 = *(const Line *)(w + (4 * b + 3) * ldw);
        const Line low = __builtin_shufflevector(r0, r1, TURN_LOW);
        const Line high = __builtin_shufflevector(r0, r1, TURN_HIGH);
        const Line next_low = __builtin_shufflevector(r2, r3, TURN_LOW);
        const Line next_high = __builtin_shufflevector(r2, r3, TURN_HIGH);
        quarter[b][0] = __builtin_shufflevector(low, next_low, TURN_LOW_PAIRS);
        quarter[b][1] = __builtin_shufflevector(low, next_low, TURN_HIGH_PAIRS);
        quarter[b][2] = __builtin_shufflevector(high, next_high, TURN_LOW_PAIRS);
        quarter[b][3] = __builtin_shufflevector(high, next_high, TURN_HIGH_PAIRS);
    }
    for (int c = 0; c < 4; c++) {
        const Line q0 = quarter[0][c], q1 = quarter[1][c];
        const Line q2 = quarter[2][c], q3 = quarter[3][c];
        const Line even = __builtin_shufflevector(q0, q1, QUARTERS_EVEN);
        const Line odd = __builtin_shufflevector(q0, q1, QUARTERS_ODD);
        const Line even_below = __builtin_shufflevector(q2, q3, QUARTERS_EVEN);
        const Line odd_below = __builtin_shufflevector(q2, q3, QUARTERS_ODD);
        Line *out = (Line *)(to + c * PANEL_ROWS);
        out[0] = __builtin_shufflevector(even, even_below, QUARTERS_EVEN);
        out[4] = __builtin_shufflevector(odd, odd_below, QUARTERS_EVEN);
        out[8] = __builtin_shufflevector(even, even_below, QUARTERS_ODD);
        out[12] = __builtin_shufflevector(odd, odd_below, QUARTERS_ODD);
    }
}
#else
enum { FOUR = 4 };
typedef float __attribute__((vector_size(4 * FOUR), aligned(1), may_alias)) Four;

/* A square of 4 x 4, into columns that are 16 apart. */
static inline void turn_four(const float *w, int64_t ldw, float *to) {
    const Four a = *(const Four *)w, b = *(const Four *)(w + ldw),
               c = *(const Four *)(w + 2 * ldw), d = *(const Four *)(w + 3 * ldw);
    const Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5),
               AB = __builtin_shufflevector(a, b, 2, 6, 3, 7),
               cd = __builtin_shufflevector(c, d, 0, 4, 1, 5),
               CD = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(Four *)to = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *(Four *)(to + PANEL_ROWS) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    *(Four *)(to + 2 * PANEL_ROWS) = __builtin_shufflevector(AB, CD, 0, 1, 4, 5);
    *(Four *)(to + 3 * PANEL_ROWS) = __builtin_shufflevector(AB, CD, 2, 3, 6, 7);
}

/* Writes a square of 16 rows, `ldw` apart, as columns: to[j][i] = w[i][j]. */
static inline void turn_square(const float *w, int64_t ldw, float *to) {
    for (int i = 0; i < PANEL_ROWS; i += FOUR)
        for (int j = 0; j < PANEL_ROWS; j += FOUR)
            turn_four(w + i * ldw + j, ldw, to + j * PANEL_ROWS + i);
}
#endif

/* How far ahead columns and rows are prefetched: the processor does not predict those of
 * another row. */
enum { AHEAD_COLUMNS = 64, AHEAD_ROWS = 8 };

/* K columns of `count` rows w[count, ldw], one panel of 16 rows after another. A line of
 * the cache has 16 columns: rows that lie a multiple of a page apart push each other's
 * lines out, so each is read at once. */
static inline void panels_of_rows(const float *w, int64_t ldw, int64_t K, int64_t count,
                                  float *to) {
    for (; count > 0; count -= PANEL_ROWS, w += PANEL_ROWS * ldw, to += K * PANEL_ROWS) {
        int64_t k = 0;
        for (; count >= PANEL_ROWS && k + PANEL_ROWS <= K; k += PANEL_ROWS) {
            for (int64_t row = 0; row < PANEL_ROWS; row++)
                __builtin_prefetch(w + row * ldw + k + AHEAD_COLUMNS);
            turn_square(w + k, ldw, to + k * PANEL_ROWS);
        }
        for (; k < K; k++)
            for (int64_t lane = 0; lane < PANEL_ROWS; lane++)
                to[k * PANEL_ROWS + lane] = lane < count ? w[lane * ldw + k] : 0;
    }
}

/* K rows of `count` columns of w[K, ldw], likewise; a row at a time, whose lines follow
 * each other in memory. */
static inline void panels_of_columns(const float *w, int64_t ldw, int64_t K,
                                     int64_t count, float *to) {
    for (int64_t k = 0; k < K; k++, w += ldw)
        for (int64_t j = 0; j < count; j += PANEL_ROWS) {
            float *lanes = to + j * K + k * PANEL_ROWS;
            __builtin_prefetch(w + AHEAD_ROWS * ldw + j);
            if (j + PANEL_ROWS <= count)
                memcpy(lanes, w + j, PANEL_ROWS * sizeof *w);
            else
                for (int64_t i = 0; i < PANEL_ROWS; i++)
                    lanes[i] = j + i < count ? w[j + i] : 0;
        }
}

#endif
