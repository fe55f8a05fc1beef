/* Soft choice: shared by losses that compare two distributions over things whose scores
 * are not adjacent: tokens of a sample, samples of a group. */
#ifndef COMPRESS_EXEC_OPS_SOFT_CHOICE_H
#define COMPRESS_EXEC_OPS_SOFT_CHOICE_H

#include "exec/ops/kernel_math.h"

/* Scores z[i * stride] of `count` things, of which those with a mask of 0 take no part
 * (NULL: all do). */
typedef struct Scores {
    const REAL *z;
    int64_t count, stride;
    const int32_t *mask;
} Scores;

/* Whether thing `i` takes part. */
static inline bool scores_count(const Scores *s, int64_t i) {
    return !s->mask || s->mask[i] != 0;
}

/* log sum_i exp(z_i / t) over those that take part; 0 without any. */
static inline REAL scores_log_sum(const Scores *s, REAL t) {
    REAL largest = 0, sum = 0;
    bool any = false;
    for (int64_t i = 0; i < s->count; i++) {
        if (!scores_count(s, i) || (any && s->z[i * s->stride] <= largest)) continue;
        largest = s->z[i * s->stride];
        any = true;
    }
    for (int64_t i = 0; i < s->count; i++)
        if (scores_count(s, i)) sum += exp_real((s->z[i * s->stride] - largest) / t);
    return any ? largest / t + log_real(sum) : 0;
}

/* -sum_i q_i log p_i of p = softmax(x / t) against q = softmax(y / t), where x and y
 * cover the same things; with `kl`, minus the entropy of q. */
static inline double scores_cross_entropy(const Scores *x, const Scores *y, REAL t,
                                          bool kl) {
    const REAL ours = scores_log_sum(x, t), theirs = scores_log_sum(y, t);
    double total = 0;
    for (int64_t i = 0; i < x->count; i++) {
        if (!scores_count(x, i)) continue;
        const REAL log_q = y->z[i * y->stride] / t - theirs;
        const REAL log_p = x->z[i * x->stride] / t - ours;
        total += (double)exp_real(log_q) * (double)((kl ? log_q : 0) - log_p);
    }
    return total;
}

/* d[i * stride] += factor (p_i - q_i). */
static inline void scores_gradient(REAL *d, const Scores *x, const Scores *y, REAL t,
                                   REAL factor) {
    const REAL ours = scores_log_sum(x, t), theirs = scores_log_sum(y, t);
    for (int64_t i = 0; i < x->count; i++)
        if (scores_count(x, i))
            d[i * x->stride] += factor * (exp_real(x->z[i * x->stride] / t - ours) -
                                          exp_real(y->z[i * y->stride] / t - theirs));
}

#endif
