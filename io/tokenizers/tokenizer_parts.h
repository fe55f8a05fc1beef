/* Tokenizer: what it is made of, for its readers (io/tokenizers/tokenizer_json.c and the
 * files beside it), the added tokens (io/tokenizers/added_tokens.c) and the way back
 * (io/tokenizers/detokenizer.c).
 */
#ifndef COMPRESS_IO_TOKENIZERS_TOKENIZER_PARTS_H
#define COMPRESS_IO_TOKENIZERS_TOKENIZER_PARTS_H

#include "io/tokenizers/tokenizer.h"
#include "io/tokenizers/tokenizer_normalize.h"
#include "io/tokenizers/tokenizer_words.h"
#include "io/tokenizers/word_split.h"
#include "io/tokenizers/wordpiece.h"
#include "ir/tree.h"

enum { ADDED_MAX = 65536, TEMPLATE_MAX = 64, DECODE_MAX = 8 };

/* --- added tokens: found in the text before it is split --- */

typedef struct AddedToken {
    const char *content;
    int32_t id;
    bool special;        /* left out of text where that is wanted */
    bool single_word;    /* only where no letter or digit stands beside it */
    bool lstrip, rstrip; /* takes the white space before, after it as well */
    bool normalized;     /* to be found in the normalized text, else in the original */
} AddedToken;

/* Added tokens that are looked for together; token i of the vocabulary is tokens[i]. */
typedef struct AddedSet {
    Vocabulary vocabulary;
    const AddedToken *tokens;
    bool starts[256]; /* bytes that one of them starts with */
} AddedSet;

/* A place in a text where an added token stands. */
typedef struct AddedMatch {
    size_t begin, end;
    int32_t id;
} AddedMatch;

/* Collects the tokens whose `normalized` is as given. The normalizer is applied to the
 * contents when it is; NULL otherwise. Of equal ones the first counts. Fails with
 * STATUS_FORMAT. */
Status added_collect(AddedSet *set, Arena *arena, const AddedToken *tokens, int count,
                     const Normalizer *normalizer, Loc at, Diag *diag);

/* Next added token, leftmost first and longest first: from `search` on, which moves
 * behind it. `done` is where the last match ended. False at the end. */
bool added_next(const AddedSet *set, const char *text, size_t length, size_t *search,
                size_t done, AddedMatch *match);

/* --- the tokenizer --- */

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
    DECODE_REPLACE,       /* what `regex` matches by `to` */
    DECODE_BYTE_FALLBACK, /* "<0x0A>" is a byte */
    DECODE_BYTE_LEVEL,    /* characters stand for bytes, as GPT-2 writes them */
    DECODE_METASPACE,     /* marks are spaces; of the first token nothing when `strip` */
    DECODE_WORDPIECE,     /* a space in front, or the prefix `from` taken off */
    DECODE_SPACED         /* a space in front of all but the first */
} DecodeKind;

typedef struct DecodeStep {
    DecodeKind kind;
    Regex *regex;
    Token from, to;
    bool strip;
    bool cleanup; /* of WordPiece: no space before punctuation and English endings */
} DecodeStep;

/* What every token goes through, and then the text as a whole. */
typedef struct DecodeRules {
    DecodeStep steps[DECODE_MAX];
    int count;
    Token strip; /* a character that is taken off the start, */
    int most;    /* so often at most */
} DecodeRules;

/* --- the tokenizer --- */

typedef enum ModelKind {
    MODEL_WORDPIECE,
    MODEL_BPE,
    MODEL_CHARACTERS,
    MODEL_WORDS
} ModelKind;

struct Tokenizer {
    Arena *arena;
    ModelKind kind;
    Vocabulary vocabulary; /* its tokens include the added ones */
    bool *special;         /* [tokens]: left out of text where that is wanted */
    WordPiece wordpiece;   /* of MODEL_WORDPIECE */
    Bpe bpe;               /* of MODEL_BPE */
    WordRules words;       /* of MODEL_BPE */
    WordSplit split;       /* of MODEL_WORDS */
    int32_t unknown;       /* of MODEL_CHARACTERS and MODEL_WORDS: -1 = none */
    Normalizer normalizer;
    AddedSet original, normalized; /* added tokens, by where they are looked for */
    Template single, pair;
    SpecialIds specials;
    DecodeRules decode;
};

/* Names of the special tokens, NULL = not given. */
typedef struct SpecialNames {
    const char *pad, *unk, *cls, *sep, *mask, *bos, *eos;
} SpecialNames;

/* Reads tokenizer_config.json in a folder; at `config` NULL when there is none. The
 * strings live in the arena. */
Status config_read(Tree **config, SpecialNames *names, Arena *arena, const char *folder,
                   Diag *diag);

/* Looks up the special tokens of WordPiece, [PAD], [UNK] ... where they have no other
 * name; all but the mask must be there. */
Status specials_find(Tokenizer *tokenizer, const SpecialNames *names, Loc at, Diag *diag);

/* Looks up those of a language model: the ones that are named must be there; then those
 * that the config.json of the folder numbers, then the usual names. */
Status specials_find_some(Tokenizer *tokenizer, const SpecialNames *names,
                          const char *folder, Loc at, Diag *diag);

/* Fills in the template of BERT: [CLS] A [SEP], [CLS] A [SEP] B [SEP]. */
void template_bert(Tokenizer *tokenizer, int32_t cls, int32_t sep);

/* Fills in templates without special tokens: A, A B. */
void template_plain(Tokenizer *tokenizer);

/* Makes the added tokens known: sets `original`, `normalized` and `special`. */
Status tokenizer_add(Tokenizer *tokenizer, const AddedToken *tokens, int count, Loc at,
                     Diag *diag);

/* Puts the tokens of a vocabulary, a map of numbers, and the added ones that it does not
 * hold at their numbers, which must be 0, 1, 2 ... without a gap. Fails with
 * STATUS_FORMAT, about `key`. */
Status tokenizer_place(Tokenizer *tokenizer, const Tree *vocab, const AddedToken *added,
                       int count, Loc at, const char *key, Diag *diag);

/* Fill an empty tokenizer from one file; the folder is where the configuration lies. */
Status tokenizer_read_json(Tokenizer *tokenizer, const char *path, const char *folder,
                           Diag *diag);
Status tokenizer_read_vocab(Tokenizer *tokenizer, const char *path, const char *folder,
                            Diag *diag);

/* Fills an empty tokenizer from the vocab.json and the merges.txt of a folder: GPT-2's.
 */
Status tokenizer_read_merges(Tokenizer *tokenizer, const char *folder, Diag *diag);

/* Fills an empty tokenizer from a vocab.json of whole words, Marian's without its
 * SentencePiece model. */
Status tokenizer_read_words(Tokenizer *tokenizer, const char *path, const char *folder,
                            Diag *diag);

/* Read what is particular to a kind of tokenizer.json; the tokens are in their places. */
Status bpe_read(Tokenizer *tokenizer, const Tree *root, const Tree *model,
                SpecialNames *names, Diag *diag);
Status characters_read(Tokenizer *tokenizer, const Tree *root, const Tree *model,
                       const AddedToken *added, int count, SpecialNames *names,
                       Diag *diag);

/* The same for whole words. */
Status wordlevel_read(Tokenizer *tokenizer, const Tree *root, const Tree *model,
                      SpecialNames *names, Diag *diag);

/* Number of a model's unk_token, which may be NULL: -1 then. Sets the name. */
Status unknown_read(int32_t *id, const Tokenizer *tokenizer, const Tree *token,
                    SpecialNames *names, Loc at, Diag *diag);

/* Vocabulary of a model Characters as a map of numbers, also where it is a list; in the
 * arena. Fails with STATUS_FORMAT. */
Status characters_vocab(const Tree **vocab, Arena *arena, const Tree *model,
                        const Tree *root, Diag *diag);

/* Reads the templates of a tokenizer.json's post_processor; the vocabulary is there. */
Status template_read(Tokenizer *tokenizer, const Tree *root, Diag *diag);

/* Reads the decoder of a tokenizer.json, or sets what the model suggests. */
Status decoder_read(Tokenizer *tokenizer, const Tree *root, Diag *diag);

/* --- members of tokenizer.json (io/tokenizers/tokenizer_members.c) --- */

/* Member of a map that may be left out or null; at `out` NULL then. Fails with
 * STATUS_FORMAT, naming `where` and the key, when it is of another kind. */
Status json_member(const Tree **out, const Tree *map, const char *key, TreeKind kind,
                   const char *where, Diag *diag);

/* A boolean member; `fallback` when it is left out or null. */
Status json_flag(bool *out, const Tree *map, const char *key, bool fallback,
                 const char *where, Diag *diag);

/* A string member that must be there, of 1 to TOKEN_BYTES_MAX bytes; in the arena. */
Status json_token(Token *out, Arena *arena, const Tree *map, const char *key,
                  const char *where, Diag *diag);

/* The pattern of a Split or a Replace, a String or a Regex; freed by tokenizer_destroy,
 * also when reading goes on to fail. */
Status json_pattern(Regex **out, Arena *arena, const Tree *map, const char *where,
                    Diag *diag);

/* The members of a Replace: a pattern and a content. */
Status json_replace(Regex **from, Token *to, Arena *arena, const Tree *map,
                    const char *where, Diag *diag);

/* Fails unless a component, which may be NULL, is of the type that is supported. */
Status json_type(const Tree *component, const char *name, const char *wanted,
                 const Tree *root, Diag *diag);

/* Hands a component to `step` with its type, or each part of a Sequence, which is a list
 * `parts`; nothing when it is NULL. Stops where `step` fails. */
typedef Status (*JsonStep)(void *user, const Tree *map, const char *type,
                           const char *where, Diag *diag);
Status json_steps(const Tree *component, const char *name, const char *parts,
                  JsonStep step, void *user, Diag *diag);

#endif
