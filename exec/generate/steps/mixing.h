/* Mixing of attention's heads for one token: weights from the scores of all heads, as in
 * exec/ops/attention.c. */
#ifndef COMPRESS_EXEC_GENERATE_STEPS_MIXING_H
#define COMPRESS_EXEC_GENERATE_STEPS_MIXING_H

#include "exec/generate/step.h"
#include "exec/ops/attention_blocks.h"
#include "exec/ops/kernel_math.h"

#define MIXING_OPERANDS                                                                  \
    (READS_IN(ATTENTION_MIX_BEFORE) | READS_IN(ATTENTION_MIX_AFTER) |                    \
     READS_IN(ATTENTION_MIX_BEFORE_BIAS) | READS_IN(ATTENTION_MIX_AFTER_BIAS))

/* Matrices [heads, heads] and a bias [heads], NULL = absent. */
typedef struct Mixing {
    const float *before, *after, *bias;
    int64_t heads;
} Mixing;

/* The operands of mixing that can be read token by token: weights. */
static inline unsigned mixing_readable(const Node *node) {
    for (int i = 0; i < node->in_count; i++)
        if ((MIXING_OPERANDS & READS_IN(i)) && node->in[i] && !node->in[i]->storage)
            return 0;
    return MIXING_OPERANDS;
}

/* Whether a node mixes heads. */
static inline bool mixing_wanted(const Node *node) {
    return node_has(node, ATTENTION_MIX_BEFORE) || node_has(node, ATTENTION_MIX_AFTER);
}

/* An operand of a call, NULL where it is absent. */
static inline const float *mixing_operand(const StepCall *call, int i) {
    return node_has(call->node, i) ? call->in[i] : NULL;
}

/* What a call mixes its heads with. */
static inline Mixing mixing_of(const StepCall *call, int64_t heads) {
    return (Mixing){.before = mixing_operand(call, ATTENTION_MIX_BEFORE),
                    .after = mixing_operand(call, ATTENTION_MIX_AFTER),
                    .bias = mixing_operand(call, ATTENTION_MIX_AFTER_BIAS),
                    .heads = heads};
}

/* to = matrix times from; rows of n numbers, `step` apart, one for each head. */
static inline void mix_heads(const float *matrix, int64_t heads, const float *from,
                             float *to, int64_t n, int64_t step) {
    for (int64_t a = 0; a < heads; a++) {
        float *restrict row = to + a * step;
        for (int64_t j = 0; j < n; j++) row[j] = 0;
        for (int64_t b = 0; b < heads; b++) {
            const float factor = matrix[a * heads + b];
            const float *restrict other = from + b * step;
            for (int64_t j = 0; j < n; j++) row[j] += factor * other[j];
        }
    }
}

/* What n keys' values are multiplied by, from the scores of all heads, rows `step` apart:
 * in `scores` or in `spare`, of the same size. Keys of mask 0 (NULL = none are) take no
 * part. */
static inline const float *mixing_weights(const Mixing *m, float *scores, float *spare,
                                          int64_t n, int64_t step, const int32_t *mask) {
    float *mixed = scores, *after = spare;
    if (m->before) {
        mix_heads(m->before, m->heads, scores, spare, n, step);
        mixed = spare, after = scores;
    }
    for (int64_t a = 0; a < m->heads; a++) {
        float *row = mixed + a * step;
        for (int64_t j = 0; mask && j < n; j++)
            if (mask[j] == 0) row[j] = -INFINITY;
        softmax_row(row, n);
    }
    if (!m->after) return mixed;
    mix_heads(m->after, m->heads, mixed, after, n, step);
    for (int64_t a = 0; m->bias && a < m->heads; a++)
        for (int64_t j = 0; j < n; j++)
            if (!mask || mask[j] != 0) after[a * step + j] += m->bias[a];
    return after;
}

#endif
