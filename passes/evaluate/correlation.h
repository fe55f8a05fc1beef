/* Correlations of two series of numbers. */
#ifndef COMPRESS_PASSES_EVALUATE_CORRELATION_H
#define COMPRESS_PASSES_EVALUATE_CORRELATION_H

#include <stdint.h>

/* Pearson's: covariance over the product of the standard deviations, -1 to 1; 0 where all
 * of x or all of y are equal. */
double correlation_pearson(const double *x, const double *y, int64_t n);

/* Spearman's: Pearson's of the ranks, equal numbers sharing the mean of theirs; -1 to 1;
 * 0 where all of x or all of y are equal. */
double correlation_spearman(const double *x, const double *y, int64_t n);

#endif
