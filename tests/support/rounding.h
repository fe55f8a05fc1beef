/* Tolerances that hold on every processor: bounds of the rounding error, not what one
 * machine happened to show.
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

/* How far a sum of `terms` products may be from the exact one, per unit of the sum of
 * their absolute values. */
double rounding_error(Precision precision, double terms);

/* How far two computed values of such a sum may be from each other, or one of them from
 * a reference that was itself computed in this precision. `magnitude`: sum of the terms'
 * absolute values, or for a chain of operations the largest value in it. */
double rounding_tolerance(Precision precision, double terms, double magnitude);

/* Terms of the longest chain of operations that ends in `node`, for rounding_tolerance:
 * the multiply-adds (Op.flops / 2) behind one element of each result, or the length of
 * its rows where an op counts none. `sizes` bind the symbols. Fails the test where they
 * do not fit. */
double rounding_terms(Graph *graph, const Node *node, const int64_t sizes[DIM_SYMBOLS]);

#endif
