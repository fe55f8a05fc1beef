/* Lifting what moves, joins or chooses tokens: patches of images, windows, tokens in
 * front, one token, means. Recognised by where elements go. */
#ifndef COMPRESS_IO_ONNX_LIFT_LIFT_TOKENS_H
#define COMPRESS_IO_ONNX_LIFT_LIFT_TOKENS_H

#include "io/onnx/lift/lift.h"

/* A value whose elements were moved: heads joined by attention, patches, windows, chosen
 * tokens, columns of a projection, prepended tokens; the mean of tokens. */
Node *match_moved(Lift *lift, NetValue *value);
Node *match_pool(Lift *lift, NetNode *node);

#endif
