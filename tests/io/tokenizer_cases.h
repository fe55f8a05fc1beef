/* Texts whose numbers and decoded text other encoders gave, recorded as JSON. */
#ifndef COMPRESS_TESTS_TOKENIZER_CASES_H
#define COMPRESS_TESTS_TOKENIZER_CASES_H

#include "tokenizer_test.h"

#include "io/files/json.h"
#include "io/tokenizers/unicode.h"

static inline const char *decode(Bench *bench, const int32_t *ids, size_t count,
                                 bool skip) {
    Text text = {0};
    assert_ok(tokenizer_decode(bench->tokenizer, &text, ids, count, skip, LOC_NONE,
                               bench->diag),
              bench->diag);
    const char *copy =
        arena_strndup(bench->arena, text.data ? text.data : "", text.length);
    text_free(&text);
    return copy;
}

/* The same text token by token: every part is whole characters. */
static inline void check_stream(Bench *bench, const char *wanted) {
    Detokenizer stream = {0};
    Text text = {0};
    detokenizer_start(&stream, bench->tokenizer, true);
    for (size_t i = 0; i < bench->encoding.length; i++) {
        size_t before = text.length;
        assert_ok(detokenizer_add(&stream, &text, bench->encoding.ids[i], LOC_NONE,
                                  bench->diag),
                  bench->diag);
        size_t length = text.length - before;
        if (length > 0) assert_int_equal(utf8_check(text.data + before, length), length);
    }
    detokenizer_finish(&stream, &text);
    assert_string_equal(text.data ? text.data : "", wanted);
    detokenizer_free(&stream);
    text_free(&text);
}

static inline void check_case(Bench *bench, const Tree *item) {
    const char *text = tree_get(item, "text")->string;
    const Tree *ids = tree_get(item, "ids"), *id = ids->first;
    assert_ok(tokenizer_encode(bench->tokenizer, &bench->encoding, span(text), NULL, 0,
                               LOC_NONE, bench->diag),
              bench->diag);
    bool equal = bench->encoding.length == (size_t)ids->count;
    for (size_t i = 0; equal && id; i++, id = id->next)
        equal = bench->encoding.ids[i] == id->integer;
    if (!equal) fail_msg("other tokens for '%s': %s", text, tokens_text(bench));
    const char *wanted = tree_get(item, "decoded")->string;
    assert_string_equal(decode(bench, bench->encoding.ids, bench->encoding.length, true),
                        wanted);
    check_stream(bench, wanted);
}

/* A list of {text, ids, decoded}; those with `left_out` in the text do not count. */
static inline void check_cases(const char *from, const char *file, const char *left_out,
                               int least) {
    Bench bench = bench_open(from);
    Tree *root;
    int count = 0;
    assert_ok(json_read(&root, bench.arena, file, 16 << 20, bench.diag), bench.diag);
    for (const Tree *item = root->first; item; item = item->next) {
        if (left_out && strstr(tree_get(item, "text")->string, left_out)) continue;
        check_case(&bench, item);
        count++;
    }
    assert_in_range(count, least, root->count);
    bench_close(&bench);
}

#endif
