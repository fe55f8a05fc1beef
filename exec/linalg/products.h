/* Which library multiplies the rows of linears in float where no gradient is wanted:
 * OpenBLAS, or oneDNN with weights packed once (exec/linalg/onednn.h). Everything else in
 * float is OpenBLAS's. Results differ in last bits between the two. */
#ifndef COMPRESS_EXEC_LINALG_PRODUCTS_H
#define COMPRESS_EXEC_LINALG_PRODUCTS_H

#include "ir/status.h"

#include <stdbool.h>

/* Names as in --products; auto is what the environment variable COMPRESS_PRODUCTS names,
 * and otherwise OpenBLAS. */
#define PRODUCTS_NAMES "auto|openblas|onednn"
typedef enum Products { PRODUCTS_AUTO, PRODUCTS_OPENBLAS, PRODUCTS_ONEDNN } Products;

/* Chooses for the whole program; before anything is computed. Fails with STATUS_USAGE
 * where oneDNN is asked for and cannot be had: in a program built without it, on a
 * processor without AVX-512, and beside a fixed level of processor, to which no library
 * but OpenBLAS was held. */
Status products_choose(Products products, Diag *diag);

/* Whether oneDNN was chosen. */
bool products_onednn(void);

#endif
