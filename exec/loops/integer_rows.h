/* Rows of x as whole numbers of 8 bits, for products of whole numbers (integer.c,
 * integer4.c): q = rint(x (127 / max|x|)), scale max|x| / 127 (exec/linalg/gemv.h). */
#ifndef COMPRESS_EXEC_LOOPS_INTEGER_ROWS_H
#define COMPRESS_EXEC_LOOPS_INTEGER_ROWS_H

#include "exec/loops/loops.h"

enum {
    QUAD = 4,            /* adjacent columns of one lane */
    ROUNDED_ROWS = 1024, /* most that are rounded before they are used */
    ROUNDED_BYTES = 2 * INTEGER_COLUMNS_MAX,
    ROUNDED_SUMS = ROUNDED_ROWS + ROUNDED_BYTES / 32 /* of groups of 32 columns or more */
};

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* How a set's registers hold a panel's rows. */
#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX2__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
enum { VECTORS = PANEL_ROWS / LANES }; /* of a panel */
#define VECTOR(type) type __attribute__((vector_size(4 * LANES), aligned(4), may_alias))
typedef VECTOR(float) Floats;
typedef VECTOR(int32_t) Ints;
typedef VECTOR(uint32_t) Words;

/* Some rows, `step` bytes apart, of numbers of `bytes` bytes (1 or 2), followed by zeros
 * up to a multiple of `unit` numbers. In every four numbers of 2 bytes, the second and
 * third are swapped. */
typedef struct RoundedRows {
    _Alignas(64) char number[ROUNDED_BYTES];
    float scale[ROUNDED_ROWS];
    int32_t sum[ROUNDED_SUMS]; /* of each group of columns of each row, row by row */
    int64_t step, groups;      /* of a row */
    int64_t columns, group;
    int bytes;
} RoundedRows;

/* Makes room for rows of K columns; returns the number of rows that fit. `group` columns
 * are summed at a time: at least 32, or all. */
static inline int64_t rounded_room(RoundedRows *rows, int64_t K, int64_t group, int bytes,
                                   int64_t unit) {
    const int64_t step = (K + unit - 1) / unit * unit * bytes;
    const int64_t most = ROUNDED_BYTES / step;
    rows->step = step, rows->bytes = bytes;
    rows->columns = K, rows->group = group;
    rows->groups = (K + group - 1) / group;
    return most < ROUNDED_ROWS ? most : ROUNDED_ROWS;
}

/* Rounds `count` rows of x, ldx apart. A row of zeros, or so small that 127 / max|x|
 * overflows, becomes zeros with the scale 0; one with NaN or an infinity zeros with the
 * scale NaN. */
void REAL_FN(round_rows)(RoundedRows *rows, const float *x, int64_t ldx, int64_t count);

/* integer_times_by for a matrix of int4. */
void REAL_FN(integer4_times_by)(IntegerWay wanted, const Matrix *matrix, int64_t first,
                                int64_t last, const float *bias, const float *x,
                                int64_t ldx, float *y, int64_t ldy, int64_t count);

#endif
