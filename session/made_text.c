/* Made text: see session/made_text.h. */
#include "session/made_text.h"

#include <string.h>

static Status add_token(MadeText *self, Text *to, int32_t token, Diag *diag) {
    if (token >= tokenizer_size(self->text.tokenizer)) return STATUS_OK;
    return detokenizer_add(&self->text, to, token, LOC_NONE, diag);
}

Status made_text_start(MadeText *self, const Tokenizer *tokenizer,
                       const StringList *stops, const int32_t *prompt, int64_t count,
                       Diag *diag) {
    made_text_free(self);
    *self = (MadeText){.stops = stops};
    detokenizer_start(&self->text, tokenizer, true);
    for (int64_t i = 0; i < count; i++)
        TRY(add_token(self, &self->prompt, prompt[i], diag));
    return STATUS_OK;
}

/* Whether `stop` begins at byte `at` of the text, as far as the text goes. */
static bool fits(const Text *made, size_t at, const char *stop) {
    const size_t length = strlen(stop), left = made->length - at;
    return memcmp(made->data + at, stop, left < length ? left : length) == 0;
}

/* From the first byte that was not certain on: cuts the text where a stop stands. What
 * may be the beginning of one is not certain. */
static void look_for_stops(MadeText *self) {
    const StringList *stops = self->stops;
    Text *made = &self->made;
    size_t certain = made->length;
    for (size_t at = self->certain; at < made->length && !self->stopped; at++)
        for (int i = 0; i < stops->count; i++) {
            if (!fits(made, at, stops->items[i])) continue;
            if (at < certain) certain = at;
            if (made->length - at < strlen(stops->items[i])) continue;
            made->length = at;
            made->data[at] = 0;
            self->stopped = true;
            break;
        }
    self->certain = certain < made->length ? certain : made->length;
}

Status made_text_add(MadeText *self, int32_t token, Diag *diag) {
    TRY(add_token(self, &self->made, token, diag));
    look_for_stops(self);
    return STATUS_OK;
}

void made_text_finish(MadeText *self) {
    if (!self->stopped) detokenizer_finish(&self->text, &self->made);
    self->certain = self->made.length;
}

void made_text_ends(int32_t ends[2], const StringList *stops,
                    const Tokenizer *tokenizer) {
    const int32_t bos = tokenizer_specials(tokenizer)->bos;
    ends[0] = tokenizer_specials(tokenizer)->eos;
    ends[1] = -1;
    for (int i = 0; i < stops->count && bos >= 0; i++)
        if (strcmp(stops->items[i], tokenizer_token(tokenizer, bos)) == 0) ends[1] = bos;
}

void made_text_free(MadeText *self) {
    text_free(&self->prompt);
    text_free(&self->made);
    detokenizer_free(&self->text);
}
