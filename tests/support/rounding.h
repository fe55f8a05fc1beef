/* Tolerances that hold on every processor: bounds of the error, not what one machine
 * happened to show. What they depend on is said where they are used: how many terms were
 * summed, in which precision, how large they were; the step of a difference; the number
 * of draws behind a mean.
 *
 * A sum's order, the length of the vectors that it is cut into and whether a product is
 * fused into it differ between processors, between the library's kernels for them, and
 * between matrices of one row and of many. What does not differ is the bound. With unit
 * roundoff u (2^-24 for float, 2^-53 for double), a computed sum of n products is off by
 * at most gamma(n) times the sum of their absolute values, in any order, fused or not:
 *
 *     gamma(n) = n u / (1 - n u)                   (Higham, Accuracy and Stability of
 *                                                   Numerical Algorithms, 2002, (3.5))
 *     gamma(n) = l sqrt(n) u to first order,       (Higham and Mary, A New Approach to
 *                except with probability            Probabilistic Rounding Error
 *                2 exp(-l^2 / 2) per operation      Analysis, 2019, theorem 2.4)
 *
 * The smaller of both is taken, with l = 6 (one operation in 3e7). Errors of a chain of
 * operations add up to first order (Higham, 3.4: gamma(j) + gamma(k) + gamma(j) gamma(k)
 * <= gamma(j + k)), so a chain is one sum of all its terms. */
#ifndef COMPRESS_TESTS_SUPPORT_ROUNDING_H
#define COMPRESS_TESTS_SUPPORT_ROUNDING_H

#include "exec/plan/plan_build.h"

#include <math.h>

/* Terms that an elementary function counts for (exp, log, tanh, erf, a root, a division
 * and what is around them): test_kernels.c holds ours to 4 u, and libm's are within 1. */
enum { FUNCTION_TERMS = 8 };

/* ---- sums ---- */

/* How far a sum of `terms` products may be from the exact one, per unit of the sum of
 * their absolute values. */
double rounding_error(Precision precision, double terms);

/* How far two computed values of such a sum may be from each other, or one of them from
 * a reference that was itself computed in this precision. `magnitude`: sum of the terms'
 * absolute values, or for a chain of operations the largest value in it. */
double rounding_tolerance(Precision precision, double terms, double magnitude);

/* Largest absolute value of an array; 0 of none. */
double largest_value(const double *x, int64_t count);

/* Fails the test, naming `what`, unless two arrays are within the tolerance of chains of
 * `terms` terms everywhere. The magnitude is the largest |want|, or `least` where that is
 * larger. */
void rounding_compare(const char *what, const double *got, const double *want,
                      int64_t count, Precision precision, double terms, double least);

/* Fails the test unless |got - want| <= tolerance; NaN is never. */
#define assert_within(got, want, tolerance)                                              \
    rounding_check((double)(got), (double)(want), tolerance, __FILE__, __LINE__)

/* assert_within with the place that it is written at. */
void rounding_check(double got, double want, double tolerance, const char *file,
                    int line);

/* How far the solution of a positive definite system in double may be off, of so many
 * unknowns of size 1, by Cholesky's or a like method: n u times the condition number
 * (Higham, 10.1), n with the probabilistic bound again. */
double solve_tolerance(double unknowns, double condition);

/* ---- graphs ---- */

/* Terms behind one element of a node's value, those of its operands left out: its
 * multiply-adds (Op.flops / 2), or the length of the rows that it sums where the op
 * counts none. `sizes` bind the symbols; fails the test where they do not fit. */
double rounding_node_terms(const Node *node, const int64_t sizes[DIM_SYMBOLS]);

/* Terms behind one element of a node's gradient for an operand, the gradient of its value
 * being exact: those of the value, and two for each multiply-add that the element is
 * in, for backward has two products where forward has one. */
double rounding_operand_terms(const Node *node, int operand,
                              const int64_t sizes[DIM_SYMBOLS]);

/* Terms of the longest chain of operations that ends in `node`. */
double rounding_terms(Graph *graph, const Node *node, const int64_t sizes[DIM_SYMBOLS]);

/* Terms of the longest chain to `loss` and back to the gradient by the leaf `leaf`, or by
 * any parameter where that is NULL. */
double rounding_gradient_terms(Graph *graph, const Node *loss, const Node *leaf,
                               const int64_t sizes[DIM_SYMBOLS]);

/* How far a mean loss of a model's outputs may be from the same in double, when a model
 * is run in float on samples of up to 8 tokens: the longest chain to an output, and the
 * loss's own terms. Losses are logarithms of shares or squares of values that come out of
 * norms: of size 1 at least. */
double loss_tolerance(Graph *graph, double loss);

/* How far float weights may be apart, or from weights trained in double, after `steps`
 * steps whose learning rate is `rate` at most. Their gradients are at most `gradient`
 * off. An update differs by up to `slope` times what its gradients do: 1 with SGD, 1 / (1
 * - momentum) with momentum, 1 / eps with Adam, so that tests of cuts and threads choose
 * a large eps. Every step rounds the weights, of size `weight`, again. To first order:
 * that later gradients are taken at other weights is left out (it multiplies by 1 + rate
 * x curvature at each step). */
double training_tolerance(double steps, double rate, double slope, double gradient,
                          double weight);

/* ---- differences ---- */

/* How far the central difference `narrow` = (f(h) - f(-h)) / 2h may be from the
 * derivative. Its truncation is h^2 f''' / 6 to first order and four times that with a
 * step of 2h, so |wide - narrow| is three times the truncation, `wide` being the
 * difference with 2h. Rounding: each f, of size `magnitude` and with `terms` terms, is
 * off by its rounding error, and both are divided by 2h. */
double difference_tolerance(Precision precision, double h, double narrow, double wide,
                            double terms, double magnitude);

/* ---- chance ---- */

/* How far the mean of `count` independent draws of standard deviation `deviation` may be
 * from the expectation: six standard errors, which a right result exceeds once in 5e8
 * seeds (the mean taken as normal). */
double chance_tolerance(double deviation, double count);

#endif
