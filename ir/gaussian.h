/* Gaussian: what is known about a storage's values as a normal distribution N(m, S), for
 * Bayesian distillation: the posterior of a teacher's weights, which, conditioned on
 * zeros, becomes the prior of a student's. It is attached to its Storage and follows the
 * edits of ir/storage.h. The mean need not be the current weights.
 *
 * With x the storage's elements in row-major order, P of them:
 *
 *     diagonal   S = diag(diagonal)
 *     low_rank   S = F^T F + diag(diagonal),  F = factor [K, P]
 *     kron       S = row (x) column for a matrix of n rows and m columns:
 *                cov(W[i, j], W[k, l]) = row[i, k] column[j, l]   (matrix normal)
 *
 * Row k of `factor` is one direction of the whole model: storages of form low_rank are
 * correlated through it, cov(x_a, x_b) = F_a^T F_b, so all of them have the same K.
 * Estimated from samples w_1..w_K of all weights at once, F = (w_k - mean of the w) /
 * sqrt(K - 1). Storages of the other forms are independent of each other and of these.
 *
 * Tensors are F32 or F64, shared between copies until written; without data (planning)
 * they have shapes only. */
#ifndef COMPRESS_IR_GAUSSIAN_H
#define COMPRESS_IR_GAUSSIAN_H

#include "ir/arena.h"
#include "ir/tensor.h"
#include "ir/text.h"

#define GAUSSIAN_FORM_NAMES "diagonal|low_rank|kron"
typedef enum GaussianForm {
    GAUSSIAN_DIAGONAL,
    GAUSSIAN_LOW_RANK,
    GAUSSIAN_KRON,
    GAUSSIAN_FORM_COUNT
} GaussianForm;

/* Largest K. */
#define GAUSSIAN_SAMPLES_MAX 4096

typedef struct Gaussian {
    GaussianForm form;
    const char *origin; /* model_content_hash of the model it was estimated for, in the
                           arena: Gaussians of one origin belong together. 32 hexadecimal
                           digits if it is to be written to a file */
    Tensor mean;        /* the storage's shape */
    Tensor diagonal;    /* diagonal, low_rank: the storage's shape; else rank 0, unused */
    Tensor factor;      /* low_rank: [K, P] */
    Tensor row, column; /* kron: [n, n] and [m, m], symmetric */
} Gaussian;

/* Printed name of a form ("low_rank"), and the reverse (GAUSSIAN_FORM_COUNT if there is
 * none). */
const char *gaussian_form_name(GaussianForm form);
GaussianForm gaussian_form_parse(const char *name);

/* New Gaussian of a form with shapes and no data for a storage of shape `like`, in the
 * arena; `dtype` is F32 or F64. `samples` is K, only for low_rank. kron needs rank 2.
 * Names and texts are copied. */
Gaussian *gaussian_create(Arena *arena, GaussianForm form, DType dtype,
                          const Tensor *like, int64_t samples, const char *origin);

/* Allocates zeroed data for the tensors that have none. Fails with STATUS_MEMORY. */
Status gaussian_allocate(Gaussian *gaussian, Diag *diag);

/* Copy in another arena; data is shared until written. NULL gives NULL. */
Gaussian *gaussian_copy(Arena *arena, const Gaussian *gaussian);

/* Drops the data; the shapes stay. NULL is allowed. */
void gaussian_release(Gaussian *gaussian);

/* The tensors that its form has, with their names ("mean", "factor"), into `out`; returns
 * their number. Those of a const Gaussian must not be written. */
enum { GAUSSIAN_PARTS_MAX = 3 };
typedef struct GaussianPart {
    const char *name;
    Tensor *tensor;
} GaussianPart;
int gaussian_parts(const Gaussian *gaussian, GaussianPart out[GAUSSIAN_PARTS_MAX]);

/* Whether all its tensors have data. */
bool gaussian_has_data(const Gaussian *gaussian);

/* Whether it is well formed for a storage of this shape: shapes and dtypes agree.
 * gaussian_check checks its contents. */
bool gaussian_fits(const Gaussian *gaussian, const Tensor *storage);

/* Number of directions K of form low_rank, 0 for the others. */
int64_t gaussian_samples(const Gaussian *gaussian);

/* Bytes of all its tensors. */
size_t gaussian_bytes(const Gaussian *gaussian);

/* Means and marginal variances of elements [first, first + count), row-major: every form
 * has them. Data must be there. */
void gaussian_mean_f64(const Gaussian *gaussian, int64_t first, int64_t count,
                       double *out);
void gaussian_variance_f64(const Gaussian *gaussian, int64_t first, int64_t count,
                           double *out);
void gaussian_mean_f32(const Gaussian *gaussian, int64_t first, int64_t count,
                       float *out);
void gaussian_variance_f32(const Gaussian *gaussian, int64_t first, int64_t count,
                           float *out);

/* Checks the numbers: all finite, variances not negative, row and column symmetric.
 * `name` is the storage's, for the message. Fails with `status`. */
Status gaussian_check(const Gaussian *gaussian, const char *name, Status status,
                      Diag *diag);

/* Keeps entries keep[0..count), increasing, along an axis of the storage: the marginal of
 * what remains. Only shapes if there is no data. Fails with STATUS_MEMORY; the Gaussian
 * is then unchanged. */
Status gaussian_keep(Gaussian *gaussian, int axis, const int64_t *keep, int64_t count,
                     Diag *diag);

/* Gives it another shape with the same number of elements, in the same order. False,
 * with nothing changed, for kron. */
bool gaussian_reshape(Gaussian *gaussian, int rank, const int64_t *dim);

/* The distribution of the mean of `count` storages of equal shapes with Gaussians `from`,
 * into from[0]: the effect of sharing one storage among them by averaging; diagonal
 * parts are treated as independent. `*done` is false, and nothing is changed, if one is
 * NULL, forms or K differ, or they are kron (the mean is not of that form). Fails with
 * STATUS_MEMORY.
 */
Status gaussian_average(Gaussian *const *from, int count, bool *done, Diag *diag);

/* Appends one line with form, origin, shape and hash of every tensor: equal lines mean
 * equal Gaussians. */
void gaussian_describe(Text *text, const Gaussian *gaussian);

#endif
