/* Calibration of the rule for leaving at exits: what is known about every sample, the
 * result of each threshold, and which one to choose. Private to calibrate_exits. */
#ifndef COMPRESS_PASSES_EXITS_CALIBRATION_H
#define COMPRESS_PASSES_EXITS_CALIBRATION_H

#include "exec/run/dynamic.h"

/* The results of one run over the data with all exits. */
typedef struct Calibration {
    int criterion; /* EXIT_ENTROPY or EXIT_PATIENCE */
    int exits;     /* with the last one */
    const int *layer;
    int64_t samples;
    double *score; /* [samples][exits - 1]: entropy, or exits in a row that agreed */
    bool *correct; /* [samples][exits] */
    const double **flops; /* [samples] -> [exits]: FLOPs up to each exit */
} Calibration;

/* The result of one threshold. */
typedef struct CalibrationPoint {
    double threshold; /* or patience */
    double accuracy;  /* percent */
    double depth;     /* mean number of layers */
    double flops;     /* share of what all samples take to the last exit */
} CalibrationPoint;

/* Thresholds worth trying, ascending, in `arena`: for entropy 0 (no sample leaves
 * early), at most `most` quantiles of the entropies seen, and one above ln(classes) (all
 * leave at the first exit); for patience 1 to the number of early exits, which no sample
 * reaches at any of them. */
int calibration_candidates(double **out, Arena *arena, const Calibration *c, int most,
                           int64_t classes);

/* The result of a threshold on the samples. */
CalibrationPoint calibration_point(const Calibration *c, double threshold);

/* The point with the best accuracy among those of at most `flops`, ties to fewer FLOPs;
 * or the one with the fewest FLOPs among those of at least `accuracy`, ties to the better
 * accuracy. NULL when there is none. */
const CalibrationPoint *calibration_within(const CalibrationPoint *points, int count,
                                           double flops);
const CalibrationPoint *calibration_above(const CalibrationPoint *points, int count,
                                          double accuracy);

#endif
