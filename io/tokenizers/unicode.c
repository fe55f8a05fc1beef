/* Unicode: UTF-8 by hand, properties through libutf8proc. */
#include "io/tokenizers/unicode.h"

#include "io/files/text_start.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* --- UTF-8 --- */

/* Bytes of the valid character at `p`, 0 when there is none. */
static size_t sequence_length(const unsigned char *p, size_t left) {
    unsigned char c = p[0];
    if (c < 0x80) return 1;
    if (c < 0xc2 || c > 0xf4) return 0;
    size_t bytes = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (left < bytes) return 0;
    for (size_t i = 1; i < bytes; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    bool overlong = (c == 0xe0 && p[1] < 0xa0) || (c == 0xf0 && p[1] < 0x90);
    bool outside = (c == 0xed && p[1] > 0x9f) || (c == 0xf4 && p[1] > 0x8f);
    return overlong || outside ? 0 : bytes;
}

/* Whether 8 bytes are all ASCII. */
static bool eight_ascii(const unsigned char *p) {
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return !(word & 0x8080808080808080u);
}

size_t utf8_check(const char *text, size_t length) {
    const unsigned char *p = (const unsigned char *)text;
    for (size_t i = 0; i < length;) {
        if (length - i >= 8 && eight_ascii(p + i)) {
            i += 8;
            continue;
        }
        size_t bytes = sequence_length(p + i, length - i);
        if (bytes == 0) return i;
        i += bytes;
    }
    return length;
}

size_t utf8_start(const char *text, size_t length, bool *open) {
    const unsigned char *p = (const unsigned char *)text, c = p[0];
    size_t bytes = c < 0xc2 || c > 0xf4 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4, n = 1;
    unsigned char least = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    unsigned char most = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    while (n < bytes && n < length && p[n] >= least && p[n] <= most) {
        n++;
        least = 0x80;
        most = 0xbf;
    }
    *open = n == length && n < bytes;
    return n;
}

size_t utf8_count(const char *text, size_t length) {
    size_t count = 0;
    for (size_t i = 0; i < length; i++) count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

Loc utf8_locate(const char *file, const char *text, size_t offset) {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < offset; i++) {
        if (text[i] == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)text[i] & 0xc0) != 0x80) {
            column++;
        }
    }
    if (line > INT_MAX || column > INT_MAX) return LOC_FILE(file);
    return (Loc){file, (int)line, (int)column};
}

Status utf8_check_file(const char *file, const char *text, size_t length, Diag *diag) {
    const char *nul = memchr(text, 0, length);
    size_t valid = utf8_check(text, nul ? (size_t)(nul - text) : length);
    if (valid == length) return STATUS_OK;
    TRY(text_start_check(file, text, length, diag));
    Loc at = utf8_locate(file, text, valid);
    if (text + valid == nul)
        diag_fail(diag, STATUS_FORMAT, at, NULL, "expected text, found a NUL byte");
    else
        diag_fail(diag, STATUS_FORMAT, at, NULL, "invalid UTF-8, byte 0x%02x",
                  (unsigned char)text[valid]);
    diag_hint(diag, "convert the file to UTF-8");
    return STATUS_FORMAT;
}

uint32_t utf8_decode(const char *text, size_t *bytes) {
    const unsigned char *p = (const unsigned char *)text;
    *bytes = p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    switch (*bytes) {
    case 1: return p[0];
    case 2: return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    case 3: return (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    default:
        return (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 |
               (p[3] & 0x3fu);
    }
}

size_t utf8_before(const char *text, size_t end) {
    do end--;
    while (((unsigned char)text[end] & 0xc0) == 0x80);
    return end;
}

size_t utf8_encode(char *out, uint32_t c) {
    size_t bytes = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char LEAD[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = bytes - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(LEAD[bytes] | c);
    return bytes;
}

size_t utf8_mark_length(const char *text, size_t length) {
    return length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

size_t utf8_cluster(const char *text, size_t length) {
    utf8proc_int32_t state = 0;
    size_t end, bytes;
    /* of ASCII only a line's CR LF is a cluster of two */
    if (length > 1 && ((text[0] | text[1]) & 0x80) == 0 && text[0] != '\r') return 1;
    uint32_t before = utf8_decode(text, &end);
    for (; end < length; end += bytes) {
        const uint32_t c = utf8_decode(text + end, &bytes);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)before,
                                             (utf8proc_int32_t)c, &state))
            break;
        before = c;
    }
    return end;
}

/* --- properties --- */

bool char_is_space(uint32_t c) {
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return c == 0x85 ||
           (category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP);
}

bool char_is_letter(uint32_t c) {
    if (c < 0x80) return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool char_is_number(uint32_t c) {
    if (c < 0x80) return c >= '0' && c <= '9';
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool char_is_control(uint32_t c) {
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO: return true;
    default: return false;
    }
}

bool char_is_punctuation(uint32_t c) {
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool char_is_nonspacing(uint32_t c) {
    return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_MN;
}

bool char_is_mark(uint32_t c) {
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

/* Symbols that count as letters: circled and squared ones. */
static bool is_letter_symbol(uint32_t c) {
    return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
           (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189);
}

bool char_is_word(uint32_t c) {
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NL) return true;
    bool joiner = c == 0x200c || c == 0x200d;
    return category == UTF8PROC_CATEGORY_PC || joiner || is_letter_symbol(c);
}

bool char_is_cased(uint32_t c) {
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LT) return true;
    bool roman = c >= 0x2160 && c <= 0x217f, ordinal = c == 0xaa || c == 0xba;
    return roman || ordinal || is_letter_symbol(c);
}

bool char_is_case_ignorable(uint32_t c) {
    /* Word_Break = MidLetter, MidNumLet or Single_Quote */
    static const uint16_t WITHIN_WORDS[] = {
        '\'',   '.',    ':',    0xb7,   0x387,  0x55f,  0x5f4,  0x2018, 0x2019,
        0x2024, 0x2027, 0xfe13, 0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a};
    for (size_t i = 0; i < sizeof WITHIN_WORDS / sizeof *WITHIN_WORDS; i++)
        if (c == WITHIN_WORDS[i]) return true;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return false;
    }
}

int char_lower(uint32_t c, uint32_t out[2]) {
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
    if (c != 0x130) return 1;
    out[0] = 'i'; /* capital I with a dot: the one that takes two characters */
    out[1] = 0x307;
    return 2;
}

void utf8_lower(Text *out, const char *text, size_t length) {
    char encoded[UTF8_MAX];
    for (size_t at = 0, bytes; at < length; at += bytes) {
        uint32_t lower[2];
        const int count = char_lower(utf8_decode(text + at, &bytes), lower);
        for (int i = 0; i < count; i++)
            text_bytes(out, encoded, utf8_encode(encoded, lower[i]));
    }
}

int char_decompose(uint32_t c, uint32_t out[DECOMPOSED_MAX]) {
    utf8proc_int32_t parts[DECOMPOSED_MAX];
    int boundary = 0;
    utf8proc_ssize_t count = utf8proc_decompose_char(
        (utf8proc_int32_t)c, parts, DECOMPOSED_MAX, UTF8PROC_DECOMPOSE, &boundary);
    if (count < 1 || count > DECOMPOSED_MAX) {
        out[0] = c;
        return 1;
    }
    for (utf8proc_ssize_t i = 0; i < count; i++) out[i] = (uint32_t)parts[i];
    return (int)count;
}

int char_combining(uint32_t c) {
    return utf8proc_get_property((utf8proc_int32_t)c)->combining_class;
}

void utf8_normalize(Text *out, NormalForm form, const char *text, size_t length) {
    static const utf8proc_option_t OPTIONS[] = {
        [NORMAL_NFC] = UTF8PROC_COMPOSE,
        [NORMAL_NFD] = UTF8PROC_DECOMPOSE,
        [NORMAL_NFKC] = UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
        [NORMAL_NFKD] = UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
    };
    utf8proc_uint8_t *mapped = NULL;
    utf8proc_ssize_t count =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)length, &mapped,
                     OPTIONS[form] | UTF8PROC_STABLE);
    if (count > 0) text_bytes(out, (const char *)mapped, (size_t)count);
    free(mapped);
}
