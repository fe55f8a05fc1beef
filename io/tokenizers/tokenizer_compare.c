/* Tokenizer: whether two cut texts alike. */
#include "io/tokenizers/tokenizer.h"

#include <string.h>

/* Texts in which tokenizers differ: cases, accents, joined and split characters, spaces,
 * digits, scripts, punctuation, special tokens; one that begins with a space. */
static const char *const PROBES[] = {
    "To be, or not to be: that is the QUESTION.",
    "it's 12345 of 3.14159, isn't it?",
    " leading,  double   and trailing spaces ",
    "Caf\xc3\xa9 na\xc3\xafve \xc3\x85ngstr\xc3\xb6m \xef\xac\x81n \xe2\x84\xab cafe\xcc\x81",
    ("\xe4\xb8\xad\xe6\x96\x87\xe5\xad\x97 \xd0\x9c\xd0\xbe\xd1\x81\xd0\xba\xd0\xb2\xd0\xb0 "
     "\xf0\x9f\x99\x82 \xe2\x80\x94 x"),
    "[CLS] [MASK] <s> </s> <unk> <mask> <|endoftext|> <pad>",
    "line\none\ttab\r\nend",
    "a",
    "",
};

static bool same_encoding(const Encoding *a, const Encoding *b) {
    const size_t bytes = a->length * sizeof *a->ids;
    return a->length == b->length &&
           (a->length == 0 || (memcmp(a->ids, b->ids, bytes) == 0 &&
                               memcmp(a->types, b->types, bytes) == 0));
}

/* Whether a text, or a pair, becomes the same tokens, or neither takes it. */
static bool cut_alike(const Tokenizer *a, const Tokenizer *b, TextSpan first,
                      const TextSpan *second) {
    Encoding one = {.skip_unknown = true}, two = {.skip_unknown = true};
    Diag *aside = diag_create();
    const Status x = tokenizer_encode(a, &one, first, second, 0, LOC_NONE, aside);
    const Status y = tokenizer_encode(b, &two, first, second, 0, LOC_NONE, aside);
    const bool alike = x == y && (x != STATUS_OK || same_encoding(&one, &two));
    diag_destroy(aside);
    encoding_free(&one);
    encoding_free(&two);
    return alike;
}

static bool same_tokens(const Tokenizer *a, const Tokenizer *b) {
    bool same = tokenizer_size(a) == tokenizer_size(b);
    for (int32_t id = 0; same && id < tokenizer_size(a); id++) {
        const char *one = tokenizer_token(a, id), *two = tokenizer_token(b, id);
        same = one && two ? strcmp(one, two) == 0 : one == two;
    }
    return same;
}

bool tokenizer_cuts_alike(const Tokenizer *a, const Tokenizer *b) {
    bool alike = same_tokens(a, b);
    for (size_t i = 0; alike && i < sizeof PROBES / sizeof *PROBES; i++) {
        const TextSpan text = {PROBES[i], strlen(PROBES[i])};
        alike = cut_alike(a, b, text, NULL) && cut_alike(a, b, text, &text);
    }
    return alike;
}
