/* Translations that there is no memory for. */
#include "exec/ops.h"
#include "io/formats/load.h"
#include "session/text_translator.h"
#include "tests/support/check.h"
#include "tests/support/starved.h"

#include <string.h>

#define MODEL "recipes/models/rnn_tatoeba.h5"

typedef struct Translating {
    TextTranslator *translator;
    Line text;
} Translating;

static Status translate(void *self, Diag *diag) {
    Translating *t = self;
    TranslatedText made;
    Arena *arena = arena_create();
    const Status status =
        text_translator_run(t->translator, &made, &t->text, 1, arena, diag);
    arena_destroy(arena);
    return status;
}

/* Tokens of a translation have 16 MiB, those of its hypotheses twice as much for each;
 * what the model keeps of them takes no more memory for more tokens. */
static void test_starved(void **state) {
    const TextTranslatorOptions options = {.source = "recipes/data/tatoeba/ru.json",
                                           .target = "recipes/data/tatoeba/en.json",
                                           .max_tokens = 4 << 20,
                                           .beam = 1,
                                           .length_penalty = 1,
                                           .threads = 1};
    const size_t mib = 1 << 20;
    (void)state;
    if (!can_starve()) skip();
    Diag *diag = diag_create();
    Model *model;
    Translating t = {.text = {{"Где ты?", strlen("Где ты?")}, LOC_FILE("text")}};
    assert_ok(model_load(&model, MODEL, ops_table(), true, diag), diag);
    assert_ok(text_translator_open(&t.translator, model, MODEL, &options, diag), diag);
    assert_ok(translate(&t, diag), diag);
    assert_starves(8 * mib, translate, &t);
    assert_starves(24 * mib, translate, &t);
    text_translator_close(t.translator);
    model_destroy(model);
    diag_destroy(diag);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_starved)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
