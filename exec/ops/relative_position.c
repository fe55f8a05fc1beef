/* Relative positions of keys, by bucket and by offset: see relative_position.h. */
#include "exec/ops/relative_position.h"

#include <string.h>

int REAL_FN(relative_step)(int64_t distance) {
    /* rho of 0, 1, 2, 3; from 4 on it stays at 3. */
    static const int8_t NEAR[] = {0, 1, 2, 2};
    const int64_t length = distance < 0 ? -distance : distance;
    const int rho = length < 4 ? NEAR[length] : 3;
    return (distance < 0 ? -rho : rho) + RELATIVE_STEPS / 2;
}

void REAL_FN(relative_prepare)(const RelativeGrid *grid) {
    for (int64_t k = 0; k < 2 * grid->width - 1; k++)
        grid->column_step[k] = REAL_FN(relative_step)(grid->width - 1 - k);
}

void REAL_FN(relative_spread)(const RelativeGrid *grid, int64_t query,
                              const REAL *by_bucket, REAL *scores) {
    if (query < grid->skip) return;
    const int64_t width = grid->width;
    const int64_t row = (query - grid->skip) / width,
                  column = (query - grid->skip) % width;
    const int32_t *restrict step = grid->column_step + width - 1 - column;
    for (int64_t y = 0; y < grid->height; y++) {
        const REAL *restrict bucket =
            by_bucket + RELATIVE_STEPS * REAL_FN(relative_step)(row - y);
        REAL *restrict out = scores + grid->skip + y * width;
        for (int64_t x = 0; x < width; x++) out[x] += bucket[step[x]];
    }
}

void REAL_FN(relative_collect)(const RelativeGrid *grid, int64_t query,
                               const REAL *scores, REAL *by_bucket) {
    memset(by_bucket, 0, RELATIVE_BUCKETS * sizeof(REAL));
    if (query < grid->skip) return;
    const int64_t width = grid->width;
    const int64_t row = (query - grid->skip) / width,
                  column = (query - grid->skip) % width;
    /* First over the rows of one step, then over the columns: short chains of additions.
     */
    memset(grid->row_sums, 0, (size_t)(RELATIVE_STEPS * width) * sizeof(REAL));
    for (int64_t y = 0; y < grid->height; y++) {
        const REAL *restrict in = scores + grid->skip + y * width;
        REAL *restrict sum = grid->row_sums + width * REAL_FN(relative_step)(row - y);
        for (int64_t x = 0; x < width; x++) sum[x] += in[x];
    }
    const int32_t *step = grid->column_step + width - 1 - column;
    for (int64_t x = 0; x < width; x++)
        for (int r = 0; r < RELATIVE_STEPS; r++)
            by_bucket[r * RELATIVE_STEPS + step[x]] += grid->row_sums[r * width + x];
}

/* Row of the table of biases for query `i` and the first key of the grid's row `y`; the
 * next keys' rows are before it. */
static int64_t table_row(const RelativeGrid *grid, int64_t i, int64_t y) {
    const int64_t cell = i - grid->skip, width = grid->width;
    return (cell / width - y + grid->height - 1) * (2 * width - 1) + cell % width +
           width - 1;
}

void REAL_FN(relative_bias_spread)(const RelativeGrid *grid, int64_t heads, int64_t first,
                                   int64_t end, const REAL *table, REAL *maps) {
    const int64_t tokens = grid->skip + grid->height * grid->width, map = tokens * tokens;
    for (int64_t i = grid->skip; i < tokens; i++)
        for (int64_t y = 0; y < grid->height; y++) {
            const REAL *from = table + table_row(grid, i, y) * heads;
            REAL *to = maps + i * tokens + grid->skip + y * grid->width;
            for (int64_t h = first; h < end; h++)
                for (int64_t x = 0; x < grid->width; x++)
                    to[h * map + x] += from[h - x * heads];
        }
}

void REAL_FN(relative_bias_collect)(const RelativeGrid *grid, int64_t heads,
                                    int64_t first, int64_t end, const REAL *maps,
                                    REAL *table) {
    const int64_t tokens = grid->skip + grid->height * grid->width, map = tokens * tokens;
    for (int64_t i = grid->skip; i < tokens; i++)
        for (int64_t y = 0; y < grid->height; y++) {
            const REAL *from = maps + i * tokens + grid->skip + y * grid->width;
            REAL *to = table + table_row(grid, i, y) * heads;
            for (int64_t h = first; h < end; h++)
                for (int64_t x = 0; x < grid->width; x++)
                    to[h - x * heads] += from[h * map + x];
        }
}
