/* Unknown tokens: see unknown_tokens.h. */
#include "io/datasets/unknown_tokens.h"

/* Share of the tokens that is told. */
static const double SHARE = 0.2;

void unknown_tokens_start(UnknownTokens *self, const Tokenizer *tokenizer) {
    const SpecialIds *ids = tokenizer_specials(tokenizer);
    const int32_t unknown = ids->unk;
    const bool alone = unknown >= 0 && unknown != ids->pad && unknown != ids->cls &&
                       unknown != ids->sep && unknown != ids->bos && unknown != ids->eos;
    *self = (UnknownTokens){.specials = *ids};
    if (alone) self->token = tokenizer_token(tokenizer, unknown);
}

void unknown_tokens_warn(const UnknownTokens *self, const char *whose, const char *path,
                         Loc at, Diag *diag) {
    if (!self->token || (double)self->unknown <= SHARE * (double)self->tokens) return;
    diag_warn(
        diag, at, "tokenizer",
        "%.0f %% of the tokens of %s are '%s', all that %s has for them: is it made "
        "for their language, alphabet and case?",
        100 * (double)self->unknown / (double)self->tokens, whose, self->token,
        path ? path : "the tokenizer");
}
