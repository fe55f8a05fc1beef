/* Tiles: how a call is cut into parts that threads compute at the same time.
 *
 * A grid depends only on shapes, and every element of a result is computed in one part,
 * in one order: results do not depend on threads. Things are cut into 1, 2, 4, ...
 * parts, which most numbers of threads share evenly, as long as a part takes some 50
 * microseconds; synchronisation takes a tenth of that. Products with packed weights,
 * whose elements are the same however they are cut, are cut more finely, into a few
 * parts for each thread: a forward run of a short text consists of little else. */
#ifndef COMPRESS_EXEC_OPS_TILES_H
#define COMPRESS_EXEC_OPS_TILES_H

#include "exec/ops/kernel.h"

enum {
    TILES_MOST = 64,           /* parts of a call */
    TILE_ELEMENTS = 1 << 15,   /* least of a part: elements that are read or written */
    TILE_PRODUCTS = 1 << 22,   /* of a matrix product: multiplications */
    TILE_UNIT = 16,            /* rows and columns that stay together */
    TILE_ROWS = 256,           /* least of a product's cell: below, the library packs */
    TILE_COLUMNS = 192,        /* its operands too often */
    PACKED_PRODUCTS = 1 << 18, /* the same where weights are packed before */
    PACKED_SIDE = 64,
    TILE_SIDE_MOST = 16 /* cells along one side */
};

/* Things first .. end - 1. */
typedef struct Range {
    int64_t first, end;
} Range;

/* Part `i` of `parts` of `count` things, in whole units except for the last one. */
static inline Range range_part(int64_t count, int64_t unit, int64_t i, int64_t parts) {
    const int64_t units = (count + unit - 1) / unit;
    const int64_t first = units * i / parts * unit, end = units * (i + 1) / parts * unit;
    return (Range){first < count ? first : count, end < count ? end : count};
}

/* The share of `count` things that a call has to do: all, or its part. */
static inline Range call_range(const Call *call, int64_t count, int64_t unit) {
    if (call->tiles == 0) return (Range){0, count};
    return range_part(count, unit, call->tile, call->tiles);
}

/* Number of parts for `work`, none of them below `least`. */
static inline int64_t tiles_for(int64_t work, int64_t least) {
    int64_t tiles = 1;
    while (tiles < TILES_MOST && work / (2 * tiles) >= least) tiles *= 2;
    return tiles;
}

/* Parts of a call that goes over the elements of its result once. */
static inline int64_t element_tiles(const Call *call) {
    return tiles_for(call->out.count, TILE_ELEMENTS);
}

/* A matrix product C[m, n] cut into cells: their number vertically and horizontally. */
typedef struct ProductGrid {
    int64_t down, across;
    int64_t unit; /* rows, and columns, that stay together */
} ProductGrid;

typedef struct Cell {
    Range rows, columns;
} Cell;

/* Parts of one side: at most `most`, each of at least `least` rows or columns, as long as
 * `work`, that of a cell, stays above `products`. */
static inline int64_t side_parts(int64_t count, int64_t least, int64_t most,
                                 int64_t products, int64_t *work) {
    int64_t parts = 1;
    while (2 * parts <= most && count / (2 * parts) >= least && *work >= 2 * products)
        parts *= 2, *work /= 2;
    return parts;
}

/* Parts of a side of a product. */
static inline int64_t product_side(int64_t count, int64_t least, int64_t *work) {
    return side_parts(count, least, TILE_SIDE_MOST, TILE_PRODUCTS, work);
}

/* The grid of a product with sums of k terms. */
static inline ProductGrid product_grid(int64_t m, int64_t n, int64_t k) {
    int64_t work = m * n * k;
    ProductGrid grid = {1, 1, TILE_UNIT};
    grid.across = product_side(n, TILE_COLUMNS, &work);
    grid.down = product_side(m, TILE_ROWS, &work);
    return grid;
}

/* Cells of a grid. */
static inline int64_t product_cells(ProductGrid grid) {
    return grid.down * grid.across;
}

/* Cell `i` of the grid of a product [m, n], row by row. */
static inline Cell product_cell(ProductGrid grid, int64_t m, int64_t n, int64_t i) {
    return (Cell){range_part(m, grid.unit, i / grid.across, grid.down),
                  range_part(n, grid.unit, i % grid.across, grid.across)};
}

#endif
