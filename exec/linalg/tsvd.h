/* Tsvd: the best approximation of a matrix by one of lower rank. */
#ifndef COMPRESS_EXEC_LINALG_TSVD_H
#define COMPRESS_EXEC_LINALG_TSVD_H

#include "ir/tensor.h"

/* Truncated singular value decomposition E ~ left right of E = U S V^T. */
typedef struct Tsvd {
    Tensor left;           /* U_R S_R, f32 [rows, rank] */
    Tensor right;          /* V_R^T, f32 [rank, width] */
    Tensor sigma;          /* all singular values, largest first, f64 [width] */
    double error;          /* ||E - left right||_F^2 = sum of sigma_i^2 over i > rank */
    double energy;         /* share of ||E||_F^2 that is kept; 1 for a matrix of zeros */
    bool double_precision; /* whether the Gram matrix was computed in f64 */
} Tsvd;

/* Decomposes E[rows, width], a tensor of rank 2 with data and any real dtype, mapped or
 * not, on at most `threads` threads. 1 <= rank <= min(rows, width); width is at most
 * SYMMETRIC_WIDTH_MAX (exec/linalg/blas.h).
 *
 * The eigenproblem of the Gram matrix E^T E is solved and E is projected on the vectors
 * found, so no matrix of rows x rows is formed. The products are summed in f32 unless
 * the spectrum is so steep at the cut that they would lose it (sigma_{rank+1} below a
 * hundredth of sigma_1); then in f64. ||E - left right||_F exceeds the least possible by
 * less than a ten-millionth part of it and, added as squares are, by the rounding of the
 * factors to f32, under 5e-7 ||E||_F. The prediction's root is within 3e-4. A singular
 * value sigma_i is off by about 1e-7 sigma_1^2 / sigma_i after f32 and 1e-15 sigma_1^2 /
 * sigma_i after f64; those beyond the rows are zero.
 *
 * The bytes of the result are the same for any number of threads. The component of
 * largest magnitude of each row of `right`, the first of equals, is positive.
 *
 * Memory beyond E and the result: width x (width + rank) of f64; and a width x width
 * matrix of the precision and 256 converted rows per thread, fewer threads being used if
 * theirs would exceed 48 MiB and eight such matrices of f64; up to 24 MiB are used in
 * any case. Under 30 MiB at 30,522 x 768, rank 128 and 2 threads, to which the BLAS
 * library adds its buffers.
 *
 * Fails with STATUS_MODEL when E is not such a matrix, holds NaN or an infinity, or is
 * too large for f32; with STATUS_MEMORY. `out` needs tsvd_release only after success. */
Status tsvd(Tsvd *out, const Tensor *e, int64_t rank, int threads, Diag *diag);

/* Frees the result's tensors. */
void tsvd_release(Tsvd *result);

/* What the steps of an eigenproblem (exec/linalg/blas.h) returned, as a status: 0 is
 * success, a negative number STATUS_MEMORY, a positive one STATUS_INTERNAL. */
Status eigen_check(int info, Diag *diag);

#endif
