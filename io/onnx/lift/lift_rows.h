/* Lifting what works on single rows: embeddings, norms, activations, sums and
 * products. */
#ifndef COMPRESS_IO_ONNX_LIFT_LIFT_ROWS_H
#define COMPRESS_IO_ONNX_LIFT_LIFT_ROWS_H

#include "io/onnx/lift/lift.h"

/* Each returns the node of the value that `node` produces, or NULL when it is none of
 * these: rows of a stored table by ids; softmax over the last dimension; a sum, with
 * positions or with something stored; a product of a value with a number or of two
 * values. */
Node *match_embedding(Lift *lift, NetNode *node);
Node *match_softmax(Lift *lift, NetNode *node);
Node *match_sum(Lift *lift, NetNode *node);
Node *match_product(Lift *lift, NetNode *node);

/* A sum of two values: of unknown ones, or with positions or something stored. */
Node *lift_sum(Lift *lift, const NetNode *node, NetValue *a, NetValue *b);

/* Layer norm and RMS norm in parts; an activation, however it is composed. */
Node *match_norm(Lift *lift, NetValue *value);
Node *match_activation(Lift *lift, NetValue *value);

/* layer_norm of `x`, whose bias may be NULL; or rms_norm if `mean` is false. */
Node *lift_norm(Lift *lift, const NetNode *node, bool mean, Node *x, NetValue *weight,
                NetValue *bias, double eps);

/* The shortest decimal number that is the same in float32, the only precision in files.
 */
const char *short_decimal(const Lift *lift, double x);

/* A number computed from rounded ones, restored to the intended three digits if it has
 * them. */
double round_digits(double x);

/* A factor as text: the root of a whole number, or 1 over one or its root, whose nearest
 * f32 a file has, else as short_decimal. */
const char *short_factor(const Lift *lift, double x);

#endif
