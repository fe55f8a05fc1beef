/* Tokenizer: its parts. tokenizer.h says how it is used, tokenizer_build.h how it is
 * built; it does not change once it is read. */
#ifndef COMPRESS_IO_TOKENIZERS_TOKENIZER_MODEL_H
#define COMPRESS_IO_TOKENIZERS_TOKENIZER_MODEL_H

#include "io/tokenizers/added_tokens.h"
#include "io/tokenizers/tokenizer.h"
#include "io/tokenizers/tokenizer_words.h"
#include "io/tokenizers/word_split.h"
#include "io/tokenizers/wordpiece.h"

enum { TEMPLATE_MAX = 64, DECODE_MAX = 8 };

/* --- special tokens around a text --- */

/* One place of a template: a special token, or one of the two texts. */
enum { PIECE_FIRST = -1, PIECE_SECOND = -2 };
typedef struct TemplatePiece {
    int32_t id; /* of a special token, or one of the above */
    int32_t type;
} TemplatePiece;

typedef struct Template {
    TemplatePiece pieces[TEMPLATE_MAX];
    int count;
} Template;

/* --- back to text --- */

typedef enum DecodeKind {
    DECODE_REPLACE,       /* replaces what `regex` matches by `to` */
    DECODE_BYTE_FALLBACK, /* "<0x0A>" is a byte */
    DECODE_BYTE_LEVEL,    /* characters stand for bytes, as GPT-2 writes them */
    DECODE_METASPACE, /* marks become spaces; the first token's is removed when `strip` */
    DECODE_WORDPIECE, /* adds a leading space, or removes the prefix `from` */
    DECODE_SPACED     /* a space before all but the first */
} DecodeKind;

typedef struct DecodeStep {
    DecodeKind kind;
    Regex *regex;
    Token from, to;
    bool strip;
    bool cleanup; /* for WordPiece: no space before punctuation and English endings */
} DecodeStep;

/* Steps applied to every token, and then to the text as a whole. */
typedef struct DecodeRules {
    DecodeStep steps[DECODE_MAX];
    int count;
    Token strip; /* a character that is removed from the start, */
    int most;    /* so often at most */
} DecodeRules;

typedef enum ModelKind {
    MODEL_WORDPIECE,
    MODEL_BPE,
    MODEL_CHARACTERS,
    MODEL_WORDS,
    MODEL_UNIGRAM
} ModelKind;

struct Tokenizer {
    Arena *arena;
    ModelKind kind;
    Vocabulary vocabulary; /* its tokens include the added ones */
    bool *special;         /* [tokens]: left out of text on request */
    WordPiece wordpiece;   /* of MODEL_WORDPIECE */
    Bpe bpe;               /* of MODEL_BPE */
    Unigram unigram;       /* of MODEL_UNIGRAM */
    WordRules words;       /* of MODEL_BPE and MODEL_UNIGRAM */
    WordSplit split;       /* of MODEL_WORDS */
    int32_t unknown;       /* of MODEL_CHARACTERS and MODEL_WORDS: -1 = none */
    Normalizer normalizer;
    AddedSet original, normalized; /* added tokens, by where they are searched */
    Template single, pair;
    SpecialIds specials;
    DecodeRules decode;
};

#endif
