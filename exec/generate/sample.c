/* Sampling: see exec/generate/sample.h.
 *
 * Without top-k or top-p the draw walks the probabilities in the order of the tokens.
 * With one of them the tokens come off a heap, the most likely first and of equals the
 * first, only as many as are needed. */
#include "exec/generate/sample.h"

#include "exec/loops/loops.h"
#include "ir/arena.h"
#include "ir/random.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct Sampler {
    Sampling sampling;
    int64_t count;         /* of the vocabulary */
    float *weights;        /* exp((x - top) / temperature) of each token */
    int32_t *heap, *order; /* NULL until they are needed */
    float *penalised;      /* logits; likewise */
    bool *seen;
    int32_t *list; /* the tokens seen */
    int64_t listed;
};

Sampler *sampler_create(int64_t vocabulary) {
    Sampler *sampler = memory_alloc(1, sizeof *sampler);
    sampler->count = vocabulary;
    sampler->weights = memory_alloc((size_t)vocabulary, sizeof *sampler->weights);
    return sampler;
}

void sampler_destroy(Sampler *sampler) {
    if (!sampler) return;
    free(sampler->weights);
    free(sampler->heap);
    free(sampler->order);
    free(sampler->penalised);
    free(sampler->seen);
    free(sampler->list);
    free(sampler);
}

/* ---- tokens that the text has ---- */

static bool penalises(const Sampler *s) {
    return s->sampling.repetition_penalty > 0 && s->sampling.repetition_penalty != 1;
}

void sampler_start(Sampler *sampler, const Sampling *sampling) {
    const size_t count = (size_t)sampler->count;
    sampler->sampling = *sampling;
    for (int64_t i = 0; i < sampler->listed; i++) sampler->seen[sampler->list[i]] = false;
    sampler->listed = 0;
    if (!penalises(sampler) || sampler->seen) return;
    sampler->penalised = memory_alloc(count, sizeof *sampler->penalised);
    sampler->seen = memory_alloc(count, sizeof *sampler->seen);
    sampler->list = memory_alloc(count, sizeof *sampler->list);
}

void sampler_see(Sampler *sampler, const int32_t *tokens, int64_t count) {
    if (!penalises(sampler)) return;
    for (int64_t i = 0; i < count; i++) {
        if (tokens[i] >= sampler->count || sampler->seen[tokens[i]]) continue;
        sampler->seen[tokens[i]] = true;
        sampler->list[sampler->listed++] = tokens[i];
    }
}

static const float *penalise(const Sampler *s, const float *logits) {
    const float penalty = (float)s->sampling.repetition_penalty;
    if (!penalises(s)) return logits;
    memcpy(s->penalised, logits, (size_t)s->count * sizeof *logits);
    for (int64_t i = 0; i < s->listed; i++) {
        float *x = &s->penalised[s->list[i]];
        *x = *x < 0 ? *x * penalty : *x / penalty;
    }
    return s->penalised;
}

/* ---- the most likely tokens ---- */

static bool comes_before(const float *logits, int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
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

static void open_heap(Sampler *s, const float *logits) {
    if (!s->heap) {
        s->heap = memory_alloc((size_t)s->count, sizeof *s->heap);
        s->order = memory_alloc((size_t)s->count, sizeof *s->order);
    }
    for (int64_t i = 0; i < s->count; i++) s->heap[i] = (int32_t)i;
    for (int64_t i = s->count / 2 - 1; i >= 0; i--)
        sift_down(logits, s->heap, s->count, i);
}

/* The fewest of the first tokens, at least one, whose weights reach `target`. */
static int64_t cut(const Sampler *s, int64_t count, double target) {
    double sum = 0;
    for (int64_t n = 0; n < count; n++) {
        sum += s->weights[s->order[n]];
        if (sum >= target) return n + 1;
    }
    return count;
}

/* Puts the first `k` tokens in order, cut to the fewest whose weights reach top_p of what
 * those k weigh; returns how many. What all tokens weigh is known before they are in
 * order: `all`. */
static int64_t put_in_order(Sampler *s, const float *logits, int64_t k, double all) {
    const double top_p = s->sampling.top_p;
    double sum = 0;
    int64_t count = 0;
    open_heap(s, logits);
    if (k < s->count) all = INFINITY;
    while (count < k && (count == 0 || sum < top_p * all)) {
        const int64_t rest = s->count - count - 1; /* the first goes behind the others */
        s->order[count] = s->heap[0];
        s->heap[0] = s->heap[rest];
        s->heap[rest] = s->order[count];
        sift_down(logits, s->heap, rest, 0);
        sum += s->weights[s->order[count++]];
    }
    return k < s->count ? cut(s, count, top_p * sum) : count;
}

/* ---- drawing ---- */

/* Token at which the running sum of weights exceeds `target`; `order` NULL = 0, 1, 2, ...
 */
static int32_t walk(const Sampler *s, const int32_t *order, int64_t count,
                    double target) {
    double sum = 0;
    int32_t last = order ? order[0] : 0;
    for (int64_t i = 0; i < count; i++) {
        const int32_t token = order ? order[i] : (int32_t)i;
        const double weight = s->weights[token];
        sum += weight;
        if (weight > 0) last = token; /* rounding must not lead beyond */
        if (sum > target) return last;
    }
    return last;
}

static int32_t draw_limited(Sampler *s, const float *logits, int64_t k, double all,
                            double uniform) {
    int64_t count = put_in_order(s, logits, k, all);
    while (count > 1 && s->weights[s->order[count - 1]] < s->sampling.min_p) count--;
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += s->weights[s->order[i]];
    return walk(s, s->order, count, uniform * sum);
}

static int32_t draw_any(const Sampler *s, double all, double uniform) {
    const double least = s->sampling.min_p;
    if (least > 0) {
        all = 0;
        for (int64_t i = 0; i < s->count; i++) {
            if (s->weights[i] < least) s->weights[i] = 0;
            all += s->weights[i];
        }
    }
    return walk(s, NULL, s->count, uniform * all);
}

/* First token whose logit is this. */
static int32_t first_of(const float *logits, int64_t count, float logit) {
    for (int64_t i = 0; i < count; i++)
        if (logits[i] == logit) return (int32_t)i;
    return 0;
}

int32_t sampler_draw(Sampler *sampler, const float *logits, int64_t position) {
    const Sampling *sampling = &sampler->sampling;
    const Loops *loops = loops_here();
    const int64_t count = sampler->count;
    const float *x = penalise(sampler, logits);
    const float top = loops->largest_logit(x, count);
    const bool limited = sampling->top_k > 0 && sampling->top_k < count;
    const int64_t k = limited ? sampling->top_k : count;
    if (!isfinite(top)) return -1;
    if (!(sampling->temperature > 0) || k == 1) return first_of(x, count, top);
    const float factor = (float)fmin(1 / sampling->temperature, FLT_MAX);
    const double all = loops->exp_weights(sampler->weights, x, count, top, factor);
    const double uniform =
        random_uniform(random_key_name(sampling->seed, "sample"), (uint64_t)position);
    if (limited || sampling->top_p < 1) return draw_limited(sampler, x, k, all, uniform);
    return draw_any(sampler, all, uniform);
}

Status sampler_fail(int64_t made, int64_t most, Diag *diag) {
    return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                     "expected finite logits, found others at token %lld of %lld",
                     (long long)made + 1, (long long)most);
}

double sampler_log_probability(Sampler *sampler, const float *logits, int32_t token) {
    const Loops *loops = loops_here();
    const float top = loops->largest_logit(logits, sampler->count);
    const double all =
        loops->exp_weights(sampler->weights, logits, sampler->count, top, 1);
    return (double)logits[token] - top - log(all);
}
