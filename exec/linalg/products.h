/* What multiplies matrices of floats: our own loops, OpenBLAS or oneDNN. For linears
 * without gradients, the first (exec/linalg/packed.h) and the last
 * (exec/linalg/onednn.h) pack the weights; training and everything else multiplies two
 * matrices at a time (exec/linalg/gemm.h). Results differ in their last bits. Our loops
 * sum in order of k (for two matrices in blocks), with fused steps if the processor has
 * them (AVX2 with FMA, AVX-512: the same bytes), and results depend neither on threads
 * nor on what is computed together. OpenBLAS always does doubles, and also small
 * products: with fewer than 16 columns, a single row, or fewer than 12 rows where the
 * second matrix is transposed. */
#ifndef COMPRESS_EXEC_LINALG_PRODUCTS_H
#define COMPRESS_EXEC_LINALG_PRODUCTS_H

#include "ir/status.h"

#include <stdbool.h>

/* Names as in --products; auto is what the environment variable COMPRESS_PRODUCTS names,
 * otherwise packed, which is also the default of a program that chooses nothing. */
#define PRODUCTS_NAMES "auto|openblas|onednn|packed"
typedef enum Products {
    PRODUCTS_AUTO,
    PRODUCTS_OPENBLAS,
    PRODUCTS_ONEDNN,
    PRODUCTS_PACKED
} Products;

/* Chooses for the whole program; call before anything is computed. Fails with
 * STATUS_USAGE if oneDNN is requested but not available: in a program built without it,
 * on a processor without AVX-512, or with a fixed processor level, to which no library
 * but OpenBLAS is held. */
Status products_choose(Products products, Diag *diag);

/* Whether oneDNN was chosen; whether our own loops were. */
bool products_onednn(void);
bool products_packed(void);

/* What was chosen, for reports: the library's name and version, "packed weights" for our
 * own loops; NULL = OpenBLAS. */
const char *products_name(void);

#endif
