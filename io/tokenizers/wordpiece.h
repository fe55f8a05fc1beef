/* WordPiece: words and their tokens, as in the `tokenizers` library of Hugging Face for
 * BERT (BertPreTokenizer, WordPiece). */
#ifndef COMPRESS_IO_TOKENIZERS_WORDPIECE_H
#define COMPRESS_IO_TOKENIZERS_WORDPIECE_H

#include "io/tokenizers/vocabulary.h"

/* How words become tokens. */
typedef struct WordPiece {
    const Vocabulary *vocabulary;
    Prefix whole, continued; /* "" and the prefix of continuations of a word, "##" */
    int32_t unknown;         /* for words without tokens or beyond max_chars */
    size_t max_chars;        /* in characters */
} WordPiece;

/* Splits normalized text at white space and punctuation, each punctuation character being
 * a word of its own, and appends the tokens of the words: the longest first, then the
 * longest that continues. */
void wordpiece_split(const WordPiece *model, const char *text, size_t length,
                     IdList *ids);

#endif
