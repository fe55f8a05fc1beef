/* What multiplies the rows of linears in float where no gradient is wanted: our own loops
 * with packed weights (exec/linalg/packed.h), OpenBLAS, or oneDNN with weights packed
 * once (exec/linalg/onednn.h). All else in float, training included, is OpenBLAS's, or
 * oneDNN's where that was chosen. Results differ in last bits between them. Those of our
 * loops are one sum in order of the columns, with fused steps where the processor has
 * them (AVX2 with FMA, AVX-512: the same bytes), and depend neither on threads nor on the
 * rows that are computed together. */
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

/* Whether oneDNN was chosen, or packed weights. */
bool products_onednn(void);
bool products_packed(void);

/* What was chosen, for reports: the library's name and version, "packed weights"; NULL =
 * OpenBLAS. */
const char *products_name(void);

#endif
