/* How many rows of a [T, T] matrix of scores are processed together, so that they stay
 * in cache. */
#ifndef COMPRESS_EXEC_OPS_SCORE_BLOCK_H
#define COMPRESS_EXEC_OPS_SCORE_BLOCK_H

#include <stdint.h>

enum { SCORE_BLOCK = 1 << 14, SCORE_BLOCK_ROWS_MIN = 16 };

/* As many as fill SCORE_BLOCK elements, in blocks of about the same size. */
static inline int64_t score_block_rows(int64_t tokens) {
    const int64_t rows = SCORE_BLOCK / tokens;
    const int64_t most = rows < SCORE_BLOCK_ROWS_MIN ? SCORE_BLOCK_ROWS_MIN : rows;
    const int64_t blocks = (tokens + most - 1) / most;
    return (tokens + blocks - 1) / blocks;
}

#endif
