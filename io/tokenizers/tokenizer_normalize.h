/* Tokenizer: normalizers, applied to a text before it is cut into words. */
#ifndef COMPRESS_IO_TOKENIZERS_TOKENIZER_NORMALIZE_H
#define COMPRESS_IO_TOKENIZERS_TOKENIZER_NORMALIZE_H

#include "io/tokenizers/bert_normalize.h"
#include "io/tokenizers/piece_normalize.h"
#include "io/tokenizers/regex.h"
#include "io/tokenizers/unicode.h"
#include "io/tokenizers/vocabulary.h"
#include "ir/tree.h"

enum {
    NORMALIZE_MAX = 8,          /* steps */
    NORMALIZED_BYTES = 1 << 30, /* most bytes of a text, before and after */
};

typedef enum NormalizeKind {
    NORMALIZE_BERT,
    NORMALIZE_PREPEND, /* `to`, unless the text is empty */
    NORMALIZE_REPLACE, /* what `regex` matches by `to` */
    NORMALIZE_LOWERCASE,
    NORMALIZE_FORM,
    NORMALIZE_STRIP,   /* white space at the start, where `left`, and the end, `right` */
    NORMALIZE_ACCENTS, /* marks are left out */
    NORMALIZE_NMT,     /* control characters are left out or become spaces, as in
                          SentencePiece's rules `nmt` */
    NORMALIZE_CHARSMAP,
    NORMALIZE_PIECES /* as in SentencePiece */
} NormalizeKind;

typedef struct NormalizeStep {
    NormalizeKind kind;
    Regex *regex;
    Token to;
    NormalForm form;
    BertRules rules;
    Charsmap map;
    PieceRules pieces;
    bool left, right;
} NormalizeStep;

typedef struct Normalizer {
    NormalizeStep steps[NORMALIZE_MAX];
    int count;
} Normalizer;

/* Memory for texts. Start with zeros; free with normalize_scratch_free. */
typedef struct NormalizeScratch {
    Text texts[2];
    MarkRun marks;
    RegexScratch regex;
} NormalizeScratch;

/* Normalizes valid UTF-8: at `out` the text itself when there is nothing to do, or what
 * lies in `scratch` until it is used again. `first` is whether the whole text starts with
 * it. False when it becomes longer than
 * NORMALIZED_BYTES, or than 64 times what it was and a MiB, or when
 * scratch->regex.gave_up. */
bool normalizer_apply(const Normalizer *normalizer, NormalizeScratch *scratch,
                      TextSpan text, bool first, TextSpan *out);

/* Reads the normalizer of a tokenizer.json; `bert` = only a BertNormalizer is supported.
 * Fails with STATUS_FORMAT, naming what is not. */
Status normalizer_read(Normalizer *normalizer, Arena *arena, const Tree *root, bool bert,
                       Diag *diag);

/* Frees the memory. */
void normalize_scratch_free(NormalizeScratch *scratch);

#endif
