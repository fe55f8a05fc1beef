/* Detokenizer: tokens to text. Every token goes through the decoder's steps by itself and
 * becomes bytes; of the bytes of all tokens, complete characters are text. */
#include "io/tokenizers/tokenizer_model.h"

#include "io/tokenizers/unicode.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { REPLACED_MAX = 1 << 24 }; /* bytes of a token with replacements */

static const char REPLACEMENT[] = "\xef\xbf\xbd"; /* U+FFFD */

size_t text_characters(TextSpan text) {
    return utf8_count(text.text, text.length);
}

/* --- one token --- */

static void text_set(Text *text, const char *bytes, size_t length) {
    text->length = 0;
    if (length > 0) text_bytes(text, bytes, length);
}

/* Replaces every `from` by `to`. Tokens and both are short. */
static void replace_all(Text *text, const Token *from, const Token *to) {
    Text out = {0};
    size_t i = 0;
    while (i < text->length) {
        const char *at =
            memmem(text->data + i, text->length - i, from->text, from->length);
        size_t end = at ? (size_t)(at - text->data) : text->length;
        if (end > i) text_bytes(&out, text->data + i, end - i);
        if (at && to->length > 0) text_bytes(&out, to->text, to->length);
        i = at ? end + from->length : end;
    }
    text_set(text, out.data, out.length);
    text_free(&out);
}

/* "<0x0A>" becomes the byte. */
static void take_byte(Text *text) {
    static const char DIGITS[] = "0123456789ABCDEF";
    const char *p = text->data;
    if (text->length != 6 || memcmp(p, "<0x", 3) != 0 || p[5] != '>') return;
    const char *high = memchr(DIGITS, toupper((unsigned char)p[3]), 16);
    const char *low = memchr(DIGITS, toupper((unsigned char)p[4]), 16);
    if (!high || !low) return;
    char byte = (char)((high - DIGITS) * 16 + (low - DIGITS));
    text_set(text, &byte, 1);
}

/* Characters become the bytes they stand for; all of them or none. */
static void take_bytes(Text *text) {
    size_t length = 0, bytes;
    for (size_t i = 0; i < text->length; i += bytes)
        if (char_byte(utf8_decode(text->data + i, &bytes)) < 0) return;
    for (size_t i = 0; i < text->length; i += bytes)
        text->data[length++] = (char)char_byte(utf8_decode(text->data + i, &bytes));
    text->length = length;
}

static void space_in_front(Text *text) {
    text_bytes(text, " ", 1);
    memmove(text->data + 1, text->data, text->length - 1);
    text->data[0] = ' ';
}

static void join_word(const DecodeStep *step, Text *text, bool first) {
    static const char *const TIGHT[] = {" .",  " ?",  " !",   " ,",  " n't",
                                        " 'm", " 's", " 've", " 're"};
    const size_t prefix = step->from.length;
    if (!first && prefix > 0 && text->length >= prefix &&
        memcmp(text->data, step->from.text, prefix) == 0) {
        text->length -= prefix;
        memmove(text->data, text->data + prefix, text->length);
    } else if (!first) {
        space_in_front(text);
    }
    /* the space goes where English has none */
    for (size_t i = 0; step->cleanup && i < sizeof TIGHT / sizeof *TIGHT; i++) {
        Token from = {TIGHT[i], (uint32_t)strlen(TIGHT[i])};
        Token to = {TIGHT[i] + 1, from.length - 1};
        replace_all(text, &from, &to);
    }
}

/* A token that steps before have made bytes of, not characters, is left as it is. */
static void replace_matches(const DecodeStep *step, RegexScratch *scratch, Text *text) {
    Text out = {0};
    if (utf8_check(text->data, text->length) < text->length) return;
    regex_start(scratch, text->length);
    if (regex_replace(step->regex, scratch, (TextSpan){text->data, text->length},
                      (TextSpan){step->to.text, step->to.length}, &out, REPLACED_MAX))
        text_set(text, out.data, out.length);
    text_free(&out);
}

static void step_apply(const DecodeStep *step, RegexScratch *scratch, Text *text,
                       bool first) {
    static const Token SPACE = {" ", 1}, NOTHING = {"", 0};
    switch (step->kind) {
    case DECODE_REPLACE: replace_matches(step, scratch, text); break;
    case DECODE_BYTE_FALLBACK: take_byte(text); break;
    case DECODE_BYTE_LEVEL: take_bytes(text); break;
    case DECODE_METASPACE:
        replace_all(text, &step->from, first && step->strip ? &NOTHING : &SPACE);
        break;
    case DECODE_WORDPIECE: join_word(step, text, first); break;
    case DECODE_SPACED:
        if (!first) space_in_front(text);
        break;
    }
}

/* --- bytes to characters --- */

/* Writes complete characters, without those to be taken off the start. */
static void emit(Detokenizer *self, Text *out, const char *text, size_t length) {
    const DecodeRules *rules = &self->tokenizer->decode;
    const Token *strip = &rules->strip;
    while (length > 0 && self->stripped < rules->most) {
        if (length < strip->length || memcmp(text, strip->text, strip->length) != 0) {
            self->stripped = rules->most;
            break;
        }
        self->stripped++;
        text += strip->length;
        length -= strip->length;
    }
    if (length > 0) text_bytes(out, text, length);
}

/* Writes what is complete of the bytes, with U+FFFD for what never will be, and holds the
 * rest back. */
static void emit_bytes(Detokenizer *self, Text *out, const char *text, size_t length) {
    while (length > 0) {
        bool open;
        size_t valid = utf8_check(text, length);
        emit(self, out, text, valid);
        text += valid;
        length -= valid;
        if (length == 0) break;
        size_t start = utf8_start(text, length, &open);
        if (open) {
            memcpy(self->held, text, start);
            self->held_length = start;
            break;
        }
        emit(self, out, REPLACEMENT, strlen(REPLACEMENT));
        text += start;
        length -= start;
    }
}

/* --- tokens --- */

void detokenizer_start(Detokenizer *self, const Tokenizer *tokenizer,
                       bool skip_specials) {
    detokenizer_free(self);
    self->tokenizer = tokenizer;
    self->skip_specials = skip_specials;
}

Status detokenizer_add(Detokenizer *self, Text *out, int32_t id, Loc at, Diag *diag) {
    const Tokenizer *tokenizer = self->tokenizer;
    const DecodeRules *rules = &tokenizer->decode;
    Text *text = &self->token;
    if (id < 0 || id >= tokenizer_size(tokenizer))
        return diag_fail(diag, STATUS_FORMAT, at, NULL,
                         "expected a token from 0 to %d, found %d",
                         tokenizer_size(tokenizer) - 1, id);
    if (self->skip_specials && tokenizer->special[id]) return STATUS_OK;
    const Token *token = &tokenizer->vocabulary.tokens[id];
    text_set(text, token->text, token->length);
    if (!self->regex) self->regex = memory_alloc(1, sizeof *self->regex);
    for (int i = 0; i < rules->count; i++)
        step_apply(&rules->steps[i], self->regex, text, self->tokens == 0);
    self->tokens++;
    const size_t held = self->held_length, length = text->length;
    if (held > 0) { /* the bytes that were held back come first */
        text_bytes(text, self->held, held);
        memmove(text->data + held, text->data, length);
        memcpy(text->data, self->held, held);
        self->held_length = 0;
    }
    emit_bytes(self, out, text->data, text->length);
    return STATUS_OK;
}

void detokenizer_finish(Detokenizer *self, Text *out) {
    if (self->held_length > 0) emit(self, out, REPLACEMENT, strlen(REPLACEMENT));
    self->held_length = 0;
}

void detokenizer_free(Detokenizer *self) {
    text_free(&self->token);
    if (self->regex) regex_scratch_free(self->regex);
    free(self->regex);
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
