/* All matchers, for Lift.match. */
#ifndef COMPRESS_IO_ONNX_LIFT_LIFT_MATCH_H
#define COMPRESS_IO_ONNX_LIFT_LIFT_MATCH_H

#include "io/onnx/lift/lift.h"

/* Tries the matchers for the producer of a value, one after another. */
Node *match_value(Lift *lift, NetValue *value);

#endif
