/* The near window of linear attention: for query t the keys t - w < j <= t that take
 * part, with s_j = scale near_q_t . near_k_j, m the largest of them and g =
 * sigmoid(gate), have the weights p_j = g e^(s_j - m), which join the rows of
 * linear_chunks.h as p v'. With a slope g = e^(gate + slope m): at slope 1 and gate 0 the
 * weights are e^(s_j), those of softmax attention, so that near keys outweigh far ones
 * according to their scores. The exponent is clamped to within LINEAR_GAIN_MAX of 0; at
 * the clamp it has no gradient. Nothing is kept: scores, at most chunk x (chunk + w - 1)
 * at once, are computed forward and again backward. */
#ifndef COMPRESS_EXEC_OPS_LINEAR_NEAR_H
#define COMPRESS_EXEC_OPS_LINEAR_NEAR_H

#include "exec/ops/kernel_math.h"
#include "exec/ops/linear_chunks.h"

/* Largest exponent of g with a slope, and the negative of its least one: sums of such
 * weights stay far from the limits of float32, above the least denominator of a row. */
#define LINEAR_GAIN_MAX 30

/* What the g of a head consists of. */
typedef struct LinearGain {
    REAL gate; /* with a slope the gate itself, else g */
    REAL slope;
    bool sloped;
} LinearGain;

/* That of a head; gate and slope of all heads, NULL = none. */
static inline LinearGain linear_gain_of(const REAL *gate, const REAL *slope,
                                        int64_t head) {
    if (gate && slope) return (LinearGain){gate[head], slope[head], true};
    return (LinearGain){.gate = gate ? sigmoid_real(gate[head]) : 1};
}

/* g of a row whose largest near score is `top`. */
static inline REAL linear_gain(const LinearGain *gain, REAL top) {
    if (!gain->sloped) return gain->gate;
    const REAL exponent = gain->gate + gain->slope * top;
    const REAL above = exponent < -LINEAR_GAIN_MAX ? -LINEAR_GAIN_MAX : exponent;
    return exp_real(above > LINEAR_GAIN_MAX ? LINEAR_GAIN_MAX : above);
}

/* Least denominator of a row with near keys, which eps would change. */
#define LINEAR_NEAR_LEAST ((REAL)1e-30)

/* Values, and with a mask keys, that the chunk of queries from `first` on has near, of
 * one head of keys. */
void REAL_FN(linear_near_load)(const LinearAttention *a, int64_t sample, int64_t group,
                               int64_t first);

/* a->rows += p v' for `count` queries of a head, or = with `add` false; a->least. */
void REAL_FN(linear_near_add)(const LinearAttention *a, int64_t sample, int64_t head,
                              int64_t first, int64_t count, bool add);

/* Gradients, all to be added to; NULL = not needed. */
typedef struct NearGradients {
    REAL *q, *k, *v, *gate, *slope;
} NearGradients;

/* Adds the contribution of `count` queries of a head and their window, from the gradient
 * of their rows in a->rows. */
void REAL_FN(linear_near_backward)(const LinearAttention *a, int64_t sample, int64_t head,
                                   int64_t first, int64_t count, const NearGradients *d);

#endif
