/* Matrices with a known kind of spectrum, and the errors of their approximations, for the
 * test and the benchmark of exec/linalg/tsvd.h. All is reckoned in f64 with plain
 * products. */
#ifndef COMPRESS_TESTS_EXEC_SPECTRA_H
#define COMPRESS_TESTS_EXEC_SPECTRA_H

#include "exec/linalg/blas.h"
#include "exec/linalg/gemm.h"
#include "ir/arena.h"
#include "ir/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows handled together. */
enum { SPECTRA_ROWS = 1024 };

/* Singular value i (from 0) of the kinds: `real` is like an embedding table, with a large
 * common mean and then a slow power law; `steep` falls by e every 12 values. `flat`,
 * NaN here, stands for independent normal numbers. */
static double spectrum_value(const char *kind, int64_t i) {
    if (strcmp(kind, "flat") == 0) return (double)NAN;
    if (strcmp(kind, "steep") == 0) return exp(-(double)(i + 1) / 12);
    return i == 0 ? 160 : 30 * pow((double)(i + 1), -0.35);
}

static double *spectra_new(int64_t count) {
    return memory_alloc((size_t)count, sizeof(double));
}

/* Rows [first, first + count) of a matrix of standard normal numbers. */
static void spectra_normal(double *out, int64_t first, int64_t count, int64_t width,
                           uint64_t key) {
    for (int64_t i = 0; i < count * width; i++)
        out[i] = random_normal(key, (uint64_t)(first * width + i));
}

static int64_t spectra_rows(int64_t rows, int64_t first) {
    return rows - first < SPECTRA_ROWS ? rows - first : SPECTRA_ROWS;
}

/* Adds X^T X of x[count, width] to gram. */
static void spectra_add(double *gram, const double *x, int64_t count, int64_t width) {
    gemm_f64(true, false, width, width, count, 1, x, width, x, width, 1, gram, width);
}

/* Eigenvalues, ascending, and with `vectors` the vectors as rows; gram is destroyed. */
static void spectra_eigen(double *gram, int64_t n, double *values, double *vectors) {
    double *e = spectra_new(n), *tau = spectra_new(n), *d = spectra_new(n);
    double *f = spectra_new(n);
    int bad = symmetric_reduce(n, gram, values, e, tau);
    memcpy(d, values, (size_t)n * sizeof *d);
    memcpy(f, e, (size_t)n * sizeof *f);
    bad |= tridiagonal_values(n, values, f);
    if (vectors) {
        bad |= tridiagonal_vectors(n, n, d, e, vectors);
        bad |= symmetric_restore(n, gram, tau, n, vectors);
    }
    if (bad) abort();
    free(e), free(tau), free(d), free(f);
}

/* a[rows, width] = U S V^T with uniformly random U and V and the given singular values;
 * rows >= width. The columns of X Z L^(-1/2) are orthonormal when X^T X = Z L Z^T. */
static void spectra_make(float *a, int64_t rows, int64_t width, const double *sigma,
                         uint64_t key) {
    const int64_t square = width * width;
    double *x = spectra_new(SPECTRA_ROWS * width), *gram = spectra_new(square);
    double *values = spectra_new(width), *z = spectra_new(square);
    double *v = spectra_new(square), *map = spectra_new(square);
    for (int64_t first = 0; first < 2 * width; first += SPECTRA_ROWS) {
        const int64_t count = spectra_rows(2 * width, first);
        spectra_normal(x, first, count, width, random_key(key, 1));
        spectra_add(gram, x, count, width);
    }
    spectra_eigen(gram, width, values, v);
    memset(gram, 0, (size_t)square * sizeof *gram);
    for (int64_t first = 0; first < rows; first += SPECTRA_ROWS) {
        const int64_t count = spectra_rows(rows, first);
        spectra_normal(x, first, count, width, key);
        spectra_add(gram, x, count, width);
    }
    spectra_eigen(gram, width, values, z);
    for (int64_t i = 0; i < square; i++)
        v[i] *= sigma[i / width] / sqrt(values[i / width]);
    gemm_f64(true, false, width, width, width, 1, z, width, v, width, 0, map, width);
    double *y = spectra_new(SPECTRA_ROWS * width);
    for (int64_t first = 0; first < rows; first += SPECTRA_ROWS) {
        const int64_t count = spectra_rows(rows, first);
        spectra_normal(x, first, count, width, key);
        gemm_f64(false, false, count, width, width, 1, x, width, map, width, 0, y, width);
        for (int64_t i = 0; i < count * width; i++) a[first * width + i] = (float)y[i];
    }
    free(x), free(gram), free(values), free(z), free(v), free(map), free(y);
}

/* a[rows, width] of the named kind. */
static void spectra_fill(float *a, int64_t rows, int64_t width, const char *kind,
                         uint64_t key) {
    double *sigma = spectra_new(width);
    for (int64_t i = 0; i < width; i++) sigma[i] = spectrum_value(kind, i);
    if (!isnan(sigma[0])) spectra_make(a, rows, width, sigma, key);
    for (int64_t i = 0; isnan(sigma[0]) && i < rows * width; i++)
        a[i] = (float)(0.04 * random_normal(key, (uint64_t)i));
    free(sigma);
}

/* Least ||A - L R||_F of rank `rank`, from the eigenvalues of A^T A in f64. */
static double spectra_optimum(const float *a, int64_t rows, int64_t width, int64_t rank) {
    double *x = spectra_new(SPECTRA_ROWS * width), *gram = spectra_new(width * width);
    double *values = spectra_new(width), sum = 0;
    for (int64_t first = 0; first < rows; first += SPECTRA_ROWS) {
        const int64_t count = spectra_rows(rows, first);
        for (int64_t i = 0; i < count * width; i++) x[i] = a[first * width + i];
        spectra_add(gram, x, count, width);
    }
    spectra_eigen(gram, width, values, NULL);
    for (int64_t i = 0; i < width - rank; i++) sum += fmax(values[i], 0);
    free(x), free(gram), free(values);
    return sqrt(sum);
}

/* ||A - L R||_F of left[rows, rank] and right[rank, width]; rank 0 gives ||A||_F. */
static double spectra_error(const float *a, int64_t rows, int64_t width,
                            const float *left, const float *right, int64_t rank) {
    double *l = spectra_new(rank + 1), *r = spectra_new(rank * width + 1);
    double *product = spectra_new(width), sum = 0;
    for (int64_t i = 0; i < rank * width; i++) r[i] = right[i];
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t k = 0; k < rank; k++) l[k] = left[row * rank + k];
        memset(product, 0, (size_t)width * sizeof *product);
        if (rank > 0)
            gemm_f64(false, false, 1, width, rank, 1, l, rank, r, width, 0, product,
                     width);
        for (int64_t c = 0; c < width; c++)
            sum += pow(a[row * width + c] - product[c], 2);
    }
    free(l), free(r), free(product);
    return sqrt(sum);
}

#endif
