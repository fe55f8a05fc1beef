/* Translations by the library: many at once against one at a time, threads, a fork, what
 * is refused. */
#include "io/files/json.h"
#include "ir/sanitized.h"
#include "tests/session/library_fixture.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define RUSSIAN "recipes/models/transformer_tatoeba.h5"
#define LANGUAGES                                                                        \
    "tokenizer: recipes/data/tatoeba/ru.json, "                                          \
    "target_tokenizer: recipes/data/tatoeba/en.json"

enum { TEXTS = 20 }; /* more than are translated side by side */

static const char *const WORDS_OF[] = {"Я тебя люблю.", "Где ты?", "Том спит.",
                                       "У меня нет времени.", "Он умер."};

static const char *text_of(int i) {
    return WORDS_OF[i % (int)(sizeof WORDS_OF / sizeof *WORDS_OF)];
}

typedef struct Ready {
    CompressContext *context;
    CompressModel *model;
    CompressTranslator *translator;
    const char *texts[TEXTS];
} Ready;

static void ready_open(Ready *ready, const char *options) {
    assert_int_equal(compress_open(&ready->context, 2), COMPRESS_OK);
    assert_int_equal(compress_load(ready->context, RUSSIAN, &ready->model), COMPRESS_OK);
    if (compress_prepare_translator(ready->context, ready->model, options,
                                    &ready->translator) != COMPRESS_OK)
        fail_msg("%s", compress_messages(ready->context));
    for (int i = 0; i < TEXTS; i++) ready->texts[i] = text_of(i);
}

static void ready_close(Ready *ready) {
    compress_free_translator(ready->translator);
    compress_free_model(ready->model);
    compress_close(ready->context);
}

/* What is said of texts, in the arena. */
static const Tree *translate(Ready *ready, int first, int count, Arena *arena) {
    char *json;
    Tree *said;
    Diag *diag = diag_create();
    if (compress_translate(ready->context, ready->translator, ready->texts + first,
                           (size_t)count, &json) != COMPRESS_OK)
        fail_msg("%s", compress_messages(ready->context));
    assert_ok(json_parse(&said, arena, "json", json, strlen(json), diag), diag);
    diag_destroy(diag);
    compress_free_text(json);
    return said;
}

static const char *text_in(const Tree *map) {
    return tree_get(map, "text")->string;
}

static void assert_refused(Ready *ready, const char *const *texts, size_t count,
                           CompressStatus status, const char *words) {
    const Use use = {ready->context, ready->model};
    char *json;
    assert_int_equal(
        compress_translate(ready->context, ready->translator, texts, count, &json),
        status);
    assert_null(json);
    assert_said(&use, words);
}

/* Lengths differ, so that those side by side pad each other. */
static void test_many(void **state) {
    Ready ready;
    Arena *arena = arena_create();
    (void)state;
    ready_open(&ready, "{" LANGUAGES "}");
    const Tree *map = translate(&ready, 0, TEXTS, arena)->first;
    for (int i = 0; i < TEXTS; i++, map = map->next) {
        const Tree *alone = translate(&ready, i, 1, arena)->first;
        assert_string_equal(text_in(map), text_in(alone));
        assert_float_equal(tree_get(map, "score")->real, tree_get(alone, "score")->real,
                           1e-5);
        assert_string_equal(tree_get(map, "ended")->string, "end");
    }
    assert_null(map);
    arena_destroy(arena);
    ready_close(&ready);
}

/* A text that is cut has the tokens that were asked for; a wider search finds no worse
 * score. */
static void test_options(void **state) {
    Ready wide, greedy, cut;
    Arena *arena = arena_create();
    (void)state;
    ready_open(&wide, "{" LANGUAGES ", beam: 8, length_penalty: 0}");
    ready_open(&greedy, "{" LANGUAGES ", beam: 1, length_penalty: 0}");
    ready_open(&cut, "{" LANGUAGES ", max_tokens: 2}");
    const Tree *by_wide = translate(&wide, 0, 5, arena)->first;
    const Tree *by_greedy = translate(&greedy, 0, 5, arena)->first;
    const Tree *by_cut = translate(&cut, 0, 5, arena)->first;
    for (int i = 0; i < 5; i++) {
        assert_true(tree_get(by_wide, "score")->real >=
                    tree_get(by_greedy, "score")->real - 1e-5);
        assert_int_equal(tree_get(by_cut, "tokens")->integer, 2);
        assert_string_equal(tree_get(by_cut, "ended")->string, "length");
        by_wide = by_wide->next, by_greedy = by_greedy->next, by_cut = by_cut->next;
    }
    arena_destroy(arena);
    ready_close(&wide);
    ready_close(&greedy);
    ready_close(&cut);
}

/* The model is kept as it was. */
static void test_model_changed(void **state) {
    Ready ready;
    Arena *arena = arena_create();
    (void)state;
    ready_open(&ready, "{" LANGUAGES "}");
    const Tree *before = translate(&ready, 0, 5, arena)->first;
    assert_int_equal(compress_apply(ready.context, ready.model,
                                    "[remove_layer: {stack: decoder, count: 1}]", NULL),
                     COMPRESS_OK);
    compress_free_model(ready.model);
    ready.model = NULL;
    const Tree *after = translate(&ready, 0, 5, arena)->first;
    for (; before; before = before->next, after = after->next)
        assert_string_equal(text_in(before), text_in(after));
    arena_destroy(arena);
    ready_close(&ready);
}

/* ---- threads and processes ---- */

typedef struct Caller {
    Ready *ready;
    char *json;
    CompressStatus status;
} Caller;

static void *call(void *self) {
    Caller *c = self;
    CompressContext *context;
    c->status = compress_open(&context, 1);
    for (int i = 0; i < 3 && c->status == COMPRESS_OK; i++) {
        compress_free_text(c->json);
        c->status = compress_translate(context, c->ready->translator, c->ready->texts, 5,
                                       &c->json);
    }
    compress_close(context);
    return NULL;
}

static void test_threads(void **state) {
    Ready ready;
    pthread_t threads[2];
    (void)state;
    ready_open(&ready, "{" LANGUAGES "}");
    Caller callers[2] = {{.ready = &ready}, {.ready = &ready}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call, &callers[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    assert_int_equal(callers[0].status, COMPRESS_OK);
    assert_int_equal(callers[1].status, COMPRESS_OK);
    assert_string_equal(callers[0].json, callers[1].json);
    for (int i = 0; i < 2; i++) compress_free_text(callers[i].json);
    ready_close(&ready);
}

static void test_fork(void **state) {
    Ready ready;
    char *before, *after;
    int how;
    (void)state;
    if (THREAD_SANITIZED) skip();
    ready_open(&ready, "{" LANGUAGES "}");
    assert_int_equal(
        compress_translate(ready.context, ready.translator, ready.texts, 1, &before),
        COMPRESS_OK);
    if (SANITIZED) usleep(20000); /* gcc 12's allocator holds a lock as a thread starts */
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        const CompressStatus status =
            compress_translate(ready.context, ready.translator, ready.texts, 1, &after);
        _exit(status == COMPRESS_OK ? strcmp(before, after) != 0 : 1);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 0);
    compress_free_text(before);
    ready_close(&ready);
}

static int at_once(void *self) {
    return ++*(int *)self > 1;
}

static void test_cancelled(void **state) {
    enum { MANY = 4096 };
    Ready ready;
    const char *texts[MANY];
    char *json;
    int asked = 0;
    (void)state;
    ready_open(&ready, "{" LANGUAGES "}");
    for (int i = 0; i < MANY; i++) texts[i] = text_of(i);
    compress_watch(ready.context, &asked, NULL, at_once);
    assert_int_equal(
        compress_translate(ready.context, ready.translator, texts, MANY, &json),
        COMPRESS_INTERRUPTED);
    assert_null(json);
    assert_int_equal(asked, 2);
    ready_close(&ready);
}

/* ---- what is refused ---- */

static void test_refused(void **state) {
    static const char *const BAD[] = {"Где ты?", "\xff"}, *const NONE[] = {NULL};
    static const char *const EMPTY[] = {"Где ты?", "   "};
    Ready ready;
    (void)state;
    ready_open(&ready, "{" LANGUAGES ", max_tokens: 4}");
    assert_refused(&ready, BAD, 2, COMPRESS_FORMAT, "texts[1]:");
    assert_refused(&ready, EMPTY, 2, COMPRESS_USAGE, "texts[1]: error: expected text to");
    assert_refused(&ready, NONE, 1, COMPRESS_USAGE, "texts[0]: expected one, found NULL");
    assert_refused(&ready, BAD, 0, COMPRESS_USAGE, "count: expected 1 to ");
    assert_refused(&ready, NULL, 1, COMPRESS_USAGE, "texts: expected one, found NULL");
    ready_close(&ready);
}

/* Without logits to search there is no translation, greedy or not. */
static void test_not_finite(void **state) {
    static const char *const OPTIONS[] = {"{" LANGUAGES ", beam: 1}", "{" LANGUAGES "}"};
    static const char *const TEXT[] = {"Где ты?", "Том спит."};
    (void)state;
    for (int i = 0; i < 2; i++) {
        Ready ready;
        CompressTranslator *translator;
        ready_open(&ready, OPTIONS[i]);
        overflow_layer(ready.model, "decoder", 1);
        assert_int_equal(compress_prepare_translator(ready.context, ready.model,
                                                     OPTIONS[i], &translator),
                         COMPRESS_OK);
        compress_free_translator(ready.translator);
        ready.translator = translator;
        assert_refused(&ready, TEXT, 2, COMPRESS_MODEL,
                       "texts[0]: error: expected finite logits, found others at token 1 "
                       "of the translation");
        ready_close(&ready);
    }
}

static void test_not_made(void **state) {
    static const struct {
        const char *model, *options;
        CompressStatus status;
        const char *words;
    } CASES[] = {
        {BERT, "", COMPRESS_MODEL, "expected a model that translates"},
        {LLAMA, NULL, COMPRESS_MODEL, "expected a model that translates"},
        {RUSSIAN, "{tokenizer: recipes/data/none.json}", COMPRESS_IO, "none.json"},
        {RUSSIAN, NULL, COMPRESS_USAGE, "error: tokenizer: expected the path of one"},
        {RUSSIAN, "{" LANGUAGES ", beams: 3}", COMPRESS_USAGE, "beam"},
        {RUSSIAN, "{" LANGUAGES ", beam: 0}", COMPRESS_USAGE, "beam"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Use use;
        CompressTranslator *translator;
        assert_int_equal(compress_open(&use.context, 1), COMPRESS_OK);
        assert_int_equal(compress_load(use.context, CASES[i].model, &use.model),
                         COMPRESS_OK);
        assert_int_equal(compress_prepare_translator(use.context, use.model,
                                                     CASES[i].options, &translator),
                         CASES[i].status);
        assert_null(translator);
        assert_said(&use, CASES[i].words);
        use_close(&use);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many),          cmocka_unit_test(test_options),
        cmocka_unit_test(test_model_changed), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_fork),          cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_refused),       cmocka_unit_test(test_not_made),
        cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
