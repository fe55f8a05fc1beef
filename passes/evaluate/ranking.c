/* Ranking metrics: see ranking.h. */
#include "passes/evaluate/ranking.h"

#include "ir/arena.h"

#include <math.h>
#include <stdlib.h>

typedef struct Scored {
    double score;
    bool positive;
} Scored;

static int compare_scored(const void *a, const void *b) {
    const double x = ((const Scored *)a)->score, y = ((const Scored *)b)->score;
    return (x < y) - (x > y);
}

/* What a threshold at which `above` scores are the highest ones says of them. */
typedef double AtThreshold(double hits, double above, double positives, double n);

static double accuracy_at(double hits, double above, double positives, double n) {
    return (hits + (n - above) - (positives - hits)) / n;
}

static double f1_at(double hits, double above, double positives, double n) {
    (void)n;
    return above + positives > 0 ? 2 * hits / (above + positives) : 0;
}

/* The largest value over all thresholds, or with `at` NULL the average precision. */
static double sweep_thresholds(const double *score, const bool *positive, int64_t n,
                               AtThreshold *at) {
    Scored *sorted = memory_alloc((size_t)n + 1, sizeof *sorted);
    int64_t positives = 0, hits = 0, before = 0;
    for (int64_t i = 0; i < n; i++) {
        sorted[i] = (Scored){score[i], positive[i]};
        positives += positive[i];
    }
    qsort(sorted, (size_t)n, sizeof *sorted, compare_scored);
    double best = at ? at(0, 0, (double)positives, (double)n) : 0, average = 0;
    for (int64_t i = 0; i < n; i++) {
        hits += sorted[i].positive;
        if (i + 1 < n && sorted[i + 1].score == sorted[i].score) continue;
        const double above = (double)(i + 1), found = (double)hits;
        if (at) best = fmax(best, at(found, above, (double)positives, (double)n));
        average += (double)(hits - before) * found / above;
        before = hits;
    }
    free(sorted);
    if (at) return best;
    return positives > 0 ? average / (double)positives : 0;
}

double ranking_average_precision(const double *score, const bool *positive, int64_t n) {
    return sweep_thresholds(score, positive, n, NULL);
}

double ranking_best_accuracy(const double *score, const bool *positive, int64_t n) {
    return sweep_thresholds(score, positive, n, accuracy_at);
}

double ranking_best_f1(const double *score, const bool *positive, int64_t n) {
    return sweep_thresholds(score, positive, n, f1_at);
}

int64_t ranking_place(const double *score, int64_t n, int64_t match) {
    int64_t place = 0;
    for (int64_t i = 0; i < n; i++) place += score[i] >= score[match];
    return place;
}
