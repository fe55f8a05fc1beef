/* Text mask: masking of tokens for masked language models (BERT, Devlin et al. 2019),
 * drawn anew with every key as in RoBERTa (Liu et al. 2019). */
#ifndef COMPRESS_IO_DATASETS_TEXT_MASK_H
#define COMPRESS_IO_DATASETS_TEXT_MASK_H

#include "io/tokenizers/tokenizer.h"

/* How samples are masked. Candidates are the tokens of a sample except the first and
 * special ones (padding, unknown, class, separator, mask), even if those occur in the
 * text. */
typedef struct TextMask {
    double share;           /* of a sample's candidates that are chosen; 0 = nothing */
    double replace, random; /* of the chosen, those that become [MASK] or a random token;
                               the rest stay */
    SpecialIds specials;
    int32_t vocabulary; /* random tokens lie in [0, vocabulary) */
    int64_t reserved;   /* tokens of every sample that are not candidates, at least 1 */
} TextMask;

/* How many of `candidates` are chosen: the share, rounded (halves up), but at least 1; 0
 * if there are none. */
int64_t text_mask_count(const TextMask *mask, int64_t candidates);

/* The most tokens chosen from a sample of at most `tokens` tokens, at least 1. */
int64_t text_mask_most(const TextMask *mask, int64_t tokens);

/* Masks a sample of `length` tokens: changes ids, writes the places of the chosen tokens
 * in order to positions[most] and the original tokens to labels[most], then fills them
 * up with 0 and INDEX_SKIP. `most` is text_mask_most of `length` or more. The same key
 * masks the same sample in the same way. */
void text_mask_apply(const TextMask *mask, uint64_t key, int32_t *ids, int64_t length,
                     int32_t *positions, int32_t *labels, int64_t most);

#endif
