/* Windows of a grid of tokens: sizes shared by the ops on them. */
#ifndef COMPRESS_EXEC_OPS_WINDOWS_H
#define COMPRESS_EXEC_OPS_WINDOWS_H

#include "exec/infer.h"

/* n rounded up to whole windows. */
static inline int64_t windows_round_up(int64_t n, int64_t window) {
    return (n + window - 1) / window * window;
}

/* Tokens of a height x width grid that is padded to whole windows; false unless all three
 * are at least 1 and the product fits. */
static inline bool windows_tokens(int64_t height, int64_t width, int64_t window,
                                  int64_t *out) {
    const int64_t most = (int64_t)1 << 31;
    if (height < 1 || width < 1 || window < 1) return false;
    if (height > most || width > most || window > most) return false;
    return dim_multiply(windows_round_up(height, window), windows_round_up(width, window),
                        out);
}

#endif
