/* What multiplies matrices of floats: our own loops, OpenBLAS or oneDNN. Linears where no
 * gradient is wanted have their weights packed by the first (exec/linalg/packed.h) and
 * the last (exec/linalg/onednn.h); training and all else gives two matrices at a time
 * (exec/linalg/gemm.h). Results differ in last bits between them. Those of our loops are
 * sums in order of k, of two matrices in blocks, with fused steps where the processor has
 * them (AVX2 with FMA, AVX-512: the same bytes), and depend neither on threads nor on
 * what is computed together. Doubles are always OpenBLAS's, and so are small products:
 * with fewer than 16 columns, a single row, or fewer than 12 rows where the second matrix
 * is transposed. */
#ifndef COMPRESS_EXEC_LINALG_PRODUCTS_H
#define COMPRESS_EXEC_LINALG_PRODUCTS_H

#include "ir/status.h"

#include <stdbool.h>

/* Names as in --products; auto is what the environment variable COMPRESS_PRODUCTS names,
 * and otherwise packed, as it is for a program that chooses nothing. */
#define PRODUCTS_NAMES "auto|openblas|onednn|packed"
typedef enum Products {
    PRODUCTS_AUTO,
    PRODUCTS_OPENBLAS,
    PRODUCTS_ONEDNN,
    PRODUCTS_PACKED
} Products;

/* Chooses for the whole program; before anything is computed. Fails with STATUS_USAGE
 * where oneDNN is asked for and cannot be had: in a program built without it, on a
 * processor without AVX-512, and beside a fixed level of processor, to which no library
 * but OpenBLAS was held. */
Status products_choose(Products products, Diag *diag);

/* Whether oneDNN was chosen, or our own loops. */
bool products_onednn(void);
bool products_packed(void);

/* What was chosen, for reports: the library's name and version, "packed weights" for our
 * own loops; NULL = OpenBLAS. */
const char *products_name(void);

#endif
