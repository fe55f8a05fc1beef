/* Vectors of eight elements, for rows that are padded to a multiple of eight: reductions
 * without remainders, which matter when rows are as short as a few vectors. */
#ifndef COMPRESS_EXEC_OPS_LANES_H
#define COMPRESS_EXEC_OPS_LANES_H

#include "exec/ops/kernel.h"

enum { LANE_COUNT = 8 };
#define LANES_ROUND_UP(n) (((n) + LANE_COUNT - 1) / LANE_COUNT * LANE_COUNT)

/* Eight elements at any address of an element, and what comparing them gives. */
typedef REAL Lanes __attribute__((vector_size(LANE_COUNT * sizeof(REAL)),
                                  aligned(sizeof(REAL)), may_alias));
typedef __typeof__((Lanes){0} > (Lanes){0}) LanesMask;

/* The eight elements from x on. (Functions that take or return vectors wider than the
 * processor's have no stable calling convention, hence macros and pointers.) */
#define LANES_AT(x) (*(const Lanes *)(x))

/* Sum of the eight elements. */
static inline REAL lanes_total(const Lanes *lanes) {
    Lanes x = *lanes;
    for (int width = LANE_COUNT / 2; width > 0; width /= 2)
        for (int l = 0; l < width; l++) x[l] += x[l + width];
    return x[0];
}

/* Sum of x, or of x * y; n is a multiple of LANE_COUNT, as in the functions below. */
static inline REAL lanes_sum(int64_t n, const REAL *x) {
    Lanes sum = {0};
    for (int64_t j = 0; j < n; j += LANE_COUNT) sum += LANES_AT(x + j);
    return lanes_total(&sum);
}
static inline REAL lanes_dot(int64_t n, const REAL *x, const REAL *y) {
    Lanes sum = {0};
    for (int64_t j = 0; j < n; j += LANE_COUNT) sum += LANES_AT(x + j) * LANES_AT(y + j);
    return lanes_total(&sum);
}

/* Largest element of x. */
static inline REAL lanes_max(int64_t n, const REAL *x) {
    Lanes most = LANES_AT(x);
    for (int64_t j = LANE_COUNT; j < n; j += LANE_COUNT) {
        const Lanes next = LANES_AT(x + j);
        const LanesMask more = next > most;
        most = (Lanes)(((LanesMask)next & more) | ((LanesMask)most & ~more));
    }
    REAL best = most[0];
    for (int l = 1; l < LANE_COUNT; l++) best = most[l] > best ? most[l] : best;
    return best;
}

/* x += y; returns the largest element of the result, `least` when all are below it. */
static inline REAL lanes_add_max(int64_t n, REAL *x, const REAL *y, REAL least) {
    Lanes most = (Lanes){0} + least;
    for (int64_t j = 0; j < n; j += LANE_COUNT) {
        const Lanes sum = LANES_AT(x + j) + LANES_AT(y + j);
        const LanesMask more = sum > most;
        most = (Lanes)(((LanesMask)sum & more) | ((LanesMask)most & ~more));
        *(Lanes *)(x + j) = sum;
    }
    for (int l = 0; l < LANE_COUNT; l++) least = most[l] > least ? most[l] : least;
    return least;
}

/* out[l, i] = x[i, l] for an 8 x 8 block, rows ldx and ldo apart: interleaving the halves
 * of the list of rows three times exchanges the bits of row and column. */
static inline void lanes_transpose(const REAL *x, int64_t ldx, REAL *out, int64_t ldo) {
    Lanes row[LANE_COUNT], next[LANE_COUNT];
    for (int i = 0; i < LANE_COUNT; i++) row[i] = LANES_AT(x + i * ldx);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < LANE_COUNT / 2; i++) {
            const Lanes a = row[i], b = row[i + LANE_COUNT / 2];
            next[2 * i] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
            next[2 * i + 1] = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
        }
        for (int i = 0; i < LANE_COUNT; i++) row[i] = next[i];
    }
    for (int i = 0; i < LANE_COUNT; i++) *(Lanes *)(out + i * ldo) = row[i];
}

#endif
