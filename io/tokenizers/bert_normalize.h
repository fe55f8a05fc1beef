/* BERT's normalizer: what is done to a text before it is cut into words, as
 * BertNormalizer of the `tokenizers` library of Hugging Face does it. */
#ifndef COMPRESS_IO_TOKENIZERS_BERT_NORMALIZE_H
#define COMPRESS_IO_TOKENIZERS_BERT_NORMALIZE_H

#include "ir/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is done to a text before it is split, in this order. */
typedef struct BertRules {
    bool clean_text;    /* drop control characters, NUL and U+FFFD; white space to ' ' */
    bool space_chinese; /* put spaces around Chinese characters */
    bool strip_accents; /* decompose (NFD) and drop nonspacing marks */
    bool lowercase;
} BertRules;

/* Memory for characters waiting to be put in canonical order. Start with zeros. */
typedef struct MarkRun {
    uint64_t *items;
    size_t count, capacity;
} MarkRun;

/* Applies the rules to valid UTF-8; replaces the content of `out`. */
void bert_normalize(const BertRules *rules, Text *out, MarkRun *marks, const char *text,
                    size_t length);

#endif
