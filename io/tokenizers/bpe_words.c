/* BPE words: the matcher. */
#include "io/tokenizers/bpe_words.h"

#include "io/tokenizers/unicode.h"

#include <string.h>

const WordPattern PATTERN_GPT2 = {.digits = INT_MAX};

static const WordPattern LLAMA3 = {true, true, true, 3, true, true};
static const WordPattern QWEN2 = {true, true, true, 1, true, true};

#define NEWER_REGEX(digits)                                                              \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                 \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const WordPattern *word_pattern(const char *regex) {
    static const struct {
        const char *regex;
        const WordPattern *pattern;
    } KNOWN[] = {
        {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
         "\\s+(?!\\S)|\\s+",
         &PATTERN_GPT2},
        {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
         "\\s+(?!\\S)|\\s+",
         &PATTERN_GPT2},
        {NEWER_REGEX("\\p{N}{1,3}"), &LLAMA3},
        {NEWER_REGEX("\\p{N}"), &QWEN2},
    };
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (strcmp(regex, KNOWN[i].regex) == 0) return KNOWN[i].pattern;
    return NULL;
}

/* --- characters --- */

/* END is what follows the text. */
typedef enum Kind { LETTER, NUMBER, SPACE, OTHER, END } Kind;

typedef struct Here {
    const char *text;
    size_t length;
} Here;

/* The character at an offset. */
typedef struct Char {
    uint32_t c;
    Kind kind;
    size_t bytes; /* 0 at the end */
} Char;

static Kind kind_of(uint32_t c) {
    if (char_is_letter(c)) return LETTER;
    if (char_is_number(c)) return NUMBER;
    return char_is_space(c) ? SPACE : OTHER;
}

static Char char_at(const Here *here, size_t i) {
    Char at = {.kind = END};
    if (i >= here->length) return at;
    at.c = utf8_decode(here->text + i, &at.bytes);
    at.kind = kind_of(at.c);
    return at;
}

static bool is_break(uint32_t c) {
    return c == '\r' || c == '\n';
}

/* End of the characters of one kind from `i` on, at most `most` of them. */
static size_t run_end(const Here *here, size_t i, Kind kind, int most) {
    for (; most > 0; most--) {
        Char at = char_at(here, i);
        if (at.kind != kind) break;
        i += at.bytes;
    }
    return i;
}

/* --- the alternatives: each returns how far it matches, 0 = not --- */

/* Lower case of what may follow an apostrophe. */
static uint32_t suffix_letter(const WordPattern *pattern, uint32_t c) {
    if (!pattern->any_case) return c;
    if (c == 0x17f) return 's'; /* the long s is an s when case does not count */
    return c < 0x80 && char_is_letter(c) ? c | 0x20 : c;
}

/* English endings: 's, 't ... */
static size_t match_ending(const WordPattern *pattern, const Here *here) {
    if (here->text[0] != '\'') return 0;
    Char first = char_at(here, 1), second = char_at(here, 1 + first.bytes);
    uint32_t a = suffix_letter(pattern, first.c), b = suffix_letter(pattern, second.c);
    if (first.kind == END) return 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 1 + first.bytes;
    bool two = (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l');
    return two ? 1 + first.bytes + second.bytes : 0;
}

static size_t match_letters(const WordPattern *pattern, const Here *here, Char first) {
    bool before = pattern->any_before
                      ? (first.kind == SPACE || first.kind == OTHER) && !is_break(first.c)
                      : first.c == ' ';
    size_t start = before ? first.bytes : 0;
    size_t end = run_end(here, start, LETTER, INT_MAX);
    return end > start ? end : 0;
}

static size_t match_digits(const WordPattern *pattern, const Here *here, Char first) {
    size_t start = first.c == ' ' && !pattern->digits_alone ? 1 : 0;
    size_t end = run_end(here, start, NUMBER, pattern->digits);
    return end > start ? end : 0;
}

static size_t match_others(const WordPattern *pattern, const Here *here, Char first) {
    size_t start = first.c == ' ' ? 1 : 0;
    size_t end = run_end(here, start, OTHER, INT_MAX);
    if (end == start) return 0;
    while (pattern->breaks_behind && end < here->length &&
           is_break((uint32_t)here->text[end]))
        end++;
    return end;
}

static size_t match_space(const WordPattern *pattern, const Here *here) {
    size_t end = run_end(here, 0, SPACE, INT_MAX), last = end;
    if (pattern->breaks_are_end) {
        while (last > 0 && !is_break((uint32_t)here->text[last - 1])) last--;
        if (last > 0) return last;
    }
    if (end == here->length) return end;
    last = utf8_before(here->text, end);
    return last > 0 ? last : end;
}

size_t word_match(const WordPattern *pattern, const char *text, size_t length) {
    const Here here = {text, length};
    const Char first = char_at(&here, 0);
    size_t end = match_ending(pattern, &here);
    if (end == 0) end = match_letters(pattern, &here, first);
    if (end == 0) end = match_digits(pattern, &here, first);
    if (end == 0) end = match_others(pattern, &here, first);
    return end > 0 ? end : match_space(pattern, &here);
}
