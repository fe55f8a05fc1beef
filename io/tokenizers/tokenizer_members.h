/* Tokenizer: members of tokenizer.json, with checks of their kinds. */
#ifndef COMPRESS_IO_TOKENIZERS_TOKENIZER_MEMBERS_H
#define COMPRESS_IO_TOKENIZERS_TOKENIZER_MEMBERS_H

#include "io/tokenizers/regex.h"
#include "io/tokenizers/vocabulary.h"
#include "ir/tree.h"

/* Member of a map that may be missing or null; `out` is then NULL. Fails with
 * STATUS_FORMAT, naming `where` and the key, when it is of another kind. */
Status json_member(const Tree **out, const Tree *map, const char *key, TreeKind kind,
                   const char *where, Diag *diag);

/* A boolean member; `fallback` when it is missing or null. */
Status json_flag(bool *out, const Tree *map, const char *key, bool fallback,
                 const char *where, Diag *diag);

/* A required string member of 1 to TOKEN_BYTES_MAX bytes; in the arena. */
Status json_token(Token *out, Arena *arena, const Tree *map, const char *key,
                  const char *where, Diag *diag);

/* The pattern of a Split or a Replace, a String or a Regex; freed by tokenizer_destroy,
 * also when reading fails later. */
Status json_pattern(Regex **out, Arena *arena, const Tree *map, const char *where,
                    Diag *diag);

/* The members of a Replace: a pattern and a content. */
Status json_replace(Regex **from, Token *to, Arena *arena, const Tree *map,
                    const char *where, Diag *diag);

/* Fails unless a component, which may be NULL, has the supported type. */
Status json_type(const Tree *component, const char *name, const char *wanted,
                 const Tree *root, Diag *diag);

/* Passes a component to `step` with its type, or each part of a Sequence, which is a
 * list `parts`; does nothing when it is NULL. Stops if `step` fails. */
typedef Status (*JsonStep)(void *user, const Tree *map, const char *type,
                           const char *where, Diag *diag);
Status json_steps(const Tree *component, const char *name, const char *parts,
                  JsonStep step, void *user, Diag *diag);

#endif
