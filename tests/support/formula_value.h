/* Values of formulas: tensors of doubles, each with a bound on the error that float32
 * arithmetic makes when it is computed so. What does not fit fails the test. */
#ifndef COMPRESS_TESTS_SUPPORT_FORMULA_VALUE_H
#define COMPRESS_TESTS_SUPPORT_FORMULA_VALUE_H

#include "ir/model.h"

#define FORMULA_EPSILON (1.0 / (1 << 24)) /* of float32 */

/* Memory lies in the formula's arena; a number has rank 0. */
typedef struct Value {
    int rank;
    int64_t dim[RANK_MAX];
    int64_t count;
    double *v, *error; /* elements, and how far float32 arithmetic may be off */
} Value;

/* A line that is evaluated. */
typedef struct Formula {
    Arena *arena;
    Model *model, *was;
    const char *line, *at; /* the line, and the place in it */
    const Value *like;     /* whose shape index, row and column have */
} Formula;

/* Fails the test, with the line and the place in it. */
__attribute__((noreturn, format(printf, 2, 3))) void
formula_fail(const Formula *f, const char *format, ...);

/* Zeros of a shape; a number; a tensor's numbers. */
Value value_new(Formula *f, int rank, const int64_t *dim);
Value value_number(Formula *f, double number);
Value value_tensor(Formula *f, const Tensor *tensor);

/* x SIGN y for one of + - * /; one of them is repeated when its count divides the
 * other's. */
Value value_combine(Formula *f, char sign, const Value *x, const Value *y);

/* A function of one element: abs, sqrt, exp, log, tanh, relu, gelu. False for others. */
bool value_map_named(Formula *f, const char *name, const Value *x, Value *out);

/* sum, mean, variance, min, max, norm, zeros or count of all elements. */
Value value_reduce(Formula *f, const char *name, const Value *x);

/* The functions product, t, keep, join, softmax and matrix of formula.h. */
Value value_product(Formula *f, const Value *x, const Value *y);
Value value_transpose(Formula *f, const Value *x);
Value value_keep(Formula *f, const Value *x, const Value *axis, const Value *entries);
Value value_join(Formula *f, const Value *x, const Value *y);
Value value_softmax(Formula *f, const Value *x);
Value value_matrix(Formula *f, const Value *x, const Value *rows, const Value *columns);

/* The same elements in the shape of `like`. */
Value value_like(Formula *f, const Value *x, const Value *like);

#endif
