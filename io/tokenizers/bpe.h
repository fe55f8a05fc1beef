/* BPE: byte-pair encoding (Sennrich et al. 2016). A word starts as its characters, or
 * its bytes, and the two neighbours that come first in the list of merges become one
 * token, until no two neighbours are in the list. Exactly as in the `tokenizers`
 * library. */
#ifndef COMPRESS_IO_TOKENIZERS_BPE_H
#define COMPRESS_IO_TOKENIZERS_BPE_H

#include "io/tokenizers/vocabulary.h"
#include "ir/text.h"

enum {
    MERGES_MAX = TOKENS_MAX,
    BYTE_CHARS = 256 + 68 /* characters that stand for bytes are below it */
};

/* Two neighbours become a token. */
typedef struct Merge {
    uint64_t key; /* of the two, 0 = none */
    uint32_t rank;
    int32_t id;
} Merge;

typedef struct Bpe {
    const Vocabulary *vocabulary;
    Merge *merges; /* hash table */
    int shift;     /* 64 - log2(its slots) */
    uint32_t merge_count;

    int32_t bytes[256]; /* token of a byte, -1 = none: spelled as GPT-2 does when
                           byte_level, else "<0x0A>" */
    int32_t unknown;    /* token of characters without one, -1 = none */
    bool byte_level;    /* words start as bytes */
    bool byte_fallback; /* characters without a token become their bytes */
    bool fuse_unknown;  /* adjacent unknown characters are one token */
    bool ignore_merges; /* a word that is a token stays whole */
    bool joins_words;   /* a merge puts a "▁" after another character */
} Bpe;

/* Characters that had no token. */
typedef struct UnknownChars {
    size_t count;
    uint32_t first;
} UnknownChars;

/* A part of the word: a token, and its remaining neighbours, -1 at the ends. */
typedef struct BpeSymbol {
    int32_t id; /* -1 = part of the one before */
    int32_t before, after;
} BpeSymbol;

/* A waiting merge: those of the least rank first, of these the leftmost. */
typedef struct BpeCandidate {
    uint64_t order; /* rank, place */
    int32_t id;
} BpeCandidate;

/* Memory for words. Start with zeros; free with bpe_scratch_free. */
typedef struct BpeScratch {
    BpeSymbol *symbols;
    BpeCandidate *heap;
    size_t count, capacity, waiting, heap_capacity;
    Text spelled;
} BpeScratch;

/* Makes room for `count` merges, 0 to MERGES_MAX. */
void bpe_create(Bpe *bpe, Arena *arena, const Vocabulary *vocabulary, size_t count);

/* Fills in the tokens of bytes; `byte_level` and `byte_fallback` are set. Fails with
 * STATUS_FORMAT when byte_fallback lacks one of them. */
Status bpe_bytes(Bpe *bpe, Loc at, Diag *diag);

/* Appends a merge. Fails with STATUS_FORMAT, about `key`, when the vocabulary lacks a
 * part or the whole. */
Status bpe_add(Bpe *bpe, TextSpan left, TextSpan right, Loc at, const char *key,
               Diag *diag);

/* Makes room for merges and appends every way to make one of the first `count` tokens
 * from two others, both marked by `joined`: the highest scores first, equal scores with
 * equal rank, so that the leftmost in a word comes first (SentencePiece). Fails with
 * STATUS_FORMAT, about `key`, for tokens that are too long together. */
Status bpe_add_splits(Bpe *bpe, Arena *arena, const Vocabulary *vocabulary,
                      const double *scores, const bool *joined, int32_t count, Loc at,
                      const char *key, Diag *diag);

/* Appends the tokens of a word of valid UTF-8, at most 2^30 bytes. */
void bpe_split(const Bpe *bpe, BpeScratch *scratch, const char *word, size_t length,
               IdList *ids, UnknownChars *unknown);

/* Frees the memory. */
void bpe_scratch_free(BpeScratch *scratch);

/* Character that stands for a byte in the tokens of GPT-2: itself if it can be printed,
 * else the next one from U+0100 on. */
uint32_t byte_char(unsigned char byte);

/* Byte that a character stands for, -1 = none. */
int char_byte(uint32_t c);

#endif
