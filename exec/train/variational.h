/* Variational: what a Gaussian prior adds to the gradient of a training step, and weights
 * drawn from a Gaussian posterior, over ranges of elements.
 *
 * The prior of element i is p_i = N(prior.mean[i], prior.variance[i]); its approximate
 * posterior q_i = N(mean[i], exp(rho[i])), independent of the others (mean field).
 * Weights are drawn as w = mean + exp(rho / 2) e with e from N(0, 1) (Kingma and Welling,
 * Auto-Encoding Variational Bayes, ICLR 2014; for weights: Blundell et al., Weight
 * Uncertainty in Neural Networks, ICML 2015), so that a gradient g by w is the gradient
 * by mean, and g (w - mean) / 2 that by rho. The divergence is in closed form:
 *
 *     KL(q || p) = 1/2 sum [r - 1 - log r + (mean - prior.mean)^2 / prior.variance],
 *     r = exp(rho) / prior.variance.
 *
 * Sums are in double. Ranges must not overlap. */
#ifndef COMPRESS_EXEC_TRAIN_VARIATIONAL_H
#define COMPRESS_EXEC_TRAIN_VARIATIONAL_H

#include <stdint.h>

/* Prior of a range of elements; variances are positive. */
typedef struct PriorRange {
    const float *mean, *variance;
} PriorRange;

/* Adds factor times the gradient of -log p(w), (w - prior.mean) / prior.variance, to
 * g[n]. Returns -log p(w) without its constant: 1/2 sum (w - prior.mean)^2 / variance. */
double variational_add_density(float *g, const float *w, PriorRange prior, int64_t n,
                               double factor);

/* With g[n] the gradient of a loss by the drawn weights w, turns it into the gradient of
 * loss + factor KL(q || p) by mean, writes that by rho to g_rho[n], and returns
 * KL(q || p). */
double variational_add_divergence(float *g, float *g_rho, const float *w,
                                  const float *mean, const float *rho, PriorRange prior,
                                  int64_t n, double factor);

/* Draws w[n]; e of element i is number first + i of the stream `key`. */
void variational_draw(float *w, const float *mean, const float *rho, int64_t n,
                      uint64_t key, int64_t first);

#endif
