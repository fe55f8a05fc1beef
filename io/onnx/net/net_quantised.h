/* Quantised nets: matrices of 8 bits and fewer as the real numbers that they represent.
 */
#ifndef COMPRESS_IO_ONNX_NET_NET_QUANTISED_H
#define COMPRESS_IO_ONNX_NET_NET_QUANTISED_H

#include "io/onnx/net/net.h"

/* Replaces, in a net whose nodes are linked, the output of quantisers by their input:
 * weights become f32 (scale times their distance from the zero point), activations are
 * not rounded. Supported are DequantizeLinear of weights and around activations, also
 * after a Gather; DynamicQuantizeLinear with MatMulInteger or ConvInteger;
 * QLinearMatMul; and of com.microsoft DynamicQuantizeMatMul, MatMulIntegerToFloat,
 * QAttention and MatMulNBits. A weight becomes one tensor however many nodes read it.
 * Weights whose shapes do not match, or that are also scaled differently, are left
 * unchanged. Net.dequantised counts those that became f32; net->nodes must have room for
 * one more per node, net->values for two. */
void net_dequantise(Net *net);

#endif
