/* Span search: the answer to a question among the tokens of a text. */
#ifndef COMPRESS_PASSES_EVALUATE_SPAN_SEARCH_H
#define COMPRESS_PASSES_EVALUATE_SPAN_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

/* Tokens `first` to `last` and the sum of their logits; a score of -INFINITY is none. */
typedef struct Span {
    double score;
    int64_t first, last;
} Span;

/* Puts the best span of tokens [begin, end), of at most `longest` tokens, into `best` if
 * its score is higher than the one there; among equals the first wins. logits [T, 2] are
 * for being the first and the last token. Returns whether there was one. */
bool span_search(Span *best, const float *logits, int64_t begin, int64_t end,
                 int64_t longest);

#endif
