/* Lifting positions that padding does not count: rows of a table, chosen by how many of
 * the ids up to a token are not padding. */
#ifndef COMPRESS_IO_ONNX_LIFT_LIFT_COUNTED_H
#define COMPRESS_IO_ONNX_LIFT_LIFT_COUNTED_H

#include "io/onnx/lift/lift.h"

/* add_position of `x` by the ids, if `rows` are such rows of a stored table; otherwise
 * NULL. */
Node *lift_counted_rows(Lift *lift, const NetNode *node, NetValue *x, NetValue *rows);

#endif
