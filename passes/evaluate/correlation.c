/* Correlations: see correlation.h. */
#include "passes/evaluate/correlation.h"

#include "ir/arena.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

static double mean(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum / (double)n;
}

/* Largest |x - mean|; 0 where all are equal, whatever rounding does to their mean. */
static double spread(const double *x, int64_t n, double middle) {
    double most = 0;
    bool equal = true;
    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs(x[i] - middle));
        equal &= x[i] == x[0];
    }
    return equal ? 0 : most;
}

double correlation_pearson(const double *x, const double *y, int64_t n) {
    double xy = 0, xx = 0, yy = 0;
    if (n < 2) return 0;
    /* deviations are taken as shares of the largest, so that squares neither overflow nor
     * vanish */
    const double mx = mean(x, n), my = mean(y, n);
    const double sx = spread(x, n, mx), sy = spread(y, n, my);
    if (!(sx > 0 && sy > 0)) return 0;
    for (int64_t i = 0; i < n; i++) {
        const double dx = (x[i] - mx) / sx, dy = (y[i] - my) / sy;
        xy += dx * dy;
        xx += dx * dx;
        yy += dy * dy;
    }
    return fmax(-1, fmin(1, xy / (sqrt(xx) * sqrt(yy))));
}

typedef struct Placed {
    double value;
    int64_t place;
} Placed;

static int by_value(const void *a, const void *b) {
    const double x = ((const Placed *)a)->value, y = ((const Placed *)b)->value;
    return (x > y) - (x < y);
}

/* Ranks from 1; those of equal numbers are their mean. malloc. */
static double *rank_values(const double *x, int64_t n) {
    Placed *sorted = memory_alloc((size_t)n, sizeof *sorted);
    double *ranks = memory_alloc((size_t)n, sizeof *ranks);
    for (int64_t i = 0; i < n; i++) sorted[i] = (Placed){x[i], i};
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && sorted[end].value == sorted[i].value;) end++;
        for (int64_t j = i; j < end; j++)
            ranks[sorted[j].place] = (double)(i + 1 + end) / 2;
    }
    free(sorted);
    return ranks;
}

double correlation_spearman(const double *x, const double *y, int64_t n) {
    double *rx = rank_values(x, n), *ry = rank_values(y, n);
    const double r = correlation_pearson(rx, ry, n);
    free(ry);
    free(rx);
    return r;
}
