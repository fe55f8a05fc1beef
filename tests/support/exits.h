/* Models with early exits, made by hand. */
#ifndef COMPRESS_TESTS_SUPPORT_EXITS_H
#define COMPRESS_TESTS_SUPPORT_EXITS_H

#include "ir/batches.h"
#include "ir/model.h"

/* Gives each encoder layer but the last an exit: first token -> linear -> tanh -> linear,
 * placed and named as passes/exits/exits.h says. Weights are normal with this standard
 * deviation, drawn by seed. */
void exits_add(Model *model, double std, uint64_t seed);

/* 40 samples for configured_bert: 3 to 6 of 12 words, padded to the 6 that the longest
 * has, labels from 0 to 2. Destroy with batches_destroy. */
enum { SENTENCE_SAMPLES = 40, SENTENCE_TOKENS = 6 };
Batches *sentence_batches(void);

/* Label of a sample of sentence_batches. */
int32_t sentence_label(int64_t sample);

#endif
