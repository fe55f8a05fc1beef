/* BLEU: see bleu.h. A sentence's tokens become numbers, its n-grams are sorted, and those
 * of translation and reference are counted side by side. */
#include "passes/evaluate/bleu.h"

#include "ir/arena.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* --- tokens --- */

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_point(char c) {
    return c == '.' || c == ',';
}

/* ASCII punctuation that always stands alone, space included. */
static bool is_alone(char c) {
    return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') ||
           (c >= '(' && c <= '+') || (c >= ':' && c <= '@') || c == '/';
}

/* Bytes of white space at the start of a text; 0 = none stands there. What Python's
 * split() takes as such. */
static size_t space_length(const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    if ((*c >= '\t' && *c <= '\r') || (*c >= 0x1c && *c <= ' ')) return 1;
    if (c[0] == 0xc2 && (c[1] == 0x85 || c[1] == 0xa0)) return 2;
    if (c[0] < 0xe1 || c[0] > 0xe3 || !c[1] || !c[2]) return 0;
    const unsigned code = (c[0] & 15u) << 12 | (c[1] & 63u) << 6 | (c[2] & 63u);
    const bool space = code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
                       code == 0x2028 || code == 0x2029 || code == 0x202f ||
                       code == 0x205f || code == 0x3000;
    return space ? 3 : 0;
}

static const char *replaced(const char *text, const char **with) {
    static const char *const FROM[] = {"<skipped>", "-\n",   "&quot;", "&amp;lt;",
                                       "&amp;gt;",  "&amp;", "&lt;",   "&gt;"};
    static const char *const TO[] = {"", "", "\"", "<", ">", "&", "<", ">"};
    for (size_t i = 0; i < sizeof FROM / sizeof *FROM; i++)
        if (strncmp(text, FROM[i], strlen(FROM[i])) == 0) {
            *with = TO[i];
            return text + strlen(FROM[i]);
        }
    return NULL;
}

/* The text with a space at both ends, entities replaced. */
static void text_prepare(Text *out, const char *text) {
    text_bytes(out, " ", 1);
    while (*text) {
        const char *with = NULL, *next = replaced(text, &with);
        if (next)
            text_bytes(out, with, strlen(with));
        else
            text_bytes(out, text, 1);
        text = next ? next : text + 1;
    }
    text_bytes(out, " ", 1);
}

/* One rule: where `first` and `second` match two bytes in a row, spaces go around the one
 * of them that is set apart. Matches do not overlap. */
typedef struct Rule {
    bool (*first)(char c), (*second)(char c);
    bool before, between, after; /* where spaces go */
} Rule;

static bool no_digit(char c) {
    return !is_digit(c);
}

static bool is_dash(char c) {
    return c == '-';
}

static const Rule RULES[] = {
    {no_digit, is_point, false, true, true},
    {is_point, no_digit, true, true, false},
    {is_digit, is_dash, false, true, true},
};

static void rule_apply(const Rule *rule, Text *out, const Text *in) {
    out->length = 0;
    for (size_t i = 0; i < in->length; i++) {
        const char *c = in->data + i;
        if (i + 1 == in->length || !rule->first(c[0]) || !rule->second(c[1])) {
            text_bytes(out, c, 1);
            continue;
        }
        if (rule->before) text_bytes(out, " ", 1);
        text_bytes(out, c, 1);
        if (rule->between) text_bytes(out, " ", 1);
        text_bytes(out, c + 1, 1);
        if (rule->after) text_bytes(out, " ", 1);
        i++;
    }
}

/* Spaces where 13a puts them; the result is in texts[0]. */
static void tokenize_13a(Text texts[2], const char *sentence) {
    enum { COUNT = sizeof RULES / sizeof *RULES };
    text_prepare(&texts[1], sentence);
    texts[0].length = 0;
    for (size_t i = 0; i < texts[1].length; i++) {
        const bool alone = is_alone(texts[1].data[i]);
        if (alone) text_bytes(&texts[0], " ", 1);
        text_bytes(&texts[0], texts[1].data + i, 1);
        if (alone) text_bytes(&texts[0], " ", 1);
    }
    for (int i = 0; i < COUNT; i++) {
        rule_apply(&RULES[i], &texts[1], &texts[0]);
        const Text swapped = texts[0];
        texts[0] = texts[1];
        texts[1] = swapped;
    }
}

static void join_words(Text *out, const char *text) {
    const size_t before = out->length;
    while (*text) {
        const size_t space = space_length(text);
        const char *begin = text += space;
        if (space) continue;
        while (*text && !space_length(text)) text++;
        if (out->length > before) text_bytes(out, " ", 1);
        text_bytes(out, begin, (size_t)(text - begin));
    }
}

void bleu_tokens(Text *out, BleuTokenize tokenize, const char *sentence) {
    Text texts[2] = {{0}};
    if (tokenize == BLEU_SPACES) {
        join_words(out, sentence);
        return;
    }
    tokenize_13a(texts, sentence);
    text_bytes(&texts[0], "", 1);
    join_words(out, texts[0].data);
    text_free(&texts[0]);
    text_free(&texts[1]);
}

/* --- counting --- */

typedef struct SentenceToken {
    const char *text;
    size_t length;
    int64_t place; /* in the translation, then in the reference */
} SentenceToken;

static int compare_token(const void *a, const void *b) {
    const SentenceToken *x = a, *y = b;
    const int order =
        memcmp(x->text, y->text, x->length < y->length ? x->length : y->length);
    if (order) return order;
    return (x->length > y->length) - (x->length < y->length);
}

/* Cuts at single spaces, writes from tokens[from] on, returns the number. */
static int64_t cut(SentenceToken *tokens, const Text *text, int64_t from) {
    int64_t count = 0;
    for (size_t i = 0; i < text->length; count++) {
        const char *begin = text->data + i;
        const char *space = memchr(begin, ' ', text->length - i);
        const size_t end = space ? (size_t)(space - text->data) : text->length;
        tokens[from + count] = (SentenceToken){begin, end - i, from + count};
        i = end + 1;
    }
    return count;
}

typedef struct NGram {
    int32_t token[BLEU_ORDERS]; /* -1 behind the last */
} NGram;

static int compare_gram(const void *a, const void *b) {
    const NGram *x = a, *y = b;
    for (int i = 0; i < BLEU_ORDERS; i++)
        if (x->token[i] != y->token[i]) return x->token[i] < y->token[i] ? -1 : 1;
    return 0;
}

/* The sorted n-grams of `count` tokens; returns their number. */
static int64_t list_grams(NGram *grams, const int32_t *tokens, int64_t count, int n) {
    const int64_t grams_count = count >= n ? count - n + 1 : 0;
    for (int64_t i = 0; i < grams_count; i++)
        for (int k = 0; k < BLEU_ORDERS; k++)
            grams[i].token[k] = k < n ? tokens[i + k] : -1;
    qsort(grams, (size_t)grams_count, sizeof *grams, compare_gram);
    return grams_count;
}

static void add_counts(Bleu *bleu, const int32_t *numbers, int64_t length,
                       int64_t reference) {
    NGram *grams = memory_alloc((size_t)(length + reference) + 1, sizeof *grams);
    for (int n = 1; n <= BLEU_ORDERS; n++) {
        const int64_t a = list_grams(grams, numbers, length, n);
        const int64_t b = list_grams(grams + length, numbers + length, reference, n);
        /* how many of the two sorted lists match, each n-gram once */
        for (int64_t i = 0, j = 0; i < a && j < b;) {
            const int order = compare_gram(&grams[i], &grams[length + j]);
            bleu->correct[n - 1] += order == 0;
            i += order <= 0;
            j += order >= 0;
        }
        bleu->total[n - 1] += a;
    }
    bleu->length += length;
    bleu->reference += reference;
    bleu->sentences++;
    free(grams);
}

void bleu_add(Bleu *bleu, BleuTokenize tokenize, const char *translation,
              const char *reference) {
    Text texts[2] = {{0}};
    bleu_tokens(&texts[0], tokenize, translation);
    bleu_tokens(&texts[1], tokenize, reference);
    const size_t most = texts[0].length + texts[1].length + 1;
    SentenceToken *tokens = memory_alloc(most, sizeof *tokens);
    int32_t *numbers = memory_alloc(most, sizeof *numbers);
    const int64_t length = cut(tokens, &texts[0], 0);
    const int64_t wanted = cut(tokens, &texts[1], length);
    /* equal tokens get equal numbers, by place */
    int32_t next = 0;
    qsort(tokens, (size_t)(length + wanted), sizeof *tokens, compare_token);
    for (int64_t i = 0; i < length + wanted; i++) {
        next += i > 0 && compare_token(&tokens[i - 1], &tokens[i]) != 0;
        numbers[tokens[i].place] = next;
    }
    add_counts(bleu, numbers, length, wanted);
    free(numbers);
    free(tokens);
    text_free(&texts[0]);
    text_free(&texts[1]);
}

/* --- score --- */

BleuScore bleu_score(const Bleu *bleu, BleuSmooth smooth) {
    BleuScore s = {.penalty = bleu->length > 0 ? 1 : 0};
    double logs = 0, share = 1;
    if (bleu->length > 0 && bleu->length < bleu->reference)
        s.penalty = exp(1 - (double)bleu->reference / (double)bleu->length);
    if (bleu->correct[0] == 0) return s;
    for (int n = 0; n < BLEU_ORDERS && bleu->total[n] > 0; n++) {
        double correct = (double)bleu->correct[n];
        if (bleu->correct[n] == 0 && smooth == BLEU_EXP) correct = share /= 2;
        if (bleu->correct[n] == 0 && smooth == BLEU_FLOOR) correct = 0.1;
        s.precision[n] = 100 * correct / (double)bleu->total[n];
    }
    for (int n = 0; n < BLEU_ORDERS; n++) {
        if (s.precision[n] == 0) return s;
        logs += log(s.precision[n]) / BLEU_ORDERS;
    }
    s.score = s.penalty * exp(logs);
    return s;
}
