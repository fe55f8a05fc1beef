/* Plain ops: what no matcher recognises is lifted node by node, each ONNX operator as
 * the ops on tensors of any shape that do the same.
 *
 * Plain values are real numbers, also for integers and booleans (exact up to 2^24), and
 * have the shape that the value has in the file. A dimension that differs between the
 * probes is derived from both: a number times powers of the numbers of samples and
 * tokens. */
#ifndef COMPRESS_IO_ONNX_LIFT_LIFT_PLAIN_H
#define COMPRESS_IO_ONNX_LIFT_LIFT_PLAIN_H

#include "io/onnx/lift/lift.h"

/* The node of a value, only by its operator, with samples first as in lift_value; NULL
 * when none of our ops does it, with lift->stop saying why. */
Node *lift_plain(Lift *lift, NetValue *value);

/* Warns about what stayed plain: for each part of the graph that matchers left, the node
 * that stopped them and how many plain ops it became. Call after dead nodes are
 * removed. */
void plain_report(Lift *lift, Diag *diag);

/* ---- for the operators ---- */

/* A rule: lifts result `value` of `node` from its operands. NULL with lift->stop. */
typedef Node *PlainRule(Lift *lift, NetNode *node, NetValue *value);

typedef struct PlainRow {
    const char *op;
    PlainRule *rule;
    const char *fn; /* of our op that it becomes, if several rows share a rule */
} PlainRow;

/* Rows by file, ended by a NULL op; and the row of a node, NULL when there is none. */
extern const PlainRow plain_element_rows[], plain_tensor_rows[];
const PlainRow *plain_row(const NetNode *node);

/* Operand `i`, real and in its own shape. */
Node *plain_operand(Lift *lift, const NetNode *node, int i);

/* A value likewise. */
Node *plain_value(Lift *lift, NetValue *value);

/* Whether an operand is a single number, the same for all sizes. */
bool plain_number(const NetNode *node, int i, double *number);

/* `x` in the shape that a value has: itself, or a reshape. */
Node *plain_shaped(Lift *lift, const NetValue *value, Node *x);

/* Shape of a value as ops spell it: "N, T, 12, 64"; NULL when a dimension follows from
 * samples and tokens in another way. With `made`, sizes come only from the probes:
 * ambiguous ones are refused. */
const char *plain_shape(Lift *lift, const NetValue *value, bool made);

/* One dimension of it, with `made`. */
bool plain_dim(const Lift *lift, const NetValue *value, int axis, int64_t *dim);

/* A tensor of one number in a shape that plain_shape spells. */
Node *plain_fill(Lift *lift, const NetNode *node, double number, const char *shape);

/* Ops by name. */
Node *plain_unary(Lift *lift, const NetNode *node, const char *fn, Node *x);
Node *plain_binary(Lift *lift, const NetNode *node, const char *fn, Node *a, Node *b);
Node *plain_with(Lift *lift, const NetNode *node, const char *fn, Node *a, double number);
Node *plain_scaled(Lift *lift, const NetNode *node, Node *x, double by);

#endif
