/* Rounding of matrices to quantised types (ir/quantised.h): which scales, which numbers.
 *
 * nearest: every weight becomes the nearest number of its group's grid. gptq: columns are
 * rounded one after the other, and what a column is off by is made up for by the columns
 * behind it, as the inputs' Gram matrix says (Frantar et al., GPTQ, 2023). */
#ifndef COMPRESS_PASSES_QUANTIZE_ROUNDING_H
#define COMPRESS_PASSES_QUANTIZE_ROUNDING_H

#include "ir/quantised.h"
#include "passes/oneshot/gram.h"

/* What rounding did to one matrix: sums of squares. */
typedef struct RoundingError {
    double off, whole; /* of w - rounded w, and of w */
} RoundingError;

/* Rounds `from` to `to`, which has the same shape, a quantised type and data of its own.
 * The result does not depend on threads. */
RoundingError round_nearest(Tensor *to, const Tensor *from, int threads);

/* The same with the columns' inverse Cholesky factor. `aim`, of the same shape, has the
 * weights that the outputs are to be near to; NULL = `from`. The error is that to `from`.
 */
typedef struct GptqFactor GptqFactor;
RoundingError round_gptq(Tensor *to, const Tensor *from, const Tensor *aim,
                         const GptqFactor *factor, int threads);

/* Columns in order of falling diagonal of H, and U, upper triangular with U^T U = H^-1 in
 * that order. H is `gram`, damped already. Fails with STATUS_MODEL when H cannot be
 * inverted and with STATUS_MEMORY; the factor is to be freed. */
Status gptq_factor(GptqFactor **out, const Gram *gram, const char *name, Diag *diag);
void gptq_factor_free(GptqFactor *factor);

/* Adds to weights[rows, K] what makes up for what is missing of their outputs, t: T H^-1
 * for T = `cross` = sum of t x^T [rows, K]. Fails with STATUS_MEMORY. */
Status gptq_follow(float *weights, int64_t rows, const double *cross,
                   const GptqFactor *factor, Diag *diag);

#endif
