/* Sampling: which token comes next, from the logits of a language model. */
#ifndef COMPRESS_EXEC_GENERATE_SAMPLE_H
#define COMPRESS_EXEC_GENERATE_SAMPLE_H

#include <stdint.h>

/* How to choose a token: temperature first, then top_k, then top_p of what is left. */
typedef struct Sampling {
    double temperature; /* 0 = the largest logit, the first of equals */
    int64_t top_k;      /* of the most likely ones only; 0 = all */
    double top_p;       /* of the least set whose probabilities reach this; 1 = all */
    uint64_t seed;
} Sampling;

/* Draws a token from logits; NaN counts as impossible. A draw depends on logits, seed and
 * position alone. */
int32_t sample_token(const Sampling *sampling, const float *logits, int64_t vocabulary,
                     int64_t position);

#endif
