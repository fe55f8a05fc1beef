/* Unigram: the cut of a word into pieces whose log-probabilities have the greatest sum
 * (Kudo 2018), by Viterbi's algorithm over a trie of the pieces: time and memory are
 * proportional to the word. Exactly as in the `tokenizers` library of Hugging Face, or
 * as in SentencePiece. */
#ifndef COMPRESS_IO_TOKENIZERS_UNIGRAM_H
#define COMPRESS_IO_TOKENIZERS_UNIGRAM_H

#include "io/tokenizers/bpe.h"

enum { UNIGRAM_NODES_MAX = 1 << 24 };

/* A node of the trie. Its children are adjacent, in the order of their bytes. */
typedef struct UnigramNode {
    uint32_t first; /* child */
    uint16_t count; /* of children */
    uint8_t byte;   /* that leads here */
    int32_t id;     /* the piece that ends here, -1 = none */
} UnigramNode;

typedef struct Unigram {
    const Vocabulary *vocabulary;
    const Token *texts;       /* [pieces] */
    double *scores;           /* [pieces] log-probabilities */
    const int32_t *numbers;   /* [pieces] of their tokens, -1 = the unknown one; NULL =
                                 those of the pieces */
    const UnigramNode *nodes; /* nodes[0] is the root */
    int32_t pieces;           /* number of them */
    int32_t unknown;          /* token of characters without one, -1 = none */
    double unknown_score;
    int32_t bytes[256]; /* tokens <0x00> to <0xFF>, -1 = none */
    bool byte_fallback; /* adjacent unknown characters become their bytes */
    bool single;        /* sums are rounded to f32, as SentencePiece's */
} Unigram;

/* The best way to a place in the word. */
typedef struct UnigramStep {
    double score;
    uint32_t length; /* of the piece that ends here, 0 = unreachable */
    int32_t id;
} UnigramStep;

/* Memory for words. Start with zeros; free with unigram_scratch_free. */
typedef struct UnigramScratch {
    UnigramStep *steps;
    size_t capacity;
} UnigramScratch;

/* What SentencePiece subtracts from the least score for a character without a piece. */
#define UNIGRAM_PENALTY 10.0

/* Finds the tokens of bytes in the vocabulary. */
void unigram_bytes(Unigram *self);

/* Builds the trie over the pieces; those that `left_out` marks ([pieces], NULL = none)
 * are not found in texts. All in the arena. Fails with STATUS_FORMAT, about `key`, for
 * two pieces that are the same, and for pieces that share too little. */
Status unigram_build(Unigram *self, Arena *arena, const bool *left_out, Loc at,
                     const char *key, Diag *diag);

/* Appends the tokens of a word of valid UTF-8, at most 2^30 bytes. */
void unigram_split(const Unigram *self, UnigramScratch *scratch, const char *word,
                   size_t length, IdList *ids, UnknownChars *unknown);

/* Frees the memory. */
void unigram_scratch_free(UnigramScratch *scratch);

#endif
