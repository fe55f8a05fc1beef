/* Sampling: see exec/generate/sample.h.
 *
 * Without limits the draw walks the probabilities in the order of the tokens. With top-k
 * or top-p the tokens come off a heap, the most likely first and of equals the first,
 * only as many as are needed. */
#include "exec/generate/sample.h"

#include "ir/arena.h"
#include "ir/random.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* Logits as weights exp((x - top) / temperature). */
typedef struct Weights {
    const float *logits;
    int64_t count;
    double top, temperature;
} Weights;

static double weight_of(const Weights *w, int64_t i) {
    const double x = w->logits[i];
    return x > -INFINITY ? exp((x - w->top) / w->temperature) : 0; /* NaN is 0 too */
}

/* Token at which the running sum exceeds `target`; `order` NULL = 0, 1, 2, ... */
static int64_t walk(const Weights *w, const int32_t *order, int64_t count,
                    double target) {
    double sum = 0;
    int64_t last = order ? order[0] : 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t token = order ? order[i] : i;
        const double weight = weight_of(w, token);
        sum += weight;
        if (weight > 0) last = token; /* rounding must not lead beyond */
        if (sum > target) return last;
    }
    return last;
}

static double sum_weights(const Weights *w, const int32_t *order, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += weight_of(w, order ? order[i] : i);
    return sum;
}

/* ---- the most likely tokens ---- */

static bool comes_before(const float *logits, int32_t a, int32_t b) {
    const float x = isnan(logits[a]) ? -INFINITY : logits[a];
    const float y = isnan(logits[b]) ? -INFINITY : logits[b];
    return x > y || (x == y && a < b);
}

static void sift_down(const float *logits, int32_t *heap, int64_t count, int64_t i) {
    const int32_t token = heap[i];
    for (int64_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && comes_before(logits, heap[child + 1], heap[child]))
            child++;
        if (!comes_before(logits, heap[child], token)) break;
        heap[i] = heap[child];
    }
    heap[i] = token;
}

/* The fewest of the first tokens, at least one, whose weights reach `target`. */
static int64_t cut(const Weights *w, const int32_t *order, int64_t count, double target) {
    double sum = 0;
    for (int64_t n = 0; n < count; n++) {
        sum += weight_of(w, order[n]);
        if (sum >= target) return n + 1;
    }
    return count;
}

/* Draws among the first `k` tokens, cut to the fewest whose weights reach top_p of what
 * those k weigh. What all tokens weigh is known before they are in order. */
static int64_t draw_limited(const Weights *w, int64_t k, double top_p, double uniform) {
    int32_t *heap = memory_alloc((size_t)w->count, sizeof *heap);
    for (int64_t i = 0; i < w->count; i++) heap[i] = (int32_t)i;
    for (int64_t i = w->count / 2 - 1; i >= 0; i--)
        sift_down(w->logits, heap, w->count, i);
    int32_t *order = memory_alloc((size_t)k, sizeof *order);
    const double all = k == w->count ? sum_weights(w, NULL, k) : INFINITY;
    double sum = 0;
    int64_t count = 0;
    while (count < k && (count == 0 || sum < top_p * all)) {
        const int64_t rest = w->count - count - 1; /* the first goes behind the others */
        order[count] = heap[0];
        heap[0] = heap[rest];
        heap[rest] = order[count];
        sift_down(w->logits, heap, rest, 0);
        sum += weight_of(w, order[count++]);
    }
    if (k < w->count) count = cut(w, order, count, top_p * sum);
    const int64_t token = walk(w, order, count, uniform * sum_weights(w, order, count));
    free(heap);
    free(order);
    return token;
}

int32_t sample_token(const Sampling *sampling, const float *logits, int64_t vocabulary,
                     int64_t position) {
    int64_t best = 0; /* the first of the largest; NaN counts as the smallest */
    for (int64_t i = 1; i < vocabulary; i++)
        if (logits[i] > logits[best] || (isnan(logits[best]) && !isnan(logits[i])))
            best = i;
    const Weights w = {logits, vocabulary, logits[best], sampling->temperature};
    const bool limited = sampling->top_k > 0 && sampling->top_k < vocabulary;
    const int64_t k = limited ? sampling->top_k : vocabulary;
    if (!(sampling->temperature > 0) || k == 1 || !isfinite(logits[best]))
        return (int32_t)best;
    const double uniform =
        random_uniform(random_key_name(sampling->seed, "sample"), (uint64_t)position);
    if (limited || sampling->top_p < 1)
        return (int32_t)draw_limited(&w, k, sampling->top_p, uniform);
    return (int32_t)walk(&w, NULL, vocabulary,
                         uniform * sum_weights(&w, NULL, vocabulary));
}
