/* Loops over weights under a Gaussian prior: see exec/loops/loops.h and
 * exec/train/prior.h. */
#include "exec/loops/loops.h"

#include "ir/random.h"

#include <math.h>

double REAL_FN(variational_add_density)(float *restrict g, const float *restrict w,
                                        PriorRange prior, int64_t n, double factor) {
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        const double distance = (double)w[i] - (double)prior.mean[i];
        const double pull = distance / (double)prior.variance[i];
        g[i] += (float)(factor * pull);
        sum += distance * pull;
    }
    return sum / 2;
}

double REAL_FN(variational_add_divergence)(float *restrict g, float *restrict g_rho,
                                           const float *restrict w,
                                           const float *restrict mean,
                                           const float *restrict rho, PriorRange prior,
                                           int64_t n, double factor) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double variance = (double)prior.variance[i];
        const double distance = (double)mean[i] - (double)prior.mean[i];
        const double pull = distance / variance;
        const double log_ratio = (double)rho[i] - log(variance);
        const double excess = expm1(log_ratio); /* r - 1 */
        const double noise = (double)w[i] - (double)mean[i];
        g_rho[i] = (float)((double)g[i] * noise / 2 + factor * excess / 2);
        g[i] += (float)(factor * pull);
        sum += excess - log_ratio + distance * pull;
    }
    return sum / 2;
}

void REAL_FN(variational_draw)(float *restrict w, const float *restrict mean,
                               const float *restrict rho, int64_t n, uint64_t key,
                               int64_t first) {
    for (int64_t i = 0; i < n; i++) {
        const double e = random_normal(key, (uint64_t)(first + i));
        w[i] = (float)((double)mean[i] + exp((double)rho[i] / 2) * e);
    }
}
