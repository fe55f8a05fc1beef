/* Word split: see word_split.h. */
#include "io/tokenizers/word_split.h"

#include "io/tokenizers/unicode.h"

/* End of the characters from `i` on that `is` holds for. */
static size_t run_end(const char *text, size_t length, size_t i, bool (*is)(uint32_t c)) {
    for (size_t bytes; i < length && is(utf8_decode(text + i, &bytes));) i += bytes;
    return i;
}

static bool is_part(uint32_t c) {
    return char_is_letter(c) || char_is_number(c) || char_is_nonspacing(c);
}

static bool is_solid(uint32_t c) {
    return !char_is_space(c);
}

static bool is_single(uint32_t c) {
    const bool symbol = (c > ' ' && c < '0') || (c > '9' && c < 'A') ||
                        (c > 'Z' && c < 'a') || (c > 'z' && c < 0x7f);
    return symbol || char_is_punctuation(c);
}

static bool is_plain(uint32_t c) {
    return is_solid(c) && !is_single(c);
}

static bool is_point(uint32_t c) {
    return c == '.' || c == ',';
}

static bool is_joint(uint32_t c) {
    return c == '\'' || c == '-' || c == 0x2019;
}

/* End of a run, and of further runs after one character each that joins them. */
static size_t joined_end(const char *text, size_t length, size_t i,
                         bool (*is)(uint32_t c), bool (*joins)(uint32_t c)) {
    size_t end = run_end(text, length, i, is);
    while (end > i && end < length) {
        size_t bytes;
        if (!joins(utf8_decode(text + end, &bytes))) break;
        const size_t next = run_end(text, length, end + bytes, is);
        if (next == end + bytes) break;
        end = next;
    }
    return end;
}

/* End of the match of WORDS_REGEX at `i`, where no white space stands. */
static size_t match_end(const char *text, size_t length, size_t i) {
    size_t bytes;
    const size_t digits = run_end(text, length, i, char_is_number);
    const size_t number = joined_end(text, length, i, char_is_number, is_point);
    if (number > digits) return number;
    const size_t word = joined_end(text, length, i, is_part, is_joint);
    utf8_decode(text + i, &bytes);
    return word > i ? word : i + bytes;
}

static size_t word_end(WordSplit split, const char *text, size_t length, size_t i) {
    size_t bytes;
    switch (split) {
    case SPLIT_SPACES: return run_end(text, length, i, is_solid);
    case SPLIT_PUNCTUATION:
        if (is_single(utf8_decode(text + i, &bytes))) return i + bytes;
        return run_end(text, length, i, is_plain);
    case SPLIT_WORDS: break;
    }
    return match_end(text, length, i);
}

bool word_next(WordSplit split, const char *text, size_t length, size_t *begin,
               size_t *end) {
    *begin = run_end(text, length, *begin, char_is_space);
    if (*begin == length) return false;
    *end = word_end(split, text, length, *begin);
    return true;
}
