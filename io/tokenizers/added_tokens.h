/* Added tokens: tokens of a tokenizer that are found in a text before it is cut into
 * words.
 */
#ifndef COMPRESS_IO_TOKENIZERS_ADDED_TOKENS_H
#define COMPRESS_IO_TOKENIZERS_ADDED_TOKENS_H

#include "io/tokenizers/tokenizer_normalize.h"

enum { ADDED_MAX = 65536 };

typedef struct AddedToken {
    const char *content;
    int32_t id;
    bool special;        /* left out of text on request */
    bool single_word;    /* only where no letter or digit is next to it */
    bool lstrip, rstrip; /* also takes the white space before, after it */
    bool normalized;     /* searched in the normalized text, else in the original */
} AddedToken;

/* Added tokens that are searched together; token i of the vocabulary is tokens[i]. */
typedef struct AddedSet {
    Vocabulary vocabulary;
    const AddedToken *tokens;
    bool starts[256]; /* first bytes of any of them */
} AddedSet;

/* A place in a text where an added token occurs. */
typedef struct AddedMatch {
    size_t begin, end;
    int32_t id;
} AddedMatch;

/* Collects the tokens whose `normalized` is as given. If it is set, the normalizer is
 * applied to the contents; otherwise it is NULL. Of equal ones, the first counts. Fails
 * with STATUS_FORMAT. */
Status added_collect(AddedSet *set, Arena *arena, const AddedToken *tokens, int count,
                     const Normalizer *normalizer, Loc at, Diag *diag);

/* Next added token, leftmost first and longest first: from `search` on, which moves to
 * its end. `done` is where the last match ended. False at the end. */
bool added_next(const AddedSet *set, const char *text, size_t length, size_t *search,
                size_t done, AddedMatch *match);

#endif
