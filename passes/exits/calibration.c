/* Search for the threshold: see calibration.h. */
#include "passes/exits/calibration.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- candidates ---- */

static int compare_reals(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts, drops doubles, and returns how many are left. */
static int64_t sort_distinct(double *values, int64_t count) {
    int64_t kept = 0;
    qsort(values, (size_t)count, sizeof *values, compare_reals);
    for (int64_t i = 0; i < count; i++)
        if (kept == 0 || values[i] != values[kept - 1]) values[kept++] = values[i];
    return kept;
}

int calibration_candidates(double **out, Arena *arena, const Calibration *c, int most,
                           int64_t classes) {
    const int early = c->exits - 1;
    const int64_t count = c->samples * early;
    *out = ARENA_ARRAY(arena, double, (size_t)(most > early ? most : early) + 2);
    for (int i = 0; i < early && c->criterion == EXIT_PATIENCE; i++) (*out)[i] = i + 1;
    if (c->criterion == EXIT_PATIENCE) return early;
    double *seen = memory_alloc((size_t)count, sizeof *seen);
    memcpy(seen, c->score, (size_t)count * sizeof *seen);
    const int64_t distinct = sort_distinct(seen, count);
    const int64_t taken = distinct < most ? distinct : most;
    int n = 0;
    (*out)[n++] = 0;
    for (int64_t i = 0; i < taken; i++)
        (*out)[n++] = seen[taken > 1 ? i * (distinct - 1) / (taken - 1) : 0];
    (*out)[n++] = log((double)classes) + 1;
    free(seen);
    return (int)sort_distinct(*out, n);
}

/* ---- what a threshold gives ---- */

static int leaves_at(const Calibration *c, int64_t sample, double threshold) {
    const double *score = c->score + sample * (c->exits - 1);
    for (int e = 0; e < c->exits - 1; e++)
        if (c->criterion == EXIT_PATIENCE ? score[e] >= threshold : score[e] < threshold)
            return e;
    return c->exits - 1;
}

CalibrationPoint calibration_point(const Calibration *c, double threshold) {
    double correct = 0, depth = 0, flops = 0, full = 0;
    for (int64_t i = 0; i < c->samples; i++) {
        const int exit = leaves_at(c, i, threshold);
        correct += c->correct[i * c->exits + exit];
        depth += c->layer[exit];
        flops += c->flops[i][exit];
        full += c->flops[i][c->exits - 1];
    }
    const double samples = (double)c->samples;
    return (CalibrationPoint){.threshold = threshold,
                              .accuracy = 100 * correct / samples,
                              .depth = depth / samples,
                              .flops = full > 0 ? flops / full : 1};
}

/* ---- choice ---- */

const CalibrationPoint *calibration_within(const CalibrationPoint *points, int count,
                                           double flops) {
    const CalibrationPoint *best = NULL;
    for (const CalibrationPoint *p = points; p < points + count; p++) {
        if (p->flops > flops) continue;
        if (!best || p->accuracy > best->accuracy ||
            (p->accuracy == best->accuracy && p->flops < best->flops))
            best = p;
    }
    return best;
}

const CalibrationPoint *calibration_above(const CalibrationPoint *points, int count,
                                          double accuracy) {
    const CalibrationPoint *best = NULL;
    for (const CalibrationPoint *p = points; p < points + count; p++) {
        if (p->accuracy < accuracy) continue;
        if (!best || p->flops < best->flops ||
            (p->flops == best->flops && p->accuracy > best->accuracy))
            best = p;
    }
    return best;
}
