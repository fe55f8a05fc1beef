/* Rounding of rows: see exec/loops/integer_rows.h. */
#include "exec/loops/integer_rows.h"

#include "ir/half.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* The factor 127 / max|x| of a row, and its scale max|x| / 127. The largest of the bits
 * without the sign is that of the values too, and that of NaN and infinities where there
 * are any: then, as for a row so small that 127 / max|x| is none, the factor is 0, and
 * the scale NaN or 0. */
static float row_factor(const float *x, int64_t K, float *scale) {
    uint32_t most = 0;
#pragma omp simd reduction(max : most)
    for (int64_t k = 0; k < K; k++) {
        const uint32_t bits = float_bits(x[k]) & 0x7fffffff;
        most = bits > most ? bits : most;
    }
    const float largest = float_of_bits(most), by = INTEGER_MOST / largest;
    *scale = largest / INTEGER_MOST;
    if (largest <= FLT_MAX && by <= FLT_MAX) return by;
    *scale = largest <= FLT_MAX ? 0 : NAN;
    return 0;
}

/* rint(x by) of numbers below 2^22: the sum with 1.5 * 2^23 is a whole number, which its
 * lower bits hold. */
ALWAYS_INLINE Ints rounded(Floats x, float by) {
    const Floats shift = (Floats){0} + 0x1.8p23f;
    return (Ints)(x * by + shift) - (Ints)shift;
}

/* Of every four numbers the second and the third change places. */
#if defined(__AVX512F__)
#define SWAPPED(v)                                                                       \
    __builtin_shufflevector(v, v, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15)
#elif defined(__AVX2__)
#define SWAPPED(v) __builtin_shufflevector(v, v, 0, 2, 1, 3, 4, 6, 5, 7)
#else
#define SWAPPED(v) __builtin_shufflevector(v, v, 0, 2, 1, 3)
#endif
#define SWAPPED_PLACE(k) (((k) & ~3) | ((k)&1) << 1 | ((k) >> 1 & 1))
#define AS_THEY_ARE(v)   (v)

/* q = rint(x by) of some columns, in their places, which begin at a multiple of four;
 * returns the sum. */
#define DEFINE_ROUND_COLUMNS(name, type, PLACED, PLACE)                                  \
    static int32_t name(type *restrict q, const float *restrict x, float by,             \
                        int64_t count) {                                                 \
        typedef type                                                                     \
            __attribute__((vector_size(LANES * sizeof(type)), aligned(1), may_alias))    \
            Numbers;                                                                     \
        Ints total = {0};                                                                \
        int32_t sum = 0;                                                                 \
        int64_t k = 0;                                                                   \
        for (; k + LANES <= count; k += LANES) {                                         \
            const Ints numbers = rounded(*(const Floats *)(x + k), by);                  \
            total += numbers;                                                            \
            *(Numbers *)(q + k) = __builtin_convertvector(PLACED(numbers), Numbers);     \
        }                                                                                \
        for (int i = 0; i < LANES; i++) sum += total[i];                                 \
        for (; k < count; k++) {                                                         \
            const int32_t number = (int32_t)rintf(x[k] * by);                            \
            sum += number;                                                               \
            q[PLACE(k)] = (type)number;                                                  \
        }                                                                                \
        return sum;                                                                      \
    }
DEFINE_ROUND_COLUMNS(round_bytes, int8_t, AS_THEY_ARE, AS_THEY_ARE)
DEFINE_ROUND_COLUMNS(round_words, int16_t, SWAPPED, SWAPPED_PLACE)

/* A row of zeros, up to the last of its numbers. */
static void put_zeros(RoundedRows *rows, int64_t t) {
    memset(rows->number + t * rows->step, 0, (size_t)rows->step);
    memset(rows->sum + t * rows->groups, 0, (size_t)rows->groups * sizeof *rows->sum);
}

void REAL_FN(round_rows)(RoundedRows *rows, const float *x, int64_t ldx, int64_t count) {
    const int64_t K = rows->columns, whole = K / QUAD * QUAD * rows->bytes;
    for (int64_t t = 0; t < count; t++, x += ldx) {
        char *q = rows->number + t * rows->step;
        const float by = row_factor(x, K, &rows->scale[t]);
        if (by == 0) {
            put_zeros(rows, t);
            continue;
        }
        memset(q + whole, 0, (size_t)(rows->step - whole));
        for (int64_t g = 0, first = 0; g < rows->groups; g++, first += rows->group) {
            const int64_t end = K - first < rows->group ? K : first + rows->group;
            rows->sum[t * rows->groups + g] =
                rows->bytes == 1
                    ? round_bytes((int8_t *)q + first, x + first, by, end - first)
                    : round_words((int16_t *)q + first, x + first, by, end - first);
        }
    }
}
