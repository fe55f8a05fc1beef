/* What cases say about numbers: formulas over the weights of a model before and after.
 *
 *     parameters = was parameters - 2 * 16
 *     encoder.0.q.weight = keep(was encoder.0.q.weight, 0, [0..7])
 *     encoder.0.out.bias ~ (was encoder.0.out.bias + was encoder.1.out.bias) / 2
 *     deviation(logits) < 1e-9
 *     record.accuracy ~ 100 / 3 within 1e-6
 *
 * Values are tensors of doubles; a number is one of rank 0. Names:
 *
 *     encoder.0.q.weight   operand `weight` of the node with role q at encoder.0
 *     @classifier.weight   a storage by its name
 *     record.loss          of the last step's record; record2.loss: the second step's;
 *                          stored.KEY: of the provenance; record.exits.0.loss: of the
 *                          first in a list
 *     parameters bytes flops nodes storages gaussians
 *                          of the whole model
 *     index row column     the element's place, from 0, in a tensor of the left side's
 *                          shape
 *     was X                X of the model that the recipe ran on
 *
 * Functions of the model:
 *
 *     layers(STACK)            number of layers
 *     heads(encoder.0)         of attention, width(encoder.0) of the feed-forward block
 *     uses(NAME)               operands that are this storage
 *     output(NAME)             on a seeded input, in double
 *     deviation(NAME)          the largest absolute difference from what it was
 *     gaussian_mean(NAME)      and gaussian_variance(NAME), of a storage
 *
 * Functions of tensors:
 *
 *     abs sqrt exp log tanh relu gelu           element by element
 *     sum mean variance min max norm zeros count   of all elements
 *     softmax(x)               along the last axis
 *     t(x)                     transposed matrix
 *     product(a, b)            of matrices, or of a matrix and a vector
 *     keep(x, axis, entries)   some entries of an axis
 *     join(a, b)               one behind the other along the first axis
 *     matrix(x, rows, columns) the same elements as a matrix
 *
 * + - * / work element by element; the smaller operand is repeated over leading axes.
 * [1, 2] is a vector, [0..3] counts, [[1, 2], [3, 4]] is a matrix.
 *
 * `=` compares exactly. `~` allows the rounding of float32 arithmetic on the right
 * side: a bound on it (terms x 2^-24 x magnitude) is carried along with every value.
 * `within X` behind it gives a tolerance instead, for numbers that come out of training
 * or of a decomposition. */
#ifndef COMPRESS_TESTS_SUPPORT_FORMULA_H
#define COMPRESS_TESTS_SUPPORT_FORMULA_H

#include "ir/model.h"

/* Gives storages the values that lines `NAME = FORMULA` say; `@PATTERN = FORMULA` sets
 * all storages of such names (as a shell matches them). Fails the test where a line is
 * wrong. */
void formula_assign(Model *model, const char *lines);

/* Checks lines `FORMULA RELATION FORMULA` (=, ~, <, >, <=, >=; empty lines and comments
 * behind # aside), prints those that do not hold, and returns how many did not. `was` may
 * have the model as it was. */
int formula_check(Model *model, Model *was, const char *lines);

#endif
