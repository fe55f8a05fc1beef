/* Quantised nets: matrices of 8 bits and fewer as the real numbers that they stand for.
 */
#ifndef COMPRESS_IO_ONNX_NET_NET_QUANTISED_H
#define COMPRESS_IO_ONNX_NET_NET_QUANTISED_H

#include "io/onnx/net/net.h"

/* Replaces, in a net whose nodes are linked, what quantisers write by what they were
 * given: weights become f32 (scale times their distance from the zero point), activations
 * are not rounded. Known are DequantizeLinear of weights and around activations, also
 * behind a Gather; DynamicQuantizeLinear with MatMulInteger or ConvInteger;
 * QLinearMatMul; and of com.microsoft DynamicQuantizeMatMul, MatMulIntegerToFloat,
 * QAttention and MatMulNBits. A weight becomes one tensor however many nodes read it.
 * Weights of shapes that do not go together, or scaled in a second way, are left as they
 * are. Net.dequantised counts those that became f32; net->nodes has room for one more for
 * each node, net->values for two. */
void net_dequantise(Net *net);

#endif
