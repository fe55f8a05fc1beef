/* Checks of the heads of attention: see heads_of_keys. */
#ifndef COMPRESS_EXEC_OPS_HEADS_H
#define COMPRESS_EXEC_OPS_HEADS_H

#include "exec/infer.h"
#include "exec/ops.h"

/* Checks the two attributes. */
static inline Status heads_check(const Node *node, int64_t heads, int64_t kv_heads,
                                 Diag *diag) {
    if (heads < 1)
        return infer_fail_attr(node, "heads", diag, "at least 1, found %lld",
                               (long long)heads);
    if (kv_heads >= 0 && heads % heads_of_keys(heads, kv_heads) == 0) return STATUS_OK;
    return infer_fail_attr(node, "kv_heads", diag,
                           "a number that divides heads=%lld, or 0 for as many, found "
                           "%lld",
                           (long long)heads, (long long)kv_heads);
}

/* Operand `i` is [.., .., width] with a width that `heads` (attribute `name`) divides. */
static inline Status heads_check_width(const Node *node, int i, int64_t heads,
                                       const char *name, Diag *diag) {
    TRY(infer_rank(node, i, 3, 3, diag));
    const int64_t width = node->in[i]->type.dim[2];
    if (width > 0 && width % heads == 0) return STATUS_OK;
    return infer_fail(node, i, diag, "a last dimension that %s=%lld divides", name,
                      (long long)heads);
}

/* Operand `k` holds kv_heads heads as wide as the heads of operand `q`, whose width was
 * checked; samples are those of q. */
static inline Status heads_check_keys(const Node *node, int q, int k, int64_t heads,
                                      int64_t kv_heads, Diag *diag) {
    const int64_t *dim = node->in[q]->type.dim, groups = heads_of_keys(heads, kv_heads);
    TRY(infer_rank(node, k, 3, 3, diag));
    TRY(infer_dim(node, k, 0, dim[0], "the samples of q", diag));
    return infer_dim(node, k, 2, dim[2] / heads * groups,
                     groups == heads ? "the width of q" : "kv_heads heads as wide as q's",
                     diag);
}

/* Operand `v` holds kv_heads heads and as many samples and tokens as operands q and k;
 * `width` receives that of the result, `heads` heads as wide as v's. */
static inline Status heads_check_values(const Node *node, int v, const int64_t *k,
                                        int64_t heads, int64_t kv_heads, int64_t *width,
                                        Diag *diag) {
    const int64_t groups = heads_of_keys(heads, kv_heads);
    TRY(heads_check_width(node, v, groups, kv_heads > 0 ? "kv_heads" : "heads", diag));
    const int64_t *dim = node->in[v]->type.dim;
    TRY(infer_dim(node, v, 0, k[0], "the samples of q", diag));
    TRY(infer_dim(node, v, 1, k[1], "the tokens of k", diag));
    if (dim_multiply(dim[2] / groups, heads, width)) return STATUS_OK;
    return infer_fail(node, v, diag, "heads narrow enough for a result of heads=%lld",
                      (long long)heads);
}

#endif
