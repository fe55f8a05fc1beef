/* Rounding of matrices to quantised types (ir/quantised.h): choosing scales and numbers.
 *
 * nearest: every weight becomes the nearest number of its group's grid. gptq: columns
 * are rounded one after another, and the error of a column is compensated by the columns
 * after it, according to the inputs' Gram matrix (Frantar et al., GPTQ, 2023). */
#ifndef COMPRESS_PASSES_QUANTIZE_ROUNDING_H
#define COMPRESS_PASSES_QUANTIZE_ROUNDING_H

#include "ir/quantised.h"
#include "passes/oneshot/gram.h"

/* What rounding did to one matrix: sums of squares. */
typedef struct RoundingError {
    double off, whole; /* of w - rounded w, and of w */
} RoundingError;

/* Rounds `from` to `to`, which has the same shape, a quantised type and its own data.
 * The result does not depend on threads. */
RoundingError round_nearest(Tensor *to, const Tensor *from, int threads);

/* The same with the columns' inverse Cholesky factor. `aim`, of the same shape, holds
 * the weights whose outputs are approximated; NULL = `from`. The error is relative to
 * `from`.
 */
typedef struct GptqFactor GptqFactor;
RoundingError round_gptq(Tensor *to, const Tensor *from, const Tensor *aim,
                         const GptqFactor *factor, int threads);

/* Columns in order of decreasing diagonal of H, and U, upper triangular with U^T U =
 * H^-1 in that order. H is `gram`, already damped. Fails with STATUS_MODEL when H cannot
 * be inverted and with STATUS_MEMORY; the factor is to be freed. */
Status gptq_factor(GptqFactor **out, const Gram *gram, const char *name, Diag *diag);
void gptq_factor_free(GptqFactor *factor);

/* Adds to weights[rows, K] a correction for t, what is missing from their outputs: T
 * H^-1 for T = `cross` = sum of t x^T [rows, K]. Fails with STATUS_MEMORY. */
Status gptq_follow(float *weights, int64_t rows, const double *cross,
                   const GptqFactor *factor, Diag *diag);

#endif
