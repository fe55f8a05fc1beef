/* Probes: how well classes can be predicted from frozen features, by nearest neighbours
 * and by a linear classifier. */
#ifndef COMPRESS_PASSES_EVALUATE_PROBE_H
#define COMPRESS_PASSES_EVALUATE_PROBE_H

#include "ir/status.h"

#include <stdint.h>

/* Features with their classes; borrowed. */
typedef struct ProbeSet {
    const float *rows; /* [count, width] */
    const int32_t *labels;
    int64_t count, width, classes; /* labels lie in [0, classes) */
} ProbeSet;

/* The class that the `neighbours` rows of `set` with the largest cosines to `row` vote
 * for, each with weight exp(cosine / temperature) (Wu et al., "Unsupervised Feature
 * Learning via Non-Parametric Instance Discrimination", CVPR 2018; with 20 neighbours and
 * 0.07 as DINO, Caron et al., ICCV 2021). The rows of the set and `row` are unit vectors.
 * Ties of cosines are resolved in the order of the set, ties of votes in favour of the
 * lower class. */
int32_t probe_nearest(const ProbeSet *set, const float *row, int64_t neighbours,
                      double temperature);

/* A linear classifier: scores W x + b, weights [classes, width + 1], b behind each row.
 */
typedef struct LinearProbe {
    double *weights;
    int64_t width, classes;
    int64_t steps;   /* that fitting took */
    double gradient; /* its largest element at the end */
} LinearProbe;

/* Fits softmax regression: mean cross-entropy + l2 / 2 times the sum of the squares of W
 * (not of b), by L-BFGS (Liu and Nocedal, 1989) from zeros until no element of the
 * gradient is above 1e-6, or for 1000 steps. Deterministic. `probe->weights` is owned by
 * the caller, who frees it. */
void probe_fit(LinearProbe *probe, const ProbeSet *set, double l2);

/* The class with the highest score; among equals the lower one. */
int32_t probe_classify(const LinearProbe *probe, const float *row);

#endif
