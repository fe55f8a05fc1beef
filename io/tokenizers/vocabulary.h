/* Vocabulary: tokens by number, and the longest token at a place in a text. */
#ifndef COMPRESS_IO_TOKENIZERS_VOCABULARY_H
#define COMPRESS_IO_TOKENIZERS_VOCABULARY_H

#include "ir/arena.h"
#include "ir/status.h"

#include <stdint.h>

enum {
    TOKEN_BYTES_MAX = 1024,         /* of one token */
    TOKENS_MAX = (1 << 21) - 2,     /* the table keeps 21 bits of a number */
    VOCABULARY_FULL = -1,           /* of vocabulary_add */
    VOCABULARY_BYTES_MAX = 64 << 20 /* of a file */
};

typedef struct Token {
    const char *text; /* terminated */
    uint32_t length;
} Token;

/* Hash table over `tokens`; tokens that were not added have a number and a text, but are
 * not found. A slot holds a number + 1 in its low 21 bits and bits of the hash above. */
typedef struct Vocabulary {
    Token *tokens;
    int32_t capacity;
    uint32_t *slots;
    int shift;        /* 64 - log2(number of slots) */
    uint32_t longest; /* in bytes, of the tokens added */
} Vocabulary;

/* What a token must start with, before the compared text: "" or "##". */
typedef struct Prefix {
    const char *text;
    uint32_t length;
    uint64_t hash;
} Prefix;

/* Makes room for `capacity` tokens, 0 to TOKENS_MAX; all in the arena. */
void vocabulary_create(Vocabulary *vocabulary, Arena *arena, int32_t capacity);

/* Enters tokens[id], of at most TOKEN_BYTES_MAX bytes. Returns the number of the token of
 * this text: `id`, or that of an earlier token; VOCABULARY_FULL when too many tokens
 * share a place in the table, which happens only with crafted files. */
int32_t vocabulary_add(Vocabulary *vocabulary, int32_t id);

/* Number of a token, -1 when absent. */
int32_t vocabulary_find(const Vocabulary *vocabulary, const char *text, size_t length);

/* A prefix; the text is borrowed. */
Prefix prefix_of(const char *text, size_t length);

/* Longest token that consists of `prefix` and a non-empty start of the text: its number,
 * and at `matched` the bytes of text it takes, or -1. */
int32_t vocabulary_longest(const Vocabulary *vocabulary, const Prefix *prefix,
                           const char *text, size_t length, size_t *matched);

/* Splits the text of a vocab.txt, one token per line: `capacity` tokens, all added,
 * whose texts lie in `text` (terminated; changed). White space at the end of a line does
 * not count. Fails with STATUS_FORMAT, at the line. */
Status vocabulary_parse(Vocabulary *vocabulary, Arena *arena, const char *file,
                        char *text, size_t length, Diag *diag);

/* --- numbers of tokens --- */

/* A growing list of token numbers. Start with zeros. */
typedef struct IdList {
    int32_t *items;
    size_t count, capacity;
} IdList;

/* Appends a number. */
void ids_add(IdList *ids, int32_t id);

#endif
