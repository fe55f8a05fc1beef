/* Tokenizer: building one: configuration, special tokens, templates, and tokens in their
 * places; for the readers of tokenizer_readers.h. */
#ifndef COMPRESS_IO_TOKENIZERS_TOKENIZER_BUILD_H
#define COMPRESS_IO_TOKENIZERS_TOKENIZER_BUILD_H

#include "io/files/folder.h"
#include "io/tokenizers/tokenizer_members.h"
#include "io/tokenizers/tokenizer_model.h"

/* Names of the special tokens, NULL = not given. */
typedef struct SpecialNames {
    const char *pad, *unk, *cls, *sep, *mask, *bos, *eos;
} SpecialNames;

/* Reads tokenizer_config.json in a folder; at `config` NULL when there is none. The
 * strings live in the arena. */
Status config_read(Tree **config, SpecialNames *names, Arena *arena, const Folder *folder,
                   Diag *diag);

/* Looks up the special tokens of WordPiece, [PAD], [UNK] ... or <pad>, <s> ... unless
 * they have other names; all except the mask must exist. */
Status specials_find(Tokenizer *self, const SpecialNames *names, Loc at, Diag *diag);

/* Looks up those of a language model: named ones must exist; then those numbered by the
 * folder's config.json, then the usual names. */
Status specials_find_some(Tokenizer *self, const SpecialNames *names,
                          const Folder *folder, Loc at, Diag *diag);

/* Fills in the template of BERT: [CLS] A [SEP], [CLS] A [SEP] B [SEP]. */
void template_bert(Tokenizer *self, int32_t cls, int32_t sep);

/* Fills in templates without special tokens: A, A B. */
void template_plain(Tokenizer *self);

/* Fills in that of RoBERTa: <s> A </s>, <s> A </s> </s> B </s>. */
void template_roberta(Tokenizer *self, int32_t cls, int32_t sep);

/* Fills in templates with a token before and one after every text; -1 = none. */
void template_flags(Tokenizer *self, int32_t begin, int32_t end);

/* Reads an added token except for its number: a map with `content` and flags; in the
 * arena. Fails with STATUS_FORMAT, about `where`. */
Status added_flags_read(AddedToken *out, Arena *arena, const Tree *map, const char *where,
                        Diag *diag);

/* Makes the added tokens known: sets `original`, `normalized` and `special`. */
Status tokenizer_add(Tokenizer *self, const AddedToken *tokens, int count, Loc at,
                     Diag *diag);

/* Puts the tokens of a vocabulary, a map of numbers, and the added ones that it does not
 * hold at their numbers, which must be 0, 1, 2 ... without a gap. Fails with
 * STATUS_FORMAT, about `key`. */
Status tokenizer_place(Tokenizer *self, const Tree *vocab, const AddedToken *added,
                       int count, Loc at, const char *key, Diag *diag);

/* Number of a model's unk_token, which may be NULL: -1 then. Sets the name. */
Status unknown_read(int32_t *id, const Tokenizer *self, const Tree *token,
                    SpecialNames *names, Loc at, Diag *diag);

#endif
