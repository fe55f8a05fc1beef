/* Kernel alignment: see cka.h. */
#include "exec/linalg/cka.h"

#include "exec/linalg/gemm.h"
#include "ir/memory_array.h"

#include <math.h>
#include <stdlib.h>

static const char *const WHAT = "kernel alignment";

/* Double copy of x[samples, width] with every column centred; to be freed. */
static Status centre(double **out, const float *x, int64_t width, int64_t samples,
                     Diag *diag) {
    TRY(memory_array(out, (size_t)samples, (size_t)width * sizeof **out, WHAT, diag));
    double *to = *out;
    for (int64_t c = 0; c < width; c++) {
        double mean = 0;
        for (int64_t i = 0; i < samples; i++) mean += x[i * width + c];
        mean /= (double)samples;
        for (int64_t i = 0; i < samples; i++) to[i * width + c] = x[i * width + c] - mean;
    }
    return STATUS_OK;
}

/* ||A^T B||_F^2 of a[samples, m] and b[samples, n]. */
static Status cross_square(double *out, const double *a, int64_t m, const double *b,
                           int64_t n, int64_t samples, Diag *diag) {
    double *product;
    TRY(memory_array(&product, (size_t)m, (size_t)n * sizeof *product, WHAT, diag));
    gemm_f64(true, false, m, n, samples, 1, a, m, b, n, 0, product, n);
    *out = 0;
    for (int64_t i = 0; i < m * n; i++) *out += product[i] * product[i];
    free(product);
    return STATUS_OK;
}

Status linear_cka(double *out, const float *x, int64_t x_width, const float *y,
                  int64_t y_width, int64_t samples, Diag *diag) {
    double *a = NULL, *b = NULL, xy = 0, xx = 0, yy = 0;
    Status status = centre(&a, x, x_width, samples, diag);
    if (status == STATUS_OK) status = centre(&b, y, y_width, samples, diag);
    if (status == STATUS_OK)
        status = cross_square(&xy, a, x_width, b, y_width, samples, diag);
    if (status == STATUS_OK)
        status = cross_square(&xx, a, x_width, a, x_width, samples, diag);
    if (status == STATUS_OK)
        status = cross_square(&yy, b, y_width, b, y_width, samples, diag);
    free(a);
    free(b);
    *out = xx > 0 && yy > 0 ? xy / (sqrt(xx) * sqrt(yy)) : (double)NAN;
    return status;
}
