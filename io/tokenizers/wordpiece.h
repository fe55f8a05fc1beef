/* WordPiece: the text rules of BERT, as the `tokenizers` library of Hugging Face applies
 * them (BertNormalizer, BertPreTokenizer, WordPiece). */
#ifndef COMPRESS_IO_TOKENIZERS_WORDPIECE_H
#define COMPRESS_IO_TOKENIZERS_WORDPIECE_H

#include "io/tokenizers/vocabulary.h"
#include "ir/text.h"

#include <stdbool.h>

/* A growing list of token numbers. Start with zeros. */
typedef struct IdList {
    int32_t *items;
    size_t count, capacity;
} IdList;

/* Appends a number. */
void ids_add(IdList *ids, int32_t id);

/* What is done to a text before it is split, in this order. */
typedef struct BertRules {
    bool clean_text;    /* drop control characters, NUL and U+FFFD; white space to ' ' */
    bool space_chinese; /* put spaces around Chinese characters */
    bool strip_accents; /* decompose (NFD) and drop nonspacing marks */
    bool lowercase;
} BertRules;

/* Room for the characters that wait to be put in canonical order. Start with zeros. */
typedef struct MarkRun {
    uint64_t *items;
    size_t count, capacity;
} MarkRun;

/* Applies the rules to valid UTF-8; replaces what `out` holds. */
void bert_normalize(const BertRules *rules, Text *out, MarkRun *marks, const char *text,
                    size_t length);

/* How words become tokens. */
typedef struct WordPiece {
    const Vocabulary *vocabulary;
    Prefix whole, continued; /* "" and what continues a word, "##" */
    int32_t unknown;         /* for words without tokens or beyond max_chars */
    size_t max_chars;        /* in characters */
} WordPiece;

/* Splits normalized text at white space and punctuation, each punctuation character being
 * a word of its own, and appends the tokens of the words: the longest first, then the
 * longest that continues. */
void wordpiece_split(const WordPiece *model, const char *text, size_t length,
                     IdList *ids);

#endif
