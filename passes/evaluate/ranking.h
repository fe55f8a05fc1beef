/* Ranking metrics: the quality of scores that should be higher for pairs that belong
 * together.
 */
#ifndef COMPRESS_PASSES_EVALUATE_RANKING_H
#define COMPRESS_PASSES_EVALUATE_RANKING_H

#include <stdbool.h>
#include <stdint.h>

/* Average precision, 0 to 1: over the thresholds from the highest score down, the sum of
 * what recall gains times the precision there, equal scores being one threshold (as
 * scikit-learn's average_precision_score). 0 without a positive. */
double ranking_average_precision(const double *score, const bool *positive, int64_t n);

/* The largest accuracy and the largest F1 that a threshold on the scores gives, 0 to 1,
 * each at its own threshold; scores above it are positive. F1 is 0 without a
 * positive. */
double ranking_best_accuracy(const double *score, const bool *positive, int64_t n);
double ranking_best_f1(const double *score, const bool *positive, int64_t n);

/* Rank, from 1, of candidate `match` among n by their scores, the highest first.
 * Candidates with an equal score rank before it, so that all-equal scores find nothing.
 */
int64_t ranking_place(const double *score, int64_t n, int64_t match);

#endif
