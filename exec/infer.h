/* Checks that the infer functions of ops share: each names op, operand, what was expected
 * and the type that was found, and fails with STATUS_MODEL. */
#ifndef COMPRESS_EXEC_INFER_H
#define COMPRESS_EXEC_INFER_H

#include "ir/graph.h"

/* Reports operand `operand`: "<op>: operand '<name>': expected <message>, found <type>".
 */
Status infer_fail(const Node *node, int operand, Diag *diag, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Reports an attribute: "<op>: <attribute>: expected <message>". */
Status infer_fail_attr(const Node *node, const char *attribute, Diag *diag,
                       const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* The operand has a rank of at least `least` and at most `most`. */
Status infer_rank(const Node *node, int operand, int least, int most, Diag *diag);

/* Checks that dimension `axis` is a number above 0, not a symbol. */
Status infer_known(const Node *node, int operand, int axis, Diag *diag);

/* Dimension `axis` is `dim`, number or symbol. `why` says where the expectation comes
 * from ("the last dimension of x"). */
Status infer_dim(const Node *node, int operand, int axis, int64_t dim, const char *why,
                 Diag *diag);

/* The operand has exactly this shape; symbols must be the same symbols. */
Status infer_shape(const Node *node, int operand, int rank, const int64_t *dim,
                   Diag *diag);

/* The shape that operands 0 to `count` - 1 (absent ones left out) have together when each
 * is repeated along dimensions that it lacks in front, or where it has 1, as NumPy does
 * it: a real type. */
Status infer_broadcast(const Node *node, int count, Type *out, Diag *diag);

/* The shape that attribute `name` spells ("N, T, 12, 64"), dimensions above 0: a real
 * type. */
Status infer_spelled(const Node *node, const char *name, const char *text, Type *out,
                     Diag *diag);

/* Attribute `name`, an axis of operand 0, is one of its dimensions. */
Status infer_axis(const Node *node, const char *name, int64_t axis, Diag *diag);

/* A dimension along which elements are chosen or summed holds no samples: samples stay
 * separate, because runs cut them into parts. */
Status infer_apart(const Node *node, int64_t dim, Diag *diag);

/* Samples are in at most one dimension of a type: no sample meets another. */
Status infer_samples(const Node *node, const Type *type, Diag *diag);

/* A real type with this shape. */
Type real_type(int rank, const int64_t *dim);

/* a * b for a, b >= 0; false when it overflows. */
bool dim_multiply(int64_t a, int64_t b, int64_t *out);

#endif
