/* Dim: a dimension of a type: a number, a symbol that is bound when a graph is planned,
 * or a product of both ("8*N", "N*T"), for instance heads and samples in one dimension.
 *
 * All are an int64_t: numbers are at least 0, symbols -1 to -DIM_SYMBOLS, products below
 * those. Equal dimensions are equal integers. */
#ifndef COMPRESS_IR_DIM_H
#define COMPRESS_IR_DIM_H

#include "ir/tensor.h"

/* Symbolic dimensions. */
enum {
    DIM_N = -1, /* samples in the batch */
    DIM_T = -2, /* tokens of the (target) sequence */
    DIM_S = -3, /* tokens of the source sequence */
    DIM_M = -4, /* masked positions */
    DIM_SYMBOLS = 4
};

/* Index 0.. of a symbolic dimension, for tables of DIM_SYMBOLS entries. */
#define DIM_INDEX(dim) (-(dim)-1)

/* Whether a dimension is one symbol alone. */
static inline bool dim_is_symbol(int64_t dim) {
    return dim < 0 && dim >= -DIM_SYMBOLS;
}

/* The parts of a dimension: its number (1 for a symbol alone), and how often a symbol
 * occurs in it. */
int64_t dim_number(int64_t dim);
int dim_power(int64_t dim, int64_t symbol);

/* a * b. False if a number, or how often a symbol occurs (at most 3 times), is too
 * large. */
bool dim_times(int64_t a, int64_t b, int64_t *out);

/* Product of a shape's dimensions, 1 if it has none. False as above. */
bool dims_product(int rank, const int64_t *dim, int64_t *out);

/* The value of a dimension if symbols have sizes[DIM_INDEX(symbol)]. False if it is not
 * a dimension, a size that it needs is not above 0, or the product overflows. */
bool dim_bind(int64_t dim, const int64_t sizes[DIM_SYMBOLS], int64_t *out);

/* The dimension with each symbol replaced whose size is above 0. False as above. */
bool dim_replace(int64_t dim, const int64_t sizes[DIM_SYMBOLS], int64_t *out);

/* Prints a dimension into `out` and returns it: "64", "T", "8*N*T". */
#define DIM_TEXT_BYTES 48
const char *dim_text(char out[DIM_TEXT_BYTES], int64_t dim);

/* Prints dimensions separated by commas, "N, T, 12, 64". */
enum { DIMS_TEXT_BYTES = RANK_MAX * (DIM_TEXT_BYTES + 2) };
const char *dims_text(char out[DIMS_TEXT_BYTES], int rank, const int64_t *dim);

/* Reads dimensions separated by commas, "N, T, 12, 64"; "" is the shape of a scalar.
 * False if the text is malformed, or there are more than RANK_MAX. */
bool dims_parse(const char *text, int *rank, int64_t dim[RANK_MAX]);

#endif
