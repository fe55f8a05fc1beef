/* Onnx few bits: quantised weights (ir/quantised.h) as operators of ONNX.
 *
 *     q8, x rounded to 8 bits     MatMulInteger, whose sums the scales multiply
 *     q8 elsewhere                DequantizeLinear, a scale for each row of the storage;
 *                                 in products with a Transpose behind it, as onnxruntime
 *                                 rounds x too where a MatMul reads it as it is
 *     q4 in a product             MatMulNBits (com.microsoft)
 *     q4 elsewhere                divisions that take two numbers out of each byte
 *
 * Rows of a table are picked in stored form, and then scaled. */
#ifndef COMPRESS_IO_ONNX_WRITE_ONNX_FEW_BITS_H
#define COMPRESS_IO_ONNX_WRITE_ONNX_FEW_BITS_H

#include "io/onnx/write/onnx_build.h"

/* onnx_weight for a quantised storage, untransposed: its real numbers. */
const char *onnx_few_bits_weight(OnnxBuild *b, const Storage *storage, const int64_t *dim,
                                 int rank);

/* Rows `ids`, integers of rank `lead`, of a quantised table. */
const char *onnx_few_bits_rows(OnnxBuild *b, const Storage *storage, const char *ids,
                               int lead);

#endif
