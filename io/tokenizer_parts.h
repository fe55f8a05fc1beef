/* Tokenizer: what it is made of, for its readers (io/tokenizer_json.c,
 * io/tokenizer_vocab.c) and the added tokens (io/added_tokens.c). */
#ifndef COMPRESS_IO_TOKENIZER_PARTS_H
#define COMPRESS_IO_TOKENIZER_PARTS_H

#include "io/tokenizer.h"
#include "io/wordpiece.h"
#include "ir/tree.h"

enum { ADDED_MAX = 65536, TEMPLATE_MAX = 64 };

/* --- added tokens: found in the text before it is split --- */

typedef struct AddedToken {
    const char *content;
    int32_t id;
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

/* Collects the tokens whose `normalized` is as given. `rules` is applied to the contents
 * when it is; NULL otherwise. Of equal ones the first counts. Fails with STATUS_FORMAT.
 */
Status added_collect(AddedSet *set, Arena *arena, const AddedToken *tokens, int count,
                     const BertRules *rules, Loc at, Diag *diag);

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

struct Tokenizer {
    Arena *arena;
    WordPiece model; /* its vocabulary's tokens include the added ones */
    BertRules rules;
    AddedSet original, normalized; /* added tokens, by where they are looked for */
    Template single, pair;
    SpecialIds specials;
};

/* Names of the special tokens, as a tokenizer_config.json gives them. */
typedef struct SpecialNames {
    const char *pad, *unk, *cls, *sep, *mask;
} SpecialNames;

/* Reads tokenizer_config.json in a folder; at `config` NULL when there is none. Names
 * that it does not give are [PAD], [UNK] ...; the strings live in the arena. */
Status config_read(Tree **config, SpecialNames *names, Arena *arena, const char *folder,
                   Diag *diag);

/* Looks up the special tokens; all but the mask must be there. */
Status specials_find(Tokenizer *tokenizer, const SpecialNames *names, Loc at, Diag *diag);

/* Fills in the template of BERT: [CLS] A [SEP], [CLS] A [SEP] B [SEP]. */
void template_bert(Tokenizer *tokenizer, int32_t cls, int32_t sep);

/* Makes the added tokens known: sets `original` and `normalized`. */
Status tokenizer_add(Tokenizer *tokenizer, const AddedToken *tokens, int count, Loc at,
                     Diag *diag);

/* Fill an empty tokenizer from one file; the folder is where the configuration lies. */
Status tokenizer_read_json(Tokenizer *tokenizer, const char *path, const char *folder,
                           Diag *diag);
Status tokenizer_read_vocab(Tokenizer *tokenizer, const char *path, const char *folder,
                            Diag *diag);

/* Reads the templates of a tokenizer.json's post_processor; the vocabulary is there. */
Status template_read(Tokenizer *tokenizer, const Tree *root, Diag *diag);

/* Member of a map that may be left out or null; at `out` NULL then. Fails with
 * STATUS_FORMAT, naming `where` and the key, when it is of another kind. */
Status json_member(const Tree **out, const Tree *map, const char *key, TreeKind kind,
                   const char *where, Diag *diag);

/* A boolean member; `fallback` when it is left out or null. */
Status json_flag(bool *out, const Tree *map, const char *key, bool fallback,
                 const char *where, Diag *diag);

#endif
