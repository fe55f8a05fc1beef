/* Counting clamped rows of linear attention: see linear_attention.h. */
#include "exec/run/clamp_count.h"

#include "exec/ops.h"
#include "ir/arena.h"

#include <stdlib.h>
#include <string.h>

/* One run: sizes as in exec/ops/linear_attention.c. */
typedef struct Rows {
    const LinearAttentionAttrs *attrs;
    int64_t queries, keys, q_width, k_width, feature, share;
    const float *q, *k;
    const int32_t *mask, *keep;
    double *z; /* [f] */
} Rows;

/* z += the key of source token `j`, unless it is masked or not there. */
static void add_key(const Rows *r, int64_t sample, int64_t group, int64_t j) {
    const int64_t at = sample * r->keys + j;
    if (j >= r->keys || (r->mask && !r->mask[at])) return;
    const float *key = r->k + at * r->k_width + group * r->feature;
    for (int64_t c = 0; c < r->feature; c++) r->z[c] += (double)key[c];
}

/* Counts query `t` of the heads that share z. */
static void count_query(const Rows *r, int64_t sample, int64_t group, int64_t t,
                        ClampCount *count) {
    const int64_t at = sample * r->queries + t;
    if (r->keep && !r->keep[at]) return;
    const float *q = r->q + at * r->q_width + group * r->share * r->feature;
    for (int64_t h = 0; h < r->share; h++, q += r->feature) {
        double sum = 0;
        for (int64_t c = 0; c < r->feature; c++) sum += (double)q[c] * r->z[c];
        count->rows++;
        count->clamped += sum < r->attrs->eps;
    }
}

void linear_attention_count(ClampCount *count, const Node *node,
                            const int64_t sizes[DIM_SYMBOLS], const float *q,
                            const float *k, const int32_t *mask, const int32_t *keep) {
    const LinearAttentionAttrs *attrs = node->attrs;
    const int64_t groups = heads_of_keys(attrs->heads, attrs->kv_heads);
    Type queries, keys;
    if (!type_bind(&node->in[0]->type, sizes, &queries) ||
        !type_bind(&node->in[1]->type, sizes, &keys))
        return; /* no plan has such sizes */
    Rows r = {attrs,
              queries.dim[1],
              keys.dim[1],
              queries.dim[2],
              keys.dim[2],
              queries.dim[2] / attrs->heads,
              attrs->heads / groups,
              q,
              k,
              mask,
              keep,
              NULL};
    r.z = memory_alloc((size_t)r.feature, sizeof *r.z);
    for (int64_t n = 0; n < queries.dim[0]; n++)
        for (int64_t g = 0; g < groups; g++) {
            memset(r.z, 0, (size_t)r.feature * sizeof *r.z);
            for (int64_t j = 0; !attrs->causal && j < r.keys; j++) add_key(&r, n, g, j);
            for (int64_t t = 0; t < r.queries; t++) {
                if (attrs->causal) add_key(&r, n, g, t);
                count_query(&r, n, g, t, count);
            }
        }
    free(r.z);
}
