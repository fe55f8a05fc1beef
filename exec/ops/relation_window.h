/* The attribute that keeps losses on relations of tokens within windows. */
#ifndef COMPRESS_EXEC_OPS_RELATION_WINDOW_H
#define COMPRESS_EXEC_OPS_RELATION_WINDOW_H

#include "exec/infer.h"

#define RELATION_WINDOW_FIELD(S)                                                         \
    F_INT(S, window, 0, 1 << 30, "tokens that are compared among themselves; 0 = all")

/* Checks that the tokens of operand 0, [N, T, D], are whole windows. */
static inline Status relation_check_window(const Node *node, int64_t window, Diag *diag) {
    const int64_t tokens = node->in[0]->type.dim[1];
    char text[DIM_TEXT_BYTES];
    if (window == 0 || (window > 0 && tokens > 0 && tokens % window == 0))
        return STATUS_OK;
    return infer_fail_attr(node, "window", diag,
                           "0 or a divisor of the %s tokens, found %lld",
                           dim_text(text, tokens), (long long)window);
}

#endif
