/* LowRank: the product of two thin matrices that is nearest to a matrix, as seen by its
 * inputs.
 *
 * W[M, K] takes inputs x with H = sum of x x^T = L L^T; without inputs H is the identity.
 * With the singular value decomposition W L = U S V^T, no B[M, r] A[r, K] gives outputs
 * nearer to those of W over these inputs than B A = (U_r S_r) (V_r^T L^-1), and
 *
 *     sum over x of |W x - B A x|^2 = ||(W - B A) L||_F^2 = sum of s_i^2 over i > r
 *
 * (Eckart and Young, 1936; with H: Wang et al., SVD-LLM, ICLR 2025). The eigenproblem of
 * the smaller of (W L) (W L)^T and (W L)^T (W L) is solved in double; with M <= K that is
 * B A = U_r U_r^T W and L is never inverted. Everything runs on the calling thread. */
#ifndef COMPRESS_EXEC_LINALG_LOWRANK_H
#define COMPRESS_EXEC_LINALG_LOWRANK_H

#include "ir/tensor.h"

/* A matrix, decomposed as far as its singular values. */
typedef struct LowRank {
    int64_t rows, columns; /* M, K */
    int64_t count;         /* singular values: the smaller of the two */
    double *squares;       /* s_i^2 [count], largest first */
    const double *w, *l;   /* borrowed */

    Buf *buf;                     /* of all that follows and of squares */
    const double *product;        /* W L [M, K]; W itself without L */
    double *matrix, *d, *e, *tau; /* what symmetric_reduce left */
} LowRank;

/* Decomposes w[rows, columns], which is borrowed as long as `out` is used. `l` is
 * [columns, columns], lower triangular with zeros above the diagonal; NULL = the
 * identity. The smaller side is at most SYMMETRIC_WIDTH_MAX (exec/linalg/blas.h). s_i^2
 * is off by about 1e-15 s_1^2 times the smaller side. Fails with STATUS_MODEL if W L is
 * not finite, and with STATUS_MEMORY; `out` needs low_rank_close only after success.
 */
Status low_rank_open(LowRank *out, const double *w, int64_t rows, int64_t columns,
                     const double *l, Diag *diag);

/* The least rank, from 1, that keeps this share of the sum of squares; anything under
 * 1e-12 of the sum counts as kept. */
int64_t low_rank_by_energy(const LowRank *low, double energy);

/* The factors of a rank of at most `count` in f32: second = B [M, r] and first = A [r,
 * K], or with `turned` B^T [r, M] and A^T [K, r]. Column i of B and row i of A have equal
 * norms, and the component of largest magnitude in that row, the first of equals, is
 * positive. Fails with STATUS_MEMORY. */
Status low_rank_factors(Tensor *second, Tensor *first, const LowRank *low, int64_t rank,
                        bool turned, Diag *diag);

/* Squared norms of a matrix D[M, K], as it is and through L: ||D||_F^2, ||D L||_F^2. */
typedef struct LowRankNorms {
    double plain, seen;
} LowRankNorms;

/* Those of W, and those of W - B A for factors as low_rank_factors made them. Fails with
 * STATUS_MEMORY. */
Status low_rank_norms(LowRankNorms *whole, LowRankNorms *error, const LowRank *low,
                      const Tensor *second, const Tensor *first, bool turned, Diag *diag);

/* Multiplies factors out: w[M, K] = B A in double, of any real dtypes; with `turned` of
 * B^T [r, M] and A^T [K, r]. Fails with STATUS_MEMORY. */
Status low_rank_multiply(double *w, const Tensor *second, const Tensor *first,
                         bool turned, Diag *diag);

/* Frees what it holds. */
void low_rank_close(LowRank *low);

#endif
