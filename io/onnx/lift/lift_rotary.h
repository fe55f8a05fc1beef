/* Rotary positions by stored tables: how the angles of cosines and sines are derived. */
#ifndef COMPRESS_IO_ONNX_LIFT_LIFT_ROTARY_H
#define COMPRESS_IO_ONNX_LIFT_LIFT_ROTARY_H

#include "io/onnx/lift/lift.h"

/* `x` [N, T, heads * d] rotated by the angles of two stored tables [positions, pairs],
 * in pairs (j, j + pairs) of each head; numbers of a head after the first 2 * pairs
 * stay. Row t of the tables must be the cosines and sines of t times the angle of a
 * pair: theta^(-j/pairs), unchanged, divided by a factor, or stretched as in Llama 3.1.
 * NULL, with Lift.why, if they are anything else. */
Node *lift_turned(Lift *lift, const NetNode *node, Node *x, int64_t heads,
                  NetValue *cosine, NetValue *sine);

#endif
