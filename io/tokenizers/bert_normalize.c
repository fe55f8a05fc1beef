/* BERT's normalizer: ASCII goes through a table; other characters one by one
 * through cleaning, spacing, decomposition and lower case.
 *
 * Canonical order: characters of a combining class above 0 wait in a MarkRun until one of
 * class 0 comes, and are then sorted by class. Nonspacing marks are dropped instead;
 * those of class 0 end a run all the same. */
#include "io/tokenizers/bert_normalize.h"

#include "io/tokenizers/unicode.h"
#include "ir/arena.h"

#include <stdlib.h>

enum { DROP = 0x80, ROOM = 96, SIGMA = 0x3a3, FINAL_SIGMA = 0x3c2 };

typedef struct BertWriter {
    const BertRules *rules;
    const char *text;
    size_t length;
    Text *out;
    MarkRun *marks;
    uint8_t ascii[0x80]; /* what a byte becomes, or DROP */
} BertWriter;

static void ascii_fill(BertWriter *self) {
    bool clean = self->rules->clean_text;
    for (int c = 0; c < 0x80; c++) {
        self->ascii[c] = (uint8_t)c;
        if (self->rules->lowercase && c >= 'A' && c <= 'Z')
            self->ascii[c] = (uint8_t)(c - 'A' + 'a');
        if (clean && (c < ' ' || c == 0x7f)) self->ascii[c] = DROP;
        if (clean && (c == '\t' || c == '\n' || c == '\r')) self->ascii[c] = ' ';
    }
}

/* Makes room for `bytes` more, plus ROOM for what one character may become. */
static inline void out_reserve(Text *out, size_t bytes) {
    if (out->capacity - out->length >= bytes + ROOM) return;
    out->capacity = out->length + bytes + bytes / 2 + 2 * ROOM;
    out->data = memory_grow(out->data, out->capacity, 1);
}

/* --- the last steps: lower case, writing --- */

/* There is room: ROOM is more than what DECOMPOSED_MAX characters take. */
static void emit(BertWriter *self, uint32_t c) {
    uint32_t lower[2] = {c};
    int count = self->rules->lowercase ? char_lower(c, lower) : 1;
    for (int i = 0; i < count; i++)
        self->out->length += utf8_encode(self->out->data + self->out->length, lower[i]);
}

/* --- canonical order --- */

static int mark_compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sorts and writes the characters that wait. */
static void marks_flush(BertWriter *self) {
    MarkRun *marks = self->marks;
    if (marks->count == 0) return;
    if (marks->count > 1)
        qsort(marks->items, marks->count, sizeof *marks->items, mark_compare);
    for (size_t i = 0; i < marks->count; i++) {
        out_reserve(self->out, 0);
        emit(self, (uint32_t)(marks->items[i] & 0x1fffff));
    }
    marks->count = 0;
    out_reserve(self->out, 0);
}

/* Lets a character wait: class, position and character in one number, to sort by. */
static void marks_add(MarkRun *marks, uint32_t c, int class) {
    if (marks->count == marks->capacity) {
        marks->capacity = marks->capacity ? 2 * marks->capacity : 16;
        marks->items = memory_grow(marks->items, marks->capacity, sizeof *marks->items);
    }
    uint64_t position = marks->count & 0x7ffffffffu;
    marks->items[marks->count++] = (uint64_t) class << 56 | position << 21 | c;
}

/* --- characters beyond ASCII --- */

static void strip(BertWriter *self, uint32_t c) {
    uint32_t parts[DECOMPOSED_MAX];
    int count = char_decompose(c, parts);
    for (int i = 0; i < count; i++) {
        int class = char_combining(parts[i]);
        if (class == 0) marks_flush(self);
        if (char_is_nonspacing(parts[i])) continue;
        if (class == 0)
            emit(self, parts[i]);
        else
            marks_add(self->marks, parts[i], class);
    }
}

/* The blocks that BERT puts spaces around; Hugging Face's bounds, which leave out
 * U+2B820 to U+2B91F. */
static bool is_chinese(uint32_t c) {
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b73f) ||
           (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

/* Whether cleaning drops a character. */
static bool is_dropped(const BertWriter *self, uint32_t c) {
    if (c < 0x80) return self->ascii[c] == DROP;
    return self->rules->clean_text && (c == 0xfffd || char_is_control(c));
}

/* Whether a capital sigma between `begin` and `end` ends a word: a letter with case
 * before it and none after it, seen across what Case_Ignorable names. */
static bool is_final(const BertWriter *self, size_t begin, size_t end) {
    uint32_t c = 0;
    size_t bytes;
    while (begin > 0) {
        begin = utf8_before(self->text, begin);
        c = utf8_decode(self->text + begin, &bytes);
        if (!is_dropped(self, c) && !char_is_case_ignorable(c)) break;
    }
    if (!char_is_cased(c)) return false;
    for (c = 0; end < self->length; end += bytes) {
        c = utf8_decode(self->text + end, &bytes);
        if (!is_dropped(self, c) && !char_is_case_ignorable(c)) break;
    }
    return !char_is_cased(c);
}

/* Takes in the character at `place`, beyond ASCII; returns its length. */
static size_t normalize_wide(BertWriter *self, size_t place) {
    const BertRules *rules = self->rules;
    size_t bytes;
    uint32_t c = utf8_decode(self->text + place, &bytes);
    if (is_dropped(self, c)) return bytes;
    if (rules->clean_text && char_is_space(c)) c = ' ';
    if (c == SIGMA && rules->lowercase && is_final(self, place, place + bytes))
        c = FINAL_SIGMA;
    bool chinese = rules->space_chinese && is_chinese(c);
    if (c == ' ' || chinese) {
        marks_flush(self);
        self->out->data[self->out->length++] = ' ';
    }
    if (c != ' ' && rules->strip_accents) strip(self, c);
    if (c != ' ' && !rules->strip_accents) emit(self, c);
    if (!chinese) return bytes;
    marks_flush(self);
    self->out->data[self->out->length++] = ' ';
    return bytes;
}

/* Copies a run of ASCII; returns its length. */
static size_t normalize_ascii(BertWriter *self, const char *text, size_t length) {
    char *out = self->out->data + self->out->length;
    size_t i = 0;
    for (; i < length && (unsigned char)text[i] < 0x80; i++) {
        uint8_t c = self->ascii[(unsigned char)text[i]];
        *out = (char)c;
        out += c != DROP;
    }
    self->out->length = (size_t)(out - self->out->data);
    return i;
}

void bert_normalize(const BertRules *rules, Text *out, MarkRun *marks, const char *text,
                    size_t length) {
    BertWriter self = {
        .rules = rules, .text = text, .length = length, .out = out, .marks = marks};
    ascii_fill(&self);
    out->length = 0;
    for (size_t i = 0, bytes; i < length; i += bytes) {
        out_reserve(out, length - i);
        unsigned char c = (unsigned char)text[i];
        if (c < 0x80 && self.ascii[c] == DROP) {
            bytes = 1;
        } else if (c < 0x80) {
            marks_flush(&self);
            out_reserve(out, length - i);
            bytes = normalize_ascii(&self, text + i, length - i);
        } else {
            bytes = normalize_wide(&self, i);
        }
    }
    out_reserve(out, 0);
    marks_flush(&self);
}
