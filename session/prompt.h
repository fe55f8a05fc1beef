/* Prompt: what a language model goes on from, against the model and its tokenizer. */
#ifndef COMPRESS_SESSION_PROMPT_H
#define COMPRESS_SESSION_PROMPT_H

#include "io/files/lines.h"
#include "io/tokenizers/tokenizer.h"

/* Prompts of a file, a line each, without blank lines, which *all counts as well; in a
 * file whose name ends in .jsonl or .ndjson a map with `prompt` each. In the arena, where
 * `path` must be, too. Fails as lines_read, and with STATUS_FORMAT at a line that is
 * none, or where there are none. */
Status prompts_read(Line **out, int64_t *count, int64_t *all, Arena *arena,
                    const char *path, Diag *diag);

/* A prompt as tokens, in the arena, behind the token that begins a text where the
 * tokenizer's template puts one there (tokenizer_begin); of no text that token alone,
 * where the vocabulary has one. Fails with STATUS_USAGE when that leaves none, and as
 * tokenizer_encode_plain at `at`. */
Status prompt_tokens(int32_t **tokens, int64_t *count, Arena *arena,
                     const Tokenizer *tokenizer, TextSpan prompt, Loc at, Diag *diag);

/* Checks that the model's tables of positions hold a prompt of so many tokens and `made`
 * that are made. Warns where it has no tables, and its configuration says that it was
 * made for fewer. Fails with STATUS_MODEL. */
Status prompt_check_positions(const Model *model, int64_t count, int64_t made,
                              Diag *diag);

/* Checks that the model's logits, over `vocabulary` tokens, hold the tokenizer's, and
 * warns where its own vocabulary differs. Fails with STATUS_MODEL. */
Status prompt_check_vocabulary(const Model *model, int64_t vocabulary,
                               const Tokenizer *tokenizer, Diag *diag);

#endif
