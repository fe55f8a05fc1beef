/* BPE words: how a text is cut before byte-pair encoding, by the regular expressions of
 * GPT-2, Llama 3 and Qwen 2. They differ in a few points only, so one matcher written by
 * hand serves them all. */
#ifndef COMPRESS_IO_TOKENIZERS_BPE_WORDS_H
#define COMPRESS_IO_TOKENIZERS_BPE_WORDS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* What differs. At each place the first that matches counts:
 *   - 's 't 're 've 'm 'll 'd;
 *   - letters, after a space, or after any character but a digit or a line break;
 *   - digits, after a space or not;
 *   - other characters, after a space or not, with the line breaks behind or not;
 *   - white space up to its last line break;
 *   - white space; where something stands behind, its last character is left to that. */
typedef struct WordPattern {
    bool any_case;       /* 'S too */
    bool any_before;     /* letters may follow any character, not only a space */
    bool digits_alone;   /* no space before digits */
    int digits;          /* most of them in a word */
    bool breaks_behind;  /* others take line breaks along */
    bool breaks_are_end; /* white space ends at its last line break */
} WordPattern;

extern const WordPattern PATTERN_GPT2;

/* Pattern of a regular expression, NULL when it is not known. */
const WordPattern *word_pattern(const char *regex);

/* Bytes of the word at the start of valid UTF-8, which is not empty. */
size_t word_match(const WordPattern *pattern, const char *text, size_t length);

#endif
