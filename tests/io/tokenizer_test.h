/* Helpers of the tokenizer's tests: a scratch folder, fixtures, tokens as text. */
#ifndef COMPRESS_TESTS_TOKENIZER_TEST_H
#define COMPRESS_TESTS_TOKENIZER_TEST_H

#include "io_test.h"

#include "io/files/file.h"
#include "io/tokenizers/tokenizer.h"
#include "io/tokenizers/vocabulary.h"

#define TEXT_DATA "tests/data/text/"

static char folder[256], path[300];

static inline int enter(void **state) {
    (void)state;
    scratch_make(folder);
    snprintf(path, sizeof path, "%s/vocab.txt", folder);
    return 0;
}

static inline int leave(void **state) {
    (void)state;
    scratch_remove(folder);
    return 0;
}

/* One test's things. */
typedef struct Bench {
    Arena *arena;
    Diag *diag;
    Tokenizer *tokenizer;
    Encoding encoding;
} Bench;

static inline Bench bench_open(const char *from) {
    Bench bench = {.arena = arena_create(), .diag = diag_create()};
    if (from) assert_ok(tokenizer_read(&bench.tokenizer, from, bench.diag), bench.diag);
    return bench;
}

static inline void bench_close(Bench *bench) {
    encoding_free(&bench->encoding);
    tokenizer_destroy(bench->tokenizer);
    diag_destroy(bench->diag);
    arena_destroy(bench->arena);
}

/* Expects one error from a path. */
static inline void expect_unreadable(const char *from, Status status,
                                     const char *message) {
    Diag *diag = diag_create();
    Tokenizer *tokenizer = NULL;
    expect_error(diag, tokenizer_read(&tokenizer, from, diag), status, message);
    assert_null(tokenizer);
    diag_destroy(diag);
}

static inline TextSpan span(const char *text) {
    return (TextSpan){text, strlen(text)};
}

/* Tokens of the encoding, between spaces; in the arena. */
static inline const char *tokens_text(const Bench *bench) {
    Text text = {0};
    const Encoding *encoding = &bench->encoding;
    for (size_t i = 0; i < encoding->length; i++)
        text_add(&text, "%s%s", i ? " " : "",
                 tokenizer_token(bench->tokenizer, encoding->ids[i]));
    const char *copy = arena_strdup(bench->arena, text.data ? text.data : "");
    text_free(&text);
    return copy;
}

static inline const char *plain_tokens(Bench *bench, TextSpan text) {
    assert_ok(tokenizer_encode_plain(bench->tokenizer, &bench->encoding, text, LOC_NONE,
                                     bench->diag),
              bench->diag);
    return tokens_text(bench);
}

static inline void check_plain(Bench *bench, const char *text, const char *wanted) {
    assert_string_equal(plain_tokens(bench, span(text)), wanted);
}

/* Copies the fixture vocabulary into the scratch folder, with a configuration. */
static inline void put_vocab(const char *config) {
    char *text, name[300];
    size_t length;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    assert_ok(file_read(&text, &length, arena, TEXT_DATA "vocab.txt", 1 << 20, diag),
              diag);
    put_file(path, text, length);
    snprintf(name, sizeof name, "%s/tokenizer_config.json", folder);
    put_text(name, config);
    diag_destroy(diag);
    arena_destroy(arena);
}

static inline void check_encoding(Bench *bench, const char *first, const char *second,
                                  size_t max_length, const char *tokens, size_t firsts) {
    TextSpan b = second ? span(second) : (TextSpan){0};
    assert_ok(tokenizer_encode(bench->tokenizer, &bench->encoding, span(first),
                               second ? &b : NULL, max_length, LOC_NONE, bench->diag),
              bench->diag);
    assert_string_equal(tokens_text(bench), tokens);
    for (size_t i = 0; i < bench->encoding.length; i++)
        assert_int_equal(bench->encoding.types[i], i >= firsts);
}

#endif
