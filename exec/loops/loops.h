/* Loops: where time goes outside the ops' kernels. Compiled like those, once for every
 * processor level (exec/processor.h), only in float; names get the set's suffix
 * (exec/ops/kernel.h). Callers outside a set take them from loops_here.
 *
 * Products: exec/linalg/gemv.h says how matrices are packed.
 *   matrix_times: y[t, r] = sum_k W[r, k] x[t, k] + bias[r] for rows first .. last - 1
 *     and `count` vectors, whose rows lie ldx and ldy apart; bias may be NULL.
 *   weights_times: the same, to the byte, of a matrix of floats that is not packed (its
 *     data is not read): w[M, K], or with `transposed` w[K, M], of which a few panels at
 *     a time are packed into `room` of matrix_room_bytes. What that costs is spread over
 *     the vectors.
 *   integer_times: the same for a matrix of int8 or int4, on whole numbers; matrix_times
 *     calls it. The result's bytes are the same in all sets. integer_times_by takes one
 *     way of those that integer_has says this set and this processor have: for tests,
 *     since the other takes the fastest.
 *   multiply: C[m, n] = alpha op(A) op(B) + beta C, as gemm_f32 (exec/linalg/gemm.h) has
 *     it, of matrices that are used once; any size. Every element is beta C and alpha
 *     times the sums of blocks of k, added in order: 128 each where A is transposed and k
 *     lda is above 2^14, else 384. What else is computed does not matter.
 *   panels_times: y[t, c] = sum_k w[k * step + c] x[t, k] for 16 * panels columns c, of
 *     which panel p starts at w + p * gap. K may be 0.
 *
 * Training, over ranges of n elements that do not overlap; weights w, their gradient g:
 *   update_adamw, update_momentum, update_plain: one step of AdamW with moments m and v,
 *     of SGD with momentum and without.
 *   update_adamw_bf16, update_momentum_bf16: the same with moments in bfloat16. The step
 *     is taken with what they come to in float; then each is rounded up or down at
 *     random, in proportion to how near the two are, so that it is right in the mean: a
 *     second moment changes by less than half a unit of bfloat16 in most steps, and
 *     rounded to the nearest would stay where it is (Gupta et al., "Deep Learning with
 *     Limited Numerical Precision", ICML 2015). What is drawn depends only on the step's
 * key and the element's number; `first` is that of the range's first one. update_average:
 * a += (1 - decay) (w - a). add_floats: to += from. sum_squares: in double.
 *
 * Sampling, over n logits x:
 *   largest_logit: the largest; -inf where there is none, NaN where one of them is NaN.
 *   exp_weights: weights[i] = exp((x[i] - top) factor); returns their sum.
 *
 * Gaussian priors. That of element i is p_i = N(prior.mean[i], prior.variance[i]); its
 * approximate posterior q_i = N(mean[i], exp(rho[i])), independent of the others (mean
 * field). Weights are drawn as w = mean + exp(rho / 2) e with e from N(0, 1) (Kingma and
 * Welling, Auto-Encoding Variational Bayes, ICLR 2014; for weights: Blundell et al.,
 * Weight Uncertainty in Neural Networks, ICML 2015), so that a gradient g by w is the
 * gradient by mean, and g (w - mean) / 2 that by rho. The divergence is in closed form:
 *
 *     KL(q || p) = 1/2 sum [r - 1 - log r + (mean - prior.mean)^2 / prior.variance],
 *     r = exp(rho) / prior.variance.
 *
 *   variational_add_density: adds factor times the gradient of -log p(w), (w -
 * prior.mean) / prior.variance, to g. Returns -log p(w) without its constant: 1/2 sum (w
 * - prior.mean)^2 / variance. variational_add_divergence: with g the gradient of a loss
 * by the drawn weights w, turns it into the gradient of loss + factor KL(q || p) by mean,
 * writes that by rho to g_rho, and returns KL(q || p). variational_draw: draws w; e of
 * element i is number first + i of the stream `key`. */
#ifndef COMPRESS_EXEC_LOOPS_LOOPS_H
#define COMPRESS_EXEC_LOOPS_LOOPS_H

#include "exec/linalg/gemv.h"
#include "exec/ops/kernel.h"
#include "exec/processor.h"

/* Factors of one optimiser step, the same for all elements of a range; their values are
 * those of exec/train/optimizer.c. */
typedef struct Update {
    float scale, shrink, rate, beta1, beta2, root, eps;
} Update;

/* Prior of a range of elements; variances are positive. */
typedef struct PriorRange {
    const float *mean, *variance;
} PriorRange;

typedef struct Loops {
#define LOOP(type, name, arguments) type(*name) arguments;
#include "exec/loops/loops.def"
#undef LOOP
} Loops;

/* The loops for this processor, and those of a level (PROCESSOR_AUTO: the same), which
 * the processor must have. */
const Loops *loops_here(void);
const Loops *loops_at(Processor level);

/* The loops of the set that a file is compiled for. */
#define LOOP(type, name, arguments) type REAL_FN(name) arguments;
#include "exec/loops/loops.def"
#undef LOOP
extern const Loops REAL_FN(loops);

#endif
