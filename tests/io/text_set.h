/* Helpers of the tests of text, language and translation data sets: one that is opened,
 * one that is refused. */
#ifndef COMPRESS_TESTS_TEXT_SET_H
#define COMPRESS_TESTS_TEXT_SET_H

#include "io/datasets/dataset.h"
#include "io/files/json.h"
#include "tests/io/tokenizer_test.h"

/* A data set and the tokenizer it was made with. */
typedef struct Set {
    Bench bench;
    Batches *data;
} Set;

static const char *set_tokenizer = TEXT_DATA "vocab.txt"; /* NULL: `rest` names it */
static const char *set_format = "text";

/* Binds and opens `{"format": set_format, "tokenizer": set_tokenizer, rest}`, without a
 * tokenizer where there is none. */
static inline Status set_load(Set *set, const char *rest) {
    const DataFormat *format;
    void *options;
    Tree *spec;
    Text json = {0};
    Bench *bench = &set->bench;
    char *base = set_tokenizer ? realpath(set_tokenizer, NULL) : NULL;
    text_add(&json, "{\"format\": \"%s\", ", set_format);
    if (base) text_add(&json, "\"tokenizer\": \"%s\", ", base);
    text_add(&json, "%s}", rest);
    free(base);
    char *text = arena_strdup(bench->arena, json.data);
    text_free(&json);
    TRY(json_parse(&spec, bench->arena, "recipe", text, strlen(text), bench->diag));
    TRY(dataset_bind(&format, &options, bench->arena, spec, folder, bench->diag));
    return dataset_open(&set->data, format, options, LOC_FILE("recipe"), bench->diag);
}

static inline Set set_open(const char *rest) {
    Set set = {.bench = bench_open(set_tokenizer)};
    assert_ok(set_load(&set, rest), set.bench.diag);
    return set;
}

static inline void set_close(Set *set) {
    batches_destroy(set->data);
    bench_close(&set->bench);
}

static inline void put(const char *name, const char *text) {
    char file[512];
    snprintf(file, sizeof file, "%s/%s", folder, name);
    put_text(file, text);
}

/* Expects one failure whose message holds every part of `wanted`, parted by '|'. */
static inline void refuse(const char *rest, Status wanted, const char *parts) {
    Set set = {.bench = bench_open(NULL)};
    const Status status = set_load(&set, rest);
    char *message = diag_text(set.bench.diag), *left = NULL;
    char *list = arena_strdup(set.bench.arena, parts);
    if (status != wanted || diag_errors(set.bench.diag) != 1)
        fail_msg("%s: expected one error of status %d, got %d: %s", rest, wanted, status,
                 message);
    assert_null(set.data);
    for (char *part = strtok_r(list, "|", &left); part; part = strtok_r(NULL, "|", &left))
        if (!strstr(message, part)) fail_msg("no '%s' in: %s", part, message);
    free(message);
    set_close(&set);
}

#endif
