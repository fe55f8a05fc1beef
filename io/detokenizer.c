/* Detokenizer: tokens to text. */
#include "io/tokenizer_parts.h"

#include "io/unicode.h"

size_t text_characters(TextSpan text) {
    return utf8_count(text.text, text.length);
}

void detokenizer_start(Detokenizer *self, const Tokenizer *tokenizer,
                       bool skip_specials) {
    detokenizer_free(self);
    self->tokenizer = tokenizer;
    self->skip_specials = skip_specials;
}

Status detokenizer_add(Detokenizer *self, Text *out, int32_t id, Loc at, Diag *diag) {
    (void)self;
    (void)out;
    return diag_fail(diag, STATUS_FORMAT, at, NULL, "token %d: not implemented yet", id);
}

void detokenizer_finish(Detokenizer *self, Text *out) {
    (void)self;
    (void)out;
}

void detokenizer_free(Detokenizer *self) {
    text_free(&self->token);
    *self = (Detokenizer){0};
}

Status tokenizer_decode(const Tokenizer *tokenizer, Text *out, const int32_t *ids,
                        size_t count, bool skip_specials, Loc at, Diag *diag) {
    Detokenizer self = {0};
    Status status = STATUS_OK;
    detokenizer_start(&self, tokenizer, skip_specials);
    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        status = detokenizer_add(&self, out, ids[i], at, diag);
    if (status == STATUS_OK) detokenizer_finish(&self, out);
    detokenizer_free(&self);
    return status;
}
