/* Text made safe for HTML, SVG, Markdown and CSV: see markup.h. */
#include "session/page/markup.h"

#include <stdint.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"
#define ELLIPSIS    "\xe2\x80\xa6"

/* Code point of a well-formed character of `length` bytes. */
static uint32_t code_point(const char *at, int length) {
    static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t code = (unsigned char)at[0] & masks[length];
    for (int i = 1; i < length; i++) code = code << 6 | ((unsigned char)at[i] & 0x3f);
    return code;
}

/* Whether a character may stand in a page as it is. */
static bool is_plain(uint32_t code) {
    if (code < 0x20) return code == '\t' || code == '\n';
    if (code >= 0x7f && code < 0xa0) return false;
    if (code == 0x200e || code == 0x200f || code == 0x061c) return false;
    if (code >= 0x2028 && code <= 0x202e) return false;
    return !(code >= 0x2066 && code <= 0x2069) && (code & 0xfffe) != 0xfffe;
}

/* Next character of a string that is not at its end, or what stands for it. */
static TextSpan next_character(const char **at) {
    const int length = utf8_bytes(*at);
    const TextSpan own = {*at, (size_t)length};
    *at += length > 0 ? length : 1;
    if (length > 0 && is_plain(code_point(own.text, length))) return own;
    return (TextSpan){REPLACEMENT, strlen(REPLACEMENT)};
}

static const char *html_entity(char c) {
    switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

int markup_length(const char *string) {
    int count = 0;
    for (; *string; count++) next_character(&string);
    return count;
}

void markup_clip(Text *text, const char *string, int most) {
    const int length = markup_length(string);
    for (int i = 0; *string; i++) {
        if (i == most - 1 && length > most) {
            text_add(text, ELLIPSIS);
            return;
        }
        const TextSpan span = next_character(&string);
        const char *entity = html_entity(*span.text);
        if (entity)
            text_add(text, "%s", entity);
        else
            text_bytes(text, span.text, span.length);
    }
}

void markup_text(Text *text, const char *string) {
    markup_clip(text, string, INT32_MAX);
}

void markup_code(Text *text, const char *string, int most) {
    const int length = markup_length(string);
    if (length == 0) return;
    text_add(text, "`");
    for (int i = 0; *string; i++) {
        if (i == most - 1 && length > most) {
            text_add(text, ELLIPSIS);
            break;
        }
        const TextSpan span = next_character(&string);
        if (*span.text == '`')
            text_add(text, "'");
        else if (*span.text == '|')
            text_add(text, "\\|");
        else if (*span.text == '\n' || *span.text == '\t')
            text_add(text, " ");
        else
            text_bytes(text, span.text, span.length);
    }
    text_add(text, "`");
}

void markup_field(Text *text, const char *string) {
    const bool formula = *string && strchr("=+-@\t\r", *string);
    const bool quoted = strpbrk(string, ",\"\r\n") != NULL;
    if (quoted) text_add(text, "\"");
    if (formula) text_add(text, "'");
    while (*string) {
        const TextSpan span = next_character(&string);
        if (*span.text == '"') text_add(text, "\"");
        text_bytes(text, span.text, span.length);
    }
    if (quoted) text_add(text, "\"");
}

void markup_quoted(Text *text, const char *string, int most) {
    const int length = markup_length(string);
    text_add(text, "\"");
    for (int i = 0; *string; i++) {
        if (i == most - 1 && length > most) {
            text_add(text, ELLIPSIS);
            break;
        }
        const TextSpan span = next_character(&string);
        if (*span.text == '\n') {
            text_add(text, "\\n");
            continue;
        }
        if (*span.text == '"' || *span.text == '\\') text_add(text, "\\");
        text_bytes(text, span.text, span.length);
    }
    text_add(text, "\"");
}
