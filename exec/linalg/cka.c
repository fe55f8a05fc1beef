/* Kernel alignment: see cka.h. */
#include "exec/linalg/cka.h"

#include "exec/linalg/gemm.h"
#include "ir/arena.h"

#include <math.h>
#include <stdlib.h>

/* Double copy of x[samples, width] with every column centred. */
static double *centred(const float *x, int64_t width, int64_t samples) {
    double *out = memory_alloc((size_t)(samples * width), sizeof(double));
    for (int64_t c = 0; c < width; c++) {
        double mean = 0;
        for (int64_t i = 0; i < samples; i++) mean += x[i * width + c];
        mean /= (double)samples;
        for (int64_t i = 0; i < samples; i++)
            out[i * width + c] = x[i * width + c] - mean;
    }
    return out;
}

/* ||A^T B||_F^2 of a[samples, m] and b[samples, n]. */
static double cross_square(const double *a, int64_t m, const double *b, int64_t n,
                           int64_t samples) {
    double *product = memory_alloc((size_t)(m * n), sizeof(double));
    gemm_f64(true, false, m, n, samples, 1, a, m, b, n, 0, product, n);
    double sum = 0;
    for (int64_t i = 0; i < m * n; i++) sum += product[i] * product[i];
    free(product);
    return sum;
}

double linear_cka(const float *x, int64_t x_width, const float *y, int64_t y_width,
                  int64_t samples) {
    double *a = centred(x, x_width, samples), *b = centred(y, y_width, samples);
    const double xy = cross_square(a, x_width, b, y_width, samples);
    const double xx = cross_square(a, x_width, a, x_width, samples);
    const double yy = cross_square(b, y_width, b, y_width, samples);
    free(a);
    free(b);
    return xx > 0 && yy > 0 ? xy / (sqrt(xx) * sqrt(yy)) : (double)NAN;
}
