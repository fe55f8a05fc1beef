/* The cell of a long short-term memory: gates i, f, g, o in this order,
 * c = f c_before + i g, h = o tanh(c). Shared by the ops that have such a cell. */
#ifndef COMPRESS_EXEC_OPS_LSTM_CELL_H
#define COMPRESS_EXEC_OPS_LSTM_CELL_H

#include "exec/ops/kernel_math.h"

enum { LSTM_GATES = 4 };

/* One sample's step: gates[4 H] hold the sums and get their functions' values. `before`
 * is NULL at the first token. */
static inline void lstm_cell_step(REAL *restrict gates, const REAL *restrict before,
                                  REAL *restrict c, REAL *restrict h, int64_t H) {
    REAL *i = gates, *f = i + H, *g = f + H, *o = g + H;
    for (int64_t j = 0; j < 2 * H; j++) i[j] = sigmoid_real(i[j]);
    for (int64_t j = 0; j < H; j++) g[j] = tanh_real(g[j]);
    for (int64_t j = 0; j < H; j++) o[j] = sigmoid_real(o[j]);
    for (int64_t j = 0; j < H; j++) c[j] = i[j] * g[j];
    if (before)
        for (int64_t j = 0; j < H; j++) c[j] += f[j] * before[j];
    for (int64_t j = 0; j < H; j++) h[j] = o[j] * tanh_real(c[j]);
}

/* The same for units first .. last - 1 in generation: the sums stay, c becomes its next
 * value; unless `begun` it is undefined before. */
static inline void lstm_cell_next(const REAL *restrict sums, bool begun, int64_t first,
                                  int64_t last, REAL *restrict c, REAL *restrict h,
                                  int64_t H) {
    const REAL *i = sums, *f = i + H, *g = f + H, *o = g + H;
    for (int64_t j = first; j < last; j++) {
        const REAL kept = begun ? sigmoid_real(f[j]) * c[j] : 0;
        c[j] = kept + sigmoid_real(i[j]) * tanh_real(g[j]);
        h[j] = sigmoid_real(o[j]) * tanh_real(c[j]);
    }
}

/* What one sample's backward step reads. */
typedef struct LstmCell {
    const REAL *gates, *c, *before; /* before: c_{t-1}, NULL at the first token */
    const REAL *dy;                 /* gradient of h from the result */
    int64_t H;
} LstmCell;

/* dh[H] and dc[H] come from t + 1; da[4 H], the gradient before the four functions, is
 * written and dc passed on. */
static inline void lstm_cell_back(LstmCell s, const REAL *restrict dh, REAL *restrict dc,
                                  REAL *restrict da) {
    const int64_t H = s.H;
    const REAL *restrict i = s.gates, *restrict f = i + H, *restrict g = f + H,
                         *restrict o = g + H;
    for (int64_t j = 0; j < H; j++) {
        const REAL d = s.dy[j] + dh[j], u = tanh_real(s.c[j]);
        const REAL e = dc[j] + d * o[j] * (1 - u * u);
        da[j] = e * g[j] * i[j] * (1 - i[j]);
        da[H + j] = s.before ? e * s.before[j] * f[j] * (1 - f[j]) : 0;
        da[2 * H + j] = e * i[j] * (1 - g[j] * g[j]);
        da[3 * H + j] = d * u * o[j] * (1 - o[j]);
        dc[j] = e * f[j];
    }
}

#endif
