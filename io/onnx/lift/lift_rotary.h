/* Rotary positions by stored tables: what the angles of cosines and sines are made of. */
#ifndef COMPRESS_IO_ONNX_LIFT_LIFT_ROTARY_H
#define COMPRESS_IO_ONNX_LIFT_LIFT_ROTARY_H

#include "io/onnx/lift/lift.h"

/* `x` [N, T, heads * d] turned by the angles of two stored tables [positions, pairs], the
 * pairs (j, j + pairs) of each head; numbers of a head behind 2 pairs stay. Row t of the
 * tables must be the cosines and sines of t times what a pair turns by: theta^(-j/pairs),
 * as it is, over a factor, or stretched as Llama 3.1 does it. NULL, with Lift.why, where
 * they are anything else. */
Node *lift_turned(Lift *lift, const NetNode *node, Node *x, int64_t heads,
                  NetValue *cosine, NetValue *sine);

#endif
