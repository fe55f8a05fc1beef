/* Factoring: projections that are two matrices each, y = B (A x) + b. What factor_linear
 * and merge_factors share.
 *
 * The second node keeps the projection's place, role, bias and name of weights; the
 * first one comes before it, with role `factor` and weights called NAME_factor.
 * Projections that share a weight share both factors. */
#ifndef COMPRESS_PASSES_FACTORING_FACTORING_H
#define COMPRESS_PASSES_FACTORING_FACTORING_H

#include "passes/budget.h"
#include "passes/linears.h"
#include "passes/oneshot/calibration.h"

/* A weight W[M, K] and the projections that read it. */
typedef struct FactorSite {
    Node *leaf;     /* W, or B where there are two matrices */
    Node *outer;    /* A; NULL = there is one matrix */
    Node **readers; /* projections, in graph order */
    int reader_count;
    bool turned; /* stored [K, M]; A and B likewise */
    int64_t rows, columns;
    int64_t most;     /* the largest rank: the smaller of M and K, or that of A and B */
    const char *left; /* why it is left unchanged; NULL = it can be factored */
    double unit;      /* cost of one rank of factors, by factor_costs */
    double whole;     /* and cost of the present weight */
    int64_t rank;     /* the chosen one; 0 = left unchanged */
    double *squares;  /* squared singular values [most], largest first; NULL = unknown */
} FactorSite;

typedef struct Factoring {
    PassContext *ctx;
    Graph *graph;
    FactorSite *sites; /* in graph order of their first readers */
    int count;
    bool quiet; /* progress is reported elsewhere */
} Factoring;

/* Finds the chosen weights; everything lives in the context's arena. Weights that other
 * nodes read as well are `left`. Fails with STATUS_MODEL when nothing is chosen. */
Status factor_find(Factoring *out, PassContext *ctx, Graph *graph,
                   const LinearChoice *choice, Diag *diag);

/* Element type of a site's factors: the weight's where that is f16 or bf16, else f32. */
DType factor_dtype(const FactorSite *site);

/* Fills `unit` and `whole` of all sites with parameters, bytes or FLOPs of the model at
 * the sizes of model_measure. */
void factor_costs(Factoring *factoring, MeasureKind kind);

/* The largest rank whose factors cost less than the present weight; 0 = none. */
int64_t factor_even(const FactorSite *site);

/* The cost of a site with the chosen rank. */
double factor_cost(const FactorSite *site);

/* Chooses the rank of every site such that all cost at most `bound` together: starting
 * from rank 1 of each, the next singular value to be added is the one with the largest
 * square over its cost; a weight whose factors would cost as much as it does is left
 * unchanged. If squares are not known, or with `each`, every site gets the same share of
 * its cost. Returns the least that all can cost, more than `bound` if no choice meets
 * it. */
double factor_choose(Factoring *factoring, double bound, bool each);

/* One weight to decompose, and the result. */
typedef struct FactorJob {
    FactorSite *site;
    const double
        *l; /* factor of its inputs' Gram matrix, exec/linalg/lowrank.h; NULL = unknown */
    double damping;       /* that l l^T has beyond the inputs on its diagonal */
    bool squares;         /* fill the site's squares, and no more */
    double energy;        /* above 0: choose the site's rank by it */
    Tensor second, first; /* B and A, turned like the weight; empty for rank 0 */
    double error, norm;   /* squares of W - B A and W, weighted by the inputs */
} FactorJob;

/* Does jobs in parallel on the context's threads; results do not depend on their number.
 * Weights must have values. Fails with STATUS_MODEL for values that are not finite, with
 * STATUS_MEMORY and with STATUS_INTERRUPTED; no job holds a tensor then. */
Status factor_do(Factoring *factoring, FactorJob *jobs, int count, Diag *diag);

/* The input of a reader of a site: x, also if the site is two matrices. */
Node *factor_input(const FactorSite *site, int reader);

/* The same from inputs of a calibration set, in graph order: projections of one input
 * together. With `put` their factors are in place before the inputs of the next ones are
 * computed, and the jobs hold none; without it the model is unchanged. Also fails as
 * calibration_gram does, and at the option `damp` if inputs depend on each other. */
Status factor_do_calibrated(Factoring *factoring, Calibration *calibration, double damp,
                            FactorJob *jobs, int count, bool put, Diag *diag);

/* How many times that requests inputs. */
int factor_calls(const Factoring *factoring, const FactorJob *jobs, int count);

/* Replaces the site's weight, or its factors, by factors of the site's rank, taking over
 * both tensors; only shapes if they are NULL. */
Status factor_put(Factoring *factoring, FactorSite *site, Tensor *second, Tensor *first,
                  Diag *diag);

/* W[M, K] of a site in double, multiplied out; to be freed. Fails with STATUS_MEMORY. */
Status factor_read(double **out, const FactorSite *site, Diag *diag);

#endif
