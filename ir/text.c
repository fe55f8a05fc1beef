/* Text: a growing string. */
#include "ir/text.h"

#include "ir/arena.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Makes room for `extra` bytes and the terminator. */
static void text_reserve(Text *text, size_t extra) {
    if (extra < text->capacity - text->length) return;
    size_t capacity = text->capacity > 0 ? text->capacity : 64;
    while (capacity - text->length <= extra) capacity += capacity / 2;
    text->data = memory_grow(text->data, capacity, 1);
    text->capacity = capacity;
}

void text_add_list(Text *text, const char *fmt, va_list args) {
    va_list again;
    va_copy(again, args);
    text_reserve(text, 0);
    size_t room = text->capacity - text->length;
    int length = vsnprintf(text->data + text->length, room, fmt, args);
    if (length < 0) {
        text->data[text->length] = 0;
    } else if ((size_t)length >= room) {
        text_reserve(text, (size_t)length);
        room = text->capacity - text->length;
        vsnprintf(text->data + text->length, room, fmt, again);
    }
    if (length > 0) text->length += (size_t)length;
    va_end(again);
}

void text_add(Text *text, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    text_add_list(text, fmt, args);
    va_end(args);
}

void text_bytes(Text *text, const char *bytes, size_t length) {
    text_reserve(text, length);
    if (length > 0) memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = 0;
}

bool text_ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), last = strlen(end);
    return length >= last && strcmp(text + length - last, end) == 0;
}

int utf8_bytes(const char *text) {
    static const unsigned LEAST[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *p = (const unsigned char *)text;
    if (*p < 0x80) return 1;
    int bytes = *p >= 0xf8 ? 0 : *p >= 0xf0 ? 4 : *p >= 0xe0 ? 3 : *p >= 0xc0 ? 2 : 0;
    unsigned code = *p & (0x7fu >> bytes);
    for (int i = 1; i < bytes; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (p[i] & 0x3f);
    }
    const bool surrogate = code >= 0xd800 && code < 0xe000;
    return code < LEAST[bytes] || code > 0x10ffff || surrogate ? 0 : bytes;
}

bool utf8_is_valid(const char *text) {
    int bytes = 1;
    while (*text && (bytes = utf8_bytes(text)) > 0) text += bytes;
    return bytes > 0;
}

/* Appends one character that needs an escape; bytes that are not UTF-8 become U+FFFD. */
static void text_escape(Text *text, unsigned char byte) {
    switch (byte) {
    case '"': text_bytes(text, "\\\"", 2); break;
    case '\\': text_bytes(text, "\\\\", 2); break;
    case '\n': text_bytes(text, "\\n", 2); break;
    case '\t': text_bytes(text, "\\t", 2); break;
    default: text_add(text, "\\u%04x", byte < 0x80 ? byte : 0xfffd);
    }
}

void text_quoted(Text *text, const char *string) {
    const unsigned char *p = (const unsigned char *)string;
    text_bytes(text, "\"", 1);
    while (*p) {
        size_t plain = 0;
        if (*p >= 0x80) {
            plain = (size_t)utf8_bytes((const char *)p);
        } else if (*p >= 0x20 && *p != '"' && *p != '\\' && *p != 0x7f) {
            plain = 1;
        }
        if (plain > 0) {
            text_bytes(text, (const char *)p, plain);
        } else {
            text_escape(text, *p);
        }
        p += plain > 0 ? plain : 1;
    }
    text_bytes(text, "\"", 1);
}

void text_real(Text *text, double value) {
    if (isnan(value)) {
        text_bytes(text, "nan", 3);
        return;
    }
    /* Any decimal of up to 15 digits survives the way through a normal double, so %.15g
     * finds it if there is one; subnormals may need fewer. */
    int digits = fpclassify(value) == FP_SUBNORMAL ? 1 : 15;
    char buffer[40];
    snprintf(buffer, sizeof buffer, "%.*g", digits, value);
    while (digits < 17 && strtod(buffer, NULL) != value) {
        snprintf(buffer, sizeof buffer, "%.*g", ++digits, value);
    }
    text_add(text, "%s%s", buffer, strpbrk(buffer, ".ein") ? "" : ".0");
}

void text_free(Text *text) {
    free(text->data);
    *text = (Text){0};
}

int text_order(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}
