/* Reconstruct: what is left of a linear layer's inputs takes over from what goes, so that
 * the layer's outputs change least over a calibration set: least squares in closed form.
 *
 * Of y = W h + b the inputs S stay and R go. With the covariance C of h over the set,
 *
 *     W' = W_S + W_R C_RS (C_SS + lambda I)^-1,    b' = b + W m - W' m_S,
 *
 * m being the mean of h. A layer without a bias keeps none: C is then the matrix of
 * second moments, and nothing takes up the mean. lambda, a part of the mean square of h,
 * keeps the change of W small where the data do not say what it should be; where nothing
 * goes, or what goes has no weight, W' = W whatever lambda is. */
#ifndef COMPRESS_PASSES_ONESHOT_RECONSTRUCT_H
#define COMPRESS_PASSES_ONESHOT_RECONSTRUCT_H

#include "passes/oneshot/gram.h"

/* A layer and what its inputs are over a calibration set, in double. */
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
    double
        scale; /* what costs of removals are shares of: whole, or what is set (obs.h) */
} LinearFit;

/* Memory for a layer of these sizes; weights, and the bias with `bias`, are zero and for
 * the caller to fill. Fails with STATUS_MEMORY; `fit` needs no fit_close then. */
Status fit_open(LinearFit *fit, int64_t outputs, int64_t inputs, bool bias, Diag *diag);
void fit_close(LinearFit *fit);

/* Takes over what a finished Gram matrix of the inputs says: `damp` of the mean of its
 * diagonal is lambda. Weights of inputs that were 0 in every row do not count and become
 * 0. Call once weights are filled. Fails with STATUS_MEMORY. */
Status fit_set(LinearFit *fit, const Gram *gram, double damp, Diag *diag);

/* Takes on what the outputs should give beside what they give: W and b move to those that
 * follow y + t best, t having been gathered with the inputs as the sums cross = sum of t
 * h^T [M, K] and the mean [M]: by (cross - R mean m^T) (C + lambda I)^-1 (without a bias:
 * cross). Call after fit_set; where C + lambda I is not positive definite lambda grows
 * until it is. Fails with STATUS_MEMORY. */
Status fit_follow(LinearFit *fit, const double *cross, const double *mean, Diag *diag);

/* The inverse of C + lambda I: [K, K], to be freed. Where that is not positive definite
 * lambda grows until it is. NULL: out of memory. */
double *fit_invert(LinearFit *fit);

/* How much the outputs change, |change of W h| / |W h| over all rows. */
typedef struct FitErrors {
    double cut;   /* when inputs are left out and nothing else is done */
    double error; /* and what is left of it */
} FitErrors;

/* The first of the errors, for inputs of which keep[i] stay. */
Status fit_cut_error(FitErrors *errors, const LinearFit *fit, const bool *keep,
                     Diag *diag);

/* Lets the inputs with keep[i] take over: W becomes W' with zeros in the columns of the
 * others, b becomes b'. `errors` receives both. Where C + lambda I is not positive
 * definite lambda grows until it is. Fails with STATUS_MEMORY. */
Status reconstruct(FitErrors *errors, LinearFit *fit, const bool *keep, Diag *diag);

#endif
