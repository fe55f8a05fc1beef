/* Prompt: the text that a language model continues, checked against the model and its
 * tokenizer. */
#ifndef COMPRESS_SESSION_PROMPT_H
#define COMPRESS_SESSION_PROMPT_H

#include "io/files/lines.h"
#include "io/tokenizers/tokenizer.h"

/* Prompts of a file, one per line, without blank lines, which *all includes; in a file
 * whose name ends in .jsonl or .ndjson a map with `prompt` per line. In the arena, where
 * `path` must be as well. Fails as lines_read, and with STATUS_FORMAT at a malformed
 * line, or if there are no prompts. */
Status prompts_read(Line **out, int64_t *count, int64_t *all, Arena *arena,
                    const char *path, Diag *diag);

/* A prompt as tokens, in the arena, after the beginning-of-text token if the tokenizer's
 * template adds one (tokenizer_begin); for an empty text only that token, if the
 * vocabulary has one. Fails with STATUS_USAGE if that leaves none, and as
 * tokenizer_encode_plain at `at`. */
Status prompt_tokens(int32_t **tokens, int64_t *count, Arena *arena,
                     const Tokenizer *tokenizer, TextSpan prompt, Loc at, Diag *diag);

/* Checks that the model's position tables hold a prompt of this many tokens and `made`
 * generated ones. Warns if it has no tables, but its configuration says that it was made
 * for fewer. Fails with STATUS_MODEL. */
Status prompt_check_positions(const Model *model, int64_t count, int64_t made,
                              Diag *diag);

/* Checks that the model's logits, over `vocabulary` tokens, cover the tokenizer's, and
 * warns if its own vocabulary differs. Fails with STATUS_MODEL. */
Status prompt_check_vocabulary(const Model *model, int64_t vocabulary,
                               const Tokenizer *tokenizer, Diag *diag);

#endif
