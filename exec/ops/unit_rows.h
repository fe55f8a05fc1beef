/* Rows divided by their L2 norms, and the gradient of that: shared by losses on cosines
 * between rows. */
#ifndef COMPRESS_EXEC_OPS_UNIT_ROWS_H
#define COMPRESS_EXEC_OPS_UNIT_ROWS_H

#include "exec/ops/kernel_math.h"

/* unit = rows of x over their norm; inverse[i] = 1 / norm, 0 for a row of zeros. */
static inline void unit_rows(int64_t rows, int64_t width, const REAL *x, REAL *unit,
                             REAL *inverse) {
    for (int64_t i = 0; i < rows; i++, x += width, unit += width) {
        const REAL norm = (REAL)sqrt((double)row_dot(x, x, width));
        inverse[i] = norm == 0 ? 0 : 1 / norm;
        for (int64_t c = 0; c < width; c++) unit[c] = x[c] * inverse[i];
    }
}

/* The gradient of the unit rows becomes that of x: (d - u (u . d)) / norm. */
static inline void unit_gradient(int64_t rows, int64_t width, const REAL *unit,
                                 const REAL *inverse, REAL *d) {
    for (int64_t i = 0; i < rows; i++, unit += width, d += width) {
        const REAL along = row_dot(unit, d, width);
        for (int64_t c = 0; c < width; c++) d[c] = (d[c] - unit[c] * along) * inverse[i];
    }
}

#endif
