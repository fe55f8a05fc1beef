/* Tokenizer: pre-tokenizers, which cut a normalized text into words for byte-pair
 * encoding or Unigram; no token crosses the end of a word. */
#ifndef COMPRESS_IO_TOKENIZERS_TOKENIZER_WORDS_H
#define COMPRESS_IO_TOKENIZERS_TOKENIZER_WORDS_H

#include "io/tokenizers/bpe.h"
#include "io/tokenizers/regex.h"
#include "io/tokenizers/unigram.h"
#include "io/tokenizers/word_split.h"
#include "ir/tree.h"

enum { WORD_STEPS_MAX = 8 };

typedef enum WordKind {
    WORDS_SPLIT,     /* by a regular expression */
    WORDS_DIGITS,    /* digits apart from the rest; each alone when `alone` */
    WORDS_METASPACE, /* spaces become a mark that starts words */
    WORDS_FOUND,     /* what word_next finds; white space between words is left out */
    WORDS_BYTES      /* a space before the text, then as WORDS_SPLIT if there is one */
} WordKind;

/* When Metaspace prepends its mark. */
typedef enum MarkScheme { MARK_ALWAYS, MARK_FIRST, MARK_NEVER } MarkScheme;

/* What happens to the stretches that a Split's expression matches, or with `invert` to
 * those between. */
typedef enum SplitBehavior {
    SPLIT_ISOLATED,   /* each is a word */
    SPLIT_REMOVED,    /* left out */
    SPLIT_CONTIGUOUS, /* adjacent ones are one word */
    SPLIT_PREVIOUS,   /* each belongs to the stretch before it, if there is one */
    SPLIT_NEXT        /* each belongs to the stretch after it, if there is one */
} SplitBehavior;

typedef struct WordStep {
    WordKind kind;
    Regex *regex; /* of Split and ByteLevel; freed by tokenizer_destroy */
    SplitBehavior behavior;
    bool invert;
    Token mark;          /* of Metaspace */
    MarkScheme scheme;   /* of Metaspace */
    bool alone;          /* of Digits */
    bool split;          /* of Metaspace: at marks */
    bool space_in_front; /* of ByteLevel */
    WordSplit found;     /* of WORDS_FOUND */
} WordStep;

typedef struct WordRules {
    WordStep steps[WORD_STEPS_MAX];
    int count;
} WordRules;

/* Memory for words. Start with zeros; free with word_scratch_free. */
typedef struct WordScratch {
    Text texts[WORD_STEPS_MAX];
    RegexScratch regex;
    BpeScratch bpe;
    UnigramScratch unigram;
} WordScratch;

/* What turns a word into tokens: one of the two. */
typedef struct WordModel {
    const Bpe *bpe;
    const Unigram *unigram;
} WordModel;

/* Appends the tokens of a piece of text; `first` is whether the whole text starts with
 * it. False when it becomes too long, or when scratch->regex.gave_up. */
bool words_split(const WordRules *rules, const WordModel *model, WordScratch *scratch,
                 TextSpan text, bool first, IdList *ids, UnknownChars *unknown);

/* Reads the pre_tokenizer of a tokenizer.json. `byte_level` says whether it ends with
 * ByteLevel. Fails with STATUS_FORMAT, naming what is not supported. */
Status words_read(WordRules *rules, bool *byte_level, Arena *arena, const Tree *root,
                  Diag *diag);

/* Reads the mark and the scheme of a Metaspace pre-tokenizer or decoder. */
Status metaspace_read(Token *mark, MarkScheme *scheme, Arena *arena, const Tree *map,
                      const char *where, Diag *diag);

/* Frees the memory. */
void word_scratch_free(WordScratch *scratch);

#endif
