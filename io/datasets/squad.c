/* SQuAD's comparison of answers: see squad.h. */
#include "io/datasets/squad.h"

#include "io/tokenizers/unicode.h"
#include "ir/arena.h"

#include <stdlib.h>
#include <string.h>

static bool is_ascii_punctuation(char c) {
    return c && strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", c);
}

/* Lower case, ASCII punctuation left out. */
static void reduce(Text *out, TextSpan answer) {
    Text lower = {0};
    utf8_lower(&lower, answer.text, answer.length);
    for (size_t i = 0; i < lower.length; i++)
        if (!is_ascii_punctuation(lower.data[i])) text_bytes(out, lower.data + i, 1);
    text_free(&lower);
}

/* Whether a run of letters and digits is an article. */
static bool is_article(const char *run, size_t length) {
    return (length == 1 && run[0] == 'a') || (length == 2 && memcmp(run, "an", 2) == 0) ||
           (length == 3 && memcmp(run, "the", 3) == 0);
}

/* Appends a piece of white space, a run of letters and digits, or another character;
 * `gap` is whether white space stood before it. */
static void add_piece(Text *out, const char *piece, size_t length, bool *gap,
                      size_t start) {
    if (*gap && out->length > start) text_bytes(out, " ", 1);
    *gap = false;
    text_bytes(out, piece, length);
}

static bool is_run(uint32_t c) {
    return char_is_letter(c) || char_is_number(c);
}

void squad_normalize(Text *out, TextSpan answer) {
    Text text = {0};
    const size_t start = out->length;
    bool gap = false;
    reduce(&text, answer);
    for (size_t i = 0, bytes, end; i < text.length; i = end) {
        const uint32_t c = utf8_decode(text.data + i, &bytes);
        end = i + bytes;
        while (is_run(c) && end < text.length &&
               is_run(utf8_decode(text.data + end, &bytes)))
            end += bytes;
        if (char_is_space(c) || (is_run(c) && is_article(text.data + i, end - i)))
            gap = true;
        else
            add_piece(out, text.data + i, end - i, &gap, start);
    }
    text_free(&text);
}

/* The words of a normalized answer, sorted; the caller frees the list. */
static const char **words_of(Text *text, size_t *count) {
    const char **words = memory_alloc(text->length / 2 + 1, sizeof *words);
    *count = 0;
    for (size_t i = 0; i < text->length; i++) {
        if (i == 0 || text->data[i - 1] == 0) words[(*count)++] = text->data + i;
        if (text->data[i] == ' ') text->data[i] = 0;
    }
    qsort(words, *count, sizeof *words, text_order);
    return words;
}

static size_t count_common(const char **a, size_t a_count, const char **b,
                           size_t b_count) {
    size_t common = 0;
    for (size_t i = 0, j = 0; i < a_count && j < b_count;) {
        const int order = strcmp(a[i], b[j]);
        common += order == 0;
        i += order <= 0;
        j += order >= 0;
    }
    return common;
}

void squad_compare(TextSpan answer, TextSpan right, double *exact, double *f1) {
    Text text[2] = {{0}};
    size_t count[2];
    squad_normalize(&text[0], answer);
    squad_normalize(&text[1], right);
    *exact =
        text[0].length == text[1].length &&
        (text[0].length == 0 || memcmp(text[0].data, text[1].data, text[0].length) == 0);
    const char **words[2];
    for (int k = 0; k < 2; k++) words[k] = words_of(&text[k], &count[k]);
    const double common = (double)count_common(words[0], count[0], words[1], count[1]);
    *f1 = count[0] == 0 || count[1] == 0 ? count[0] == count[1]
                                         : 2 * common / (double)(count[0] + count[1]);
    for (int k = 0; k < 2; k++) {
        free(words[k]);
        text_free(&text[k]);
    }
}
