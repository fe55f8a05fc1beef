/* Kernel ridge regression on the choices of recipes. */
#include "session/search/forecast.h"

#include "exec/linalg/blas.h"

#include <math.h>
#include <stdlib.h>

/* What chance adds to a recipe's worth, against what its choices add (variances): one run
 * is not believed more than half. */
#define NOISE 1.0

static double gene_likeness(uint64_t size, uint64_t a, uint64_t b) {
    const uint64_t apart = a > b ? a - b : b - a;
    if (apart == 0 || size < 2) return 1;
    return 0.5 * (1 - (double)apart / (double)(size - 1));
}

double recipe_likeness(const SearchSpace *space, uint64_t a, uint64_t b) {
    double sum = 0;
    for (int i = 0; i < space->genes; i++) {
        const uint64_t size = space->sizes[i];
        sum += gene_likeness(size, a % size, b % size);
        a /= size;
        b /= size;
    }
    return space->genes > 0 ? sum / space->genes : 1;
}

/* Weights of the known recipes in place of their worth above the mean: (K + NOISE I)^-1.
 * The matrix is positive definite, so this fails only where memory does: then 0. */
static void solve(const SearchSpace *space, const uint64_t *known, double *weights,
                  int count) {
    const size_t n = (size_t)count;
    double *matrix = memory_alloc(n * n + 1, sizeof *matrix);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j <= i; j++)
            matrix[i * n + j] = recipe_likeness(space, known[i], known[j]);
        matrix[i * n + i] += NOISE;
    }
    if (cholesky_f64(count, matrix) == 0) {
        cholesky_solve_f64(false, count, matrix, 1, weights, 1);
        cholesky_solve_f64(true, count, matrix, 1, weights, 1);
    } else {
        for (size_t i = 0; i < n; i++) weights[i] = 0;
    }
    free(matrix);
}

void forecast(const SearchSpace *space, const uint64_t *known, const double *worth,
              int known_count, const uint64_t *asked, double *foretold, int asked_count) {
    double *weights = memory_alloc((size_t)known_count + 1, sizeof *weights);
    double mean = 0;
    for (int i = 0; i < known_count; i++) mean += worth[i] / known_count;
    for (int i = 0; i < known_count; i++) weights[i] = worth[i] - mean;
    if (known_count > 0) solve(space, known, weights, known_count);
    for (int a = 0; a < asked_count; a++) {
        foretold[a] = mean;
        for (int i = 0; i < known_count; i++)
            foretold[a] += weights[i] * recipe_likeness(space, asked[a], known[i]);
    }
    free(weights);
}
