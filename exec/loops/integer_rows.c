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

/* q = rint(x by), all 0 where the factor is, and the sums of groups. A row that is not
 * finite is not looked at again. */
#define DEFINE_ROUND_ROW(name, type)                                                     \
    static void name(type *restrict q, const float *restrict x, float by, int64_t K,     \
                     int64_t group, int32_t *restrict sums) {                            \
        for (int64_t k = 0; k < K; k++)                                                  \
            q[k] = by == 0 ? 0 : (type)(int32_t)rintf(x[k] * by);                        \
        for (int64_t first = 0; first < K; first += group) {                             \
            const int64_t end = K - first < group ? K : first + group;                   \
            int32_t sum = 0;                                                             \
            for (int64_t k = first; k < end; k++) sum += q[k];                           \
            *sums++ = sum;                                                               \
        }                                                                                \
    }
DEFINE_ROUND_ROW(round_bytes, int8_t)
DEFINE_ROUND_ROW(round_words, int16_t)

/* The second and the third of every four words change places. */
static void swap_words(char *q, int64_t bytes) {
    uint64_t quad;
    for (char *const end = q + bytes; q < end; q += sizeof quad) {
        memcpy(&quad, q, sizeof quad);
        quad = (quad & 0xffff00000000ffffu) | (quad & 0xffff0000u) << 16 |
               (quad >> 16 & 0xffff0000u);
        memcpy(q, &quad, sizeof quad);
    }
}

void REAL_FN(round_rows)(RoundedRows *rows, const float *x, int64_t ldx, int64_t count) {
    const int64_t K = rows->columns, used = K * rows->bytes;
    for (int64_t t = 0; t < count; t++, x += ldx) {
        char *q = rows->number + t * rows->step;
        int32_t *sums = rows->sum + t * rows->groups;
        const float by = row_factor(x, K, &rows->scale[t]);
        memset(q + used, 0, (size_t)(rows->step - used));
        if (rows->bytes == 1) {
            round_bytes((int8_t *)q, x, by, K, rows->group, sums);
            continue;
        }
        round_words((int16_t *)q, x, by, K, rows->group, sums);
        swap_words(q, rows->step);
    }
}
