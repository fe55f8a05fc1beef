/* Word split: cuts a text into whole words, for tokenizers whose tokens are words. */
#ifndef COMPRESS_IO_TOKENIZERS_WORD_SPLIT_H
#define COMPRESS_IO_TOKENIZERS_WORD_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

typedef enum WordSplit {
    SPLIT_WORDS,       /* what WORDS_REGEX finds */
    SPLIT_PUNCTUATION, /* at white space, and around every punctuation character
                          (BertPreTokenizer) */
    SPLIT_SPACES       /* only at white space (WhitespaceSplit) */
} WordSplit;

/* Numbers with their points and commas; letters, digits and accents, joined by an
 * apostrophe or hyphen between them; any other character by itself. If the words are
 * joined with spaces, BLEU's tokenization `13a` cuts them at the same places, as far as
 * they are ASCII. */
#define WORDS_REGEX                                                                        \
    "\\p{N}+(?:[.,]\\p{N}+)+|[\\p{L}\\p{N}\\p{Mn}]+(?:['\u2019-][\\p{L}\\p{N}\\p{Mn}]+)*|" \
    "[^\\s\\p{L}\\p{N}\\p{Mn}]"

/* The next word of valid UTF-8 from *begin on, which moves to its start; *end receives
 * its end. False when there is none. */
bool word_next(WordSplit split, const char *text, size_t length, size_t *begin,
               size_t *end);

#endif
