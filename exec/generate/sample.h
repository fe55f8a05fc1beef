/* Sampling: which token comes next, from the logits of a language model. */
#ifndef COMPRESS_EXEC_GENERATE_SAMPLE_H
#define COMPRESS_EXEC_GENERATE_SAMPLE_H

#include "ir/status.h"

#include <stdint.h>

/* How to choose a token: the penalty first, then temperature, then top_k, then top_p of
 * what is left, then min_p. */
typedef struct Sampling {
    double temperature; /* 0 = the largest logit, the first of equals */
    int64_t top_k;      /* of the most likely ones only; 0 = all */
    double top_p;       /* of the least set whose probabilities reach this; 1 = all */
    uint64_t seed;
    double min_p; /* of those at least this times as likely as the likeliest; 0 = all */
    /* Logits above 0 of tokens that the text has are divided by this, others of them
     * multiplied (Keskar et al., CTRL, 2019; every such token once, those of the prompt
     * included, as Hugging Face does); 0 and 1 = off. */
    double repetition_penalty;
} Sampling;

/* Chooses the tokens of one text after another. */
typedef struct Sampler Sampler;

/* A sampler for logits over so many tokens. */
Sampler *sampler_create(int64_t vocabulary);

/* NULL is allowed. */
void sampler_destroy(Sampler *sampler);

/* Begins a text; an earlier one is forgotten. */
void sampler_start(Sampler *sampler, const Sampling *sampling);

/* Notes tokens that the text has, of its prompt and those that were chosen. */
void sampler_see(Sampler *sampler, const int32_t *tokens, int64_t count);

/* Draws the token at a position of the text from logits; -inf is impossible. -1 where
 * there is none to draw: a logit is NaN, or the largest is not finite. A draw depends on
 * logits, options, position and, with a penalty, tokens seen alone. */
int32_t sampler_draw(Sampler *sampler, const float *logits, int64_t position);

/* Fails with STATUS_MODEL: there was none to draw behind the `made` tokens that a text
 * has, of the `most` that it may have. */
Status sampler_fail(int64_t made, int64_t most, Diag *diag);

/* Natural logarithm of the probability of a token that was drawn by these logits as they
 * are: before the penalty, temperature and what is left out. */
double sampler_log_probability(Sampler *sampler, const float *logits, int32_t token);

#endif
