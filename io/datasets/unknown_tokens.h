/* Unknown tokens: how many tokens of a data set are its tokenizer's unknown token. Many
 * of them mean that the tokenizer was made for other texts: another language, alphabet
 * or case. */
#ifndef COMPRESS_IO_DATASETS_UNKNOWN_TOKENS_H
#define COMPRESS_IO_DATASETS_UNKNOWN_TOKENS_H

#include "io/tokenizers/tokenizer.h"

typedef struct UnknownTokens {
    const char *token; /* NULL = there is none: nothing is counted */
    SpecialIds specials;
    int64_t tokens, unknown;
} UnknownTokens;

/* Starts to count. An unknown token that also has another meaning (GPT-2's
 * <|endoftext|>) does not count: such tokenizers know every byte. The tokenizer must
 * exist until the warning. */
void unknown_tokens_start(UnknownTokens *self, const Tokenizer *tokenizer);

/* Counts a token; special tokens around a text are not counted. */
static inline void unknown_tokens_see(UnknownTokens *self, int32_t id) {
    const SpecialIds *not_text = &self->specials;
    self->unknown += id == not_text->unk;
    self->tokens += id != not_text->pad && id != not_text->cls && id != not_text->sep &&
                    id != not_text->bos && id != not_text->eos;
}

/* Warns at `tokenizer` of a data set when more than a fifth of the tokens are unknown.
 * `whose` tokens they are: the data set's name, "... of sources"; `path`: the
 * tokenizer's, NULL = not known. */
void unknown_tokens_warn(const UnknownTokens *self, const char *whose, const char *path,
                         Loc at, Diag *diag);

#endif
