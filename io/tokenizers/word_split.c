/* Word split: see word_split.h. */
#include "io/tokenizers/word_split.h"

#include "io/tokenizers/unicode.h"

typedef enum CharClass {
    CLASS_SPACE,
    CLASS_SOLID,  /* all but space */
    CLASS_NUMBER, /* \p{N} */
    CLASS_POINT,  /* what joins numbers */
    CLASS_PART,   /* of a word: letters, digits, accents */
    CLASS_JOINT,  /* what joins parts */
    CLASS_SINGLE, /* a word of its own: punctuation, and symbols of ASCII */
    CLASS_PLAIN   /* neither space nor such a word */
} CharClass;

static bool is_of(CharClass class, uint32_t c) {
    const bool single = (c > ' ' && c < '0') || (c > '9' && c < 'A') ||
                        (c > 'Z' && c < 'a') || (c > 'z' && c < 0x7f);
    switch (class) {
    case CLASS_SPACE: return char_is_space(c);
    case CLASS_SOLID: return !char_is_space(c);
    case CLASS_NUMBER: return char_is_number(c);
    case CLASS_POINT: return c == '.' || c == ',';
    case CLASS_PART:
        return char_is_letter(c) || char_is_number(c) || char_is_nonspacing(c);
    case CLASS_JOINT: return c == '\'' || c == '-' || c == 0x2019;
    case CLASS_SINGLE: return single || char_is_punctuation(c);
    case CLASS_PLAIN: break;
    }
    return !char_is_space(c) && !single && !char_is_punctuation(c);
}

/* End of the characters of a class from `i` on. */
static size_t run_end(const char *text, size_t length, size_t i, CharClass class) {
    for (size_t bytes; i < length && is_of(class, utf8_decode(text + i, &bytes));)
        i += bytes;
    return i;
}

/* End of a run, and of further runs after one character each that joins them. */
static size_t joined_end(const char *text, size_t length, size_t i, CharClass class,
                         CharClass joins) {
    size_t end = run_end(text, length, i, class);
    while (end > i && end < length) {
        size_t bytes;
        if (!is_of(joins, utf8_decode(text + end, &bytes))) break;
        const size_t next = run_end(text, length, end + bytes, class);
        if (next == end + bytes) break;
        end = next;
    }
    return end;
}

/* End of the match of WORDS_REGEX at `i`, where no white space stands. */
static size_t match_end(const char *text, size_t length, size_t i) {
    size_t bytes;
    const size_t digits = run_end(text, length, i, CLASS_NUMBER);
    const size_t number = joined_end(text, length, i, CLASS_NUMBER, CLASS_POINT);
    if (number > digits) return number;
    const size_t word = joined_end(text, length, i, CLASS_PART, CLASS_JOINT);
    utf8_decode(text + i, &bytes);
    return word > i ? word : i + bytes;
}

static size_t word_end(WordSplit split, const char *text, size_t length, size_t i) {
    size_t bytes;
    switch (split) {
    case SPLIT_SPACES: return run_end(text, length, i, CLASS_SOLID);
    case SPLIT_PUNCTUATION:
        if (is_of(CLASS_SINGLE, utf8_decode(text + i, &bytes))) return i + bytes;
        return run_end(text, length, i, CLASS_PLAIN);
    case SPLIT_WORDS: break;
    }
    return match_end(text, length, i);
}

bool word_next(WordSplit split, const char *text, size_t length, size_t *begin,
               size_t *end) {
    *begin = run_end(text, length, *begin, CLASS_SPACE);
    if (*begin == length) return false;
    *end = word_end(split, text, length, *begin);
    return true;
}
