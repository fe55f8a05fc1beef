/* Few bits: rows of quantised tensors (ir/quantised.h) as blocks of GGUF.
 *
 *     q8                    q8_0: the numbers as they are, the row's scale in each block
 *     q4                    q4_0: numbers and scales as they are
 *     q4 with zero points   q4_1: x = d q + m with m = -d z
 *
 * Groups are whole blocks of 32, so a group's scale is that of all its blocks. Only m
 * and the scales of a q8 are rounded, to f16: by at most 2^-11 of their value, or by
 * 2^-25 below 2^-14. */
#ifndef COMPRESS_IO_GGUF_FEW_BITS_H
#define COMPRESS_IO_GGUF_FEW_BITS_H

#include "io/gguf/blocks.h"
#include "ir/tensor.h"

/* The block type of a tensor, with or without data; NULL if it is not quantised, or its
 * rows are not whole blocks. */
const BlockType *few_bits_type(const Tensor *tensor);

/* Whether all scales, and d z, can be written: none exceeds the range of f16. */
bool few_bits_fit(const Tensor *tensor);

/* One row as blocks. */
void few_bits_row(const Tensor *tensor, int64_t row, unsigned char *blocks);

#endif
