/* Tall: products with a matrix of many rows, a block of rows at a time.
 *
 * The blocks depend only on the shape and are summed in order, so results have the same
 * bytes for any number of threads. E[rows, width] is a tensor of rank 2 with data and
 * any real dtype, mapped or not; rows are converted in chunks unless E holds aligned
 * elements of the type computed in. */
#ifndef COMPRESS_EXEC_LINALG_TALL_H
#define COMPRESS_EXEC_LINALG_TALL_H

#include "ir/tensor.h"

/* Lower triangle of sum[width, width] = E^T E. With `wide`, everything is computed in
 * f64; else the products within a block of rows are summed in f32 and the blocks in f64.
 * NaN or an infinity in E and overflow show as such on the diagonal. Fails with
 * STATUS_MEMORY. */
Status tall_gram(double *sum, const Tensor *e, bool wide, int threads, Diag *diag);

/* out[rows, rank] = E right^T of right[rank, width], in f32. Fails with STATUS_MEMORY. */
Status tall_project(float *out, const Tensor *e, const float *right, int64_t rank,
                    int threads, Diag *diag);

#endif
