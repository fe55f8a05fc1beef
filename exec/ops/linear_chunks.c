/* Linear attention by chunks of tokens: see linear_chunks.h. */
#include "exec/ops/linear_chunks.h"

#include "exec/ops/heads.h"
#include "exec/ops/kernel_math.h"
#include "exec/ops/lanes.h"

#include <math.h>
#include <string.h>

/* Tokens of a chunk when the node does not say, by measurement: work inside a chunk grows
 * with it, so it is no larger than products need to be fast. */
enum { CHUNK_NARROW = 32, CHUNK_WIDE = 64, WIDE_HEADS = 192 };

/* Next `count` elements of scratch, 64-byte aligned; NULL while planning. */
static REAL *carve(LinearAttention *a, const Call *call, int64_t count) {
    const size_t at = a->scratch_bytes;
    a->scratch_bytes += ((size_t)count * sizeof(REAL) + 63) / 64 * 64;
    return call->scratch ? (REAL *)((char *)call->scratch + at) : NULL;
}

static void open_scratch(LinearAttention *a, const Call *call) {
    const int64_t state = a->feature * a->stride;
    const int64_t chunks = (a->queries + a->chunk - 1) / a->chunk;
    const int64_t scores = a->causal ? a->chunk * a->chunk : 0;
    a->keys_kept =
        carve(a, call, node_has(call->node, LINEAR_MASK) ? a->chunk * a->feature : 0);
    a->values = carve(a, call, a->chunk * a->stride);
    a->rows = carve(a, call, a->chunk * a->stride);
    a->scores = carve(a, call, scores);
    a->d_scores = carve(a, call, scores);
    a->states = carve(a, call, a->causal ? chunks * state : state);
    a->d_state = carve(a, call, state);
    if (!a->window) return;
    a->near_stride = LANES_ROUND_UP(a->chunk + a->window - 1);
    a->near_values = carve(a, call, (a->chunk + a->window - 1) * a->stride);
    a->near_keys = carve(
        a, call,
        node_has(call->node, LINEAR_MASK) ? (a->chunk + a->window - 1) * a->near : 0);
    a->weights = carve(a, call, a->chunk * a->near_stride);
    a->d_weights = carve(a, call, a->chunk * a->near_stride);
    a->least = carve(a, call, a->chunk);
    a->tops = carve(a, call, a->chunk);
}

static void open_near(LinearAttention *a, const Call *call) {
    const LinearAttentionAttrs *attrs = call->attrs;
    if (!attrs->window) return;
    a->window = attrs->window < a->keys ? attrs->window : a->keys;
    a->near_width = call->in[LINEAR_NEAR_Q].dim[2];
    a->near_end = call->in[LINEAR_NEAR_K].dim[2];
    a->near = a->near_width / a->heads;
    a->near_scale = (REAL)(attrs->scale > 0 ? attrs->scale : 1 / sqrt((double)a->near));
    a->near_q = call_data(call, LINEAR_NEAR_Q);
    a->near_k = call_data(call, LINEAR_NEAR_K);
    a->gate = call_data(call, LINEAR_GATE);
    a->slope = call_data(call, LINEAR_SLOPE);
}

void REAL_FN(linear_open)(LinearAttention *a, const Call *call) {
    const LinearAttentionAttrs *attrs = call->attrs;
    const View *q = &call->in[LINEAR_Q], *k = &call->in[LINEAR_K],
               *v = &call->in[LINEAR_V];
    *a = (LinearAttention){
        .samples = q->dim[0],
        .heads = attrs->heads,
        .kv_heads = heads_of_keys(attrs->heads, attrs->kv_heads),
        .queries = q->dim[1],
        .keys = k->dim[1],
        .q_width = q->dim[2],
        .k_width = k->dim[2],
        .v_width = v->dim[2],
        .causal = attrs->causal,
        .eps = (REAL)attrs->eps,
        .q = q->data,
        .k = k->data,
        .v = v->data,
        .mask = call_data(call, LINEAR_MASK),
        .below = call->aux,
    };
    a->share = a->heads / a->kv_heads;
    a->feature = a->q_width / a->heads;
    a->value_head = a->v_width / a->kv_heads;
    a->out_width = a->heads * a->value_head;
    a->wide = a->value_head + 1;
    a->stride = LANES_ROUND_UP(a->wide);
    const bool narrow = a->causal && a->feature + a->value_head < WIDE_HEADS;
    a->chunk = attrs->chunk > 0 ? attrs->chunk : narrow ? CHUNK_NARROW : CHUNK_WIDE;
    const int64_t longest = a->keys > a->queries ? a->keys : a->queries;
    if (a->chunk > longest) a->chunk = longest;
    open_near(a, call);
    open_scratch(a, call);
}

/* Copies the keys of a source, zeros where `mask` is 0. */
static void keep_keys(const LinearAttention *a, const int32_t *mask,
                      LinearSource *source) {
    const size_t bytes = (size_t)a->feature * sizeof(REAL);
    for (int64_t j = 0; j < source->count; j++) {
        REAL *to = a->keys_kept + j * a->feature;
        if (mask[j])
            memcpy(to, source->k + j * source->k_stride, bytes);
        else
            memset(to, 0, bytes);
    }
    source->k = a->keys_kept;
    source->k_stride = a->feature;
}

void REAL_FN(linear_values)(const LinearAttention *a, int64_t sample, int64_t group,
                            int64_t first, int64_t count, REAL *values) {
    const size_t bytes = (size_t)a->value_head * sizeof(REAL);
    const int32_t *mask = a->mask ? a->mask + sample * a->keys + first : NULL;
    const REAL *v =
        a->v + linear_at(a->keys, sample, first, a->v_width, group, a->value_head);
    for (int64_t j = 0; j < count; j++) {
        REAL *to = values + j * a->stride;
        const bool kept = !mask || mask[j];
        if (kept)
            memcpy(to, v + j * a->v_width, bytes);
        else
            memset(to, 0, bytes);
        to[a->value_head] = kept;
    }
}

LinearSource REAL_FN(linear_source)(const LinearAttention *a, int64_t sample,
                                    int64_t group, int64_t first) {
    LinearSource source = {.first = linear_source_first(a, first),
                           .skip = first < a->window ? a->window - first : 0,
                           .count = linear_source_count(a, first),
                           .k_stride = a->k_width,
                           .v = a->values};
    if (source.count == 0) return source;
    source.k =
        a->k + linear_at(a->keys, sample, source.first, a->k_width, group, a->feature);
    REAL_FN(linear_values)(a, sample, group, source.first, source.count, a->values);
    if (a->mask) keep_keys(a, a->mask + sample * a->keys + source.first, &source);
    return source;
}

void REAL_FN(linear_add)(const LinearAttention *a, const LinearSource *source, bool add,
                         REAL *state) {
    gemm(true, false, a->feature, a->wide, source->count, 1, source->k, source->k_stride,
         source->v, a->stride, add, state, a->stride);
}

void REAL_FN(linear_scores)(const LinearAttention *a, int64_t count, int64_t width,
                            const REAL *x, int64_t x_stride, const REAL *y,
                            int64_t y_stride, const LinearSource *source, REAL *scores) {
    gemm(false, true, count, source->count, width, 1, x, x_stride, y, y_stride, 0, scores,
         a->chunk);
    for (int64_t r = 0; r < count; r++) {
        const int64_t seen = r - source->skip + 1;
        for (int64_t j = seen > 0 ? seen : 0; j < source->count; j++)
            scores[r * a->chunk + j] = 0;
    }
}
