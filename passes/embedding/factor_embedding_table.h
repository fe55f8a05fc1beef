/* Factoring of the word embedding: the numbers behind the pass.
 *
 * Shen et al., COST-EFF (EMNLP 2022), section 3.2: E[V, H] ~ W1 W2 by truncated SVD, with
 * W1 = U_R S_R [V, R] and W2 = V_R^T [R, H]. W2 is stored as the weight [H, R] of a
 * linear, so E is left * right^T below. */
#ifndef COMPRESS_PASSES_EMBEDDING_FACTOR_EMBEDDING_TABLE_H
#define COMPRESS_PASSES_EMBEDDING_FACTOR_EMBEDDING_TABLE_H

#include "exec/linalg/tsvd.h"

/* How far left right^T is from a table. */
typedef struct FactorError {
    double absolute; /* ||E - left right^T||_F */
    double relative; /* the same over ||E||_F; 0 for a table of zeros */
    double row; /* largest error of a row over its norm; infinite when the row is 0 */
} FactorError;

/* The table left[V, R] right[H, R]^T in f32, on at most `threads` threads; the bytes do
 * not depend on them. Fails with STATUS_MEMORY. */
Status factor_multiply(Tensor *out, const Tensor *left, const Tensor *right, int threads,
                       Diag *diag);

/* Decomposes a table at the least rank, at most `most`, that keeps the share `energy` of
 * the squared singular values. What factors in f32 cannot show, 1e-12 of them, counts as
 * kept. The result is that of tsvd with this rank. Fails as tsvd does. */
Status factor_by_energy(Tsvd *out, const Tensor *table, double energy, int64_t most,
                        int threads, Diag *diag);

/* The factor [R, H] as the weight [H, R] of a linear. Fails with STATUS_MEMORY. */
Status factor_transpose(Tensor *out, const Tensor *right, Diag *diag);

/* Measures left[V, R] right[H, R]^T against the table [V, H], in double, on at most
 * `threads` threads; the numbers do not depend on them. Fails with STATUS_MEMORY. */
Status factor_measure(FactorError *out, const Tensor *table, const Tensor *left,
                      const Tensor *right, int threads, Diag *diag);

#endif
