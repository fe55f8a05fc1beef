/* Reconstruct: the remaining inputs of a linear layer take over from the removed ones,
 * so that the layer's outputs change least over a calibration set: least squares in
 * closed form.
 *
 * In y = W h + b, the inputs S stay and R go. With the covariance C of h over the set,
 *
 *     W' = W_S + W_R C_RS (C_SS + lambda I)^-1,    b' = b + W m - W' m_S,
 *
 * m being the mean of h. A layer without a bias gets none: C is then the matrix of
 * second moments, and nothing absorbs the mean. lambda, a fraction of the mean square of
 * h, keeps the change of W small where the data leave it open; if nothing is removed, or
 * what is removed has no weight, W' = W for any lambda. */
#ifndef COMPRESS_PASSES_ONESHOT_RECONSTRUCT_H
#define COMPRESS_PASSES_ONESHOT_RECONSTRUCT_H

#include "passes/oneshot/gram.h"

/* A layer and the statistics of its inputs over a calibration set, in double. */
typedef struct LinearFit {
    int64_t outputs, inputs; /* M, K */
    double *weight;          /* W: [M, K] */
    double *bias;            /* b: [M]; NULL = none */
    double *c;               /* C times the number of rows: [K, K] */
    double *mean;            /* m: [K] */
    int64_t rows;
    double lambda; /* times the number of rows */
    bool raised;   /* lambda had to grow: see fit_invert */
    double whole;  /* sum of squares of W h over all rows */
    double scale;  /* what removal costs are shares of: whole, or a given value (obs.h) */
} LinearFit;

/* Allocates memory for a layer of these sizes; weights, and the bias with `bias`, are
 * zero, for the caller to fill. Fails with STATUS_MEMORY; `fit` needs no fit_close
 * then. */
Status fit_open(LinearFit *fit, int64_t outputs, int64_t inputs, bool bias, Diag *diag);
void fit_close(LinearFit *fit);

/* Takes over a finished Gram matrix of the inputs: lambda is `damp` times the mean of
 * its diagonal. Weights of inputs that were 0 in every row do not count and become
 * 0. Call after the weights are filled. Fails with STATUS_MEMORY. */
Status fit_set(LinearFit *fit, const Gram *gram, double damp, Diag *diag);

/* Adds a target t to what the outputs give: W and b move to those that follow y + t
 * best, t having been gathered with the inputs as the sums cross = sum of t h^T [M, K]
 * and the mean [M]: by (cross - R mean m^T) (C + lambda I)^-1 (without a bias: cross).
 * Call after fit_set; if C + lambda I is not positive definite, lambda grows until it
 * is. Fails with STATUS_MEMORY. */
Status fit_follow(LinearFit *fit, const double *cross, const double *mean, Diag *diag);

/* The inverse of C + lambda I: [K, K], to be freed. If that is not positive definite,
 * lambda grows until it is. NULL: out of memory. */
double *fit_invert(LinearFit *fit);

/* How much the outputs change, |change of W h| / |W h| over all rows. */
typedef struct FitErrors {
    double cut;   /* when inputs are left out and nothing else is done */
    double error; /* and what is left of it */
} FitErrors;

/* The first of the errors, if the inputs with keep[i] stay. */
Status fit_cut_error(FitErrors *errors, const LinearFit *fit, const bool *keep,
                     Diag *diag);

/* Lets the inputs with keep[i] take over: W becomes W' with zeros in the columns of the
 * others, b becomes b'. `errors` receives both. If C + lambda I is not positive
 * definite, lambda grows until it is. Fails with STATUS_MEMORY. */
Status reconstruct(FitErrors *errors, LinearFit *fit, const bool *keep, Diag *diag);

#endif
