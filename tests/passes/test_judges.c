/* Judges of answers, choices and endings, on predictions that are the data themselves:
 * what they should find is counted by hand. */
#include "ir/irtext.h"
#include "tests/passes/language_fixture.h"

/* A model whose output is its input. */
static Model *echo(const char *type, Task task) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Model *model = model_create(ops_table());
    const char *text = arena_printf(arena,
                                    "ir 1\ntask %s\ninput scores : f32[%s]\n"
                                    "%%1 = scale($scores) {by=1.0} : f32[%s]\n"
                                    "output logits = %%1\n",
                                    task_name(task), type, type);
    assert_ok(graph_parse(&model->graph, model->arena, ops_table(), "echo", text,
                          strlen(text), diag),
              diag);
    diag_destroy(diag);
    arena_destroy(arena);
    return model;
}

static const Tree *judged(Model *model, Batches *data, const char *options) {
    const Tree *record;
    RecipeInputs inputs = {data, NULL};
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    assert_ok(run_steps(model, &inputs,
                        arena_printf(arena, "  - evaluate: {data: some%s}\n", options), 1,
                        &record, diag),
              diag);
    arena_destroy(arena);
    diag_destroy(diag);
    return record;
}

static void expect_real(const Tree *record, const char *key, double wanted) {
    const Tree *value = tree_get(record, key);
    assert_non_null(value);
    assert_close(value->real, wanted);
}

/* ---- answers ---- */

enum { WINDOWS = 5, LENGTH = 6 };

/* Of three questions: windows 0 and 1, window 2, windows 3 and 4. Token 0 is the special
 * one, the text is tokens 2 to 4. Logits (first, last) by token. */
static const float SPANS[WINDOWS][LENGTH][2] = {
    /* best: 3 to 4, 5 + 3; 1 and 5 lie outside */
    {{1, 1}, {9, 9}, {0, 0}, {5, 1}, {4, 3}, {9, 9}},
    {{0, 2}, {0, 0}, {4, 0}, {0, 3}, {0, 0}, {0, 0}}, /* 2 to 3, 7: less */
    /* 2 to 4 would be 20, but is too long: 2 to 3, 10 + 1; none: 4 */
    {{2, 2}, {0, 0}, {10, 0}, {0, 1}, {0, 10}, {0, 0}},
    /* none: 3 + 3 in one window, and 9 in the other; the smaller counts: 6 > 5 */
    {{3, 3}, {0, 0}, {2, 3}, {0, 0}, {0, 0}, {0, 0}},
    {{5, 4}, {0, 0}, {0, 0}, {1, 0}, {0, 0}, {0, 0}},
};

static int64_t span_length(const Batches *self, int64_t sample) {
    (void)self;
    (void)sample;
    return LENGTH;
}

static int64_t span_question(const Batches *self, int64_t sample) {
    (void)self;
    return sample < 2 ? 0 : sample == 2 ? 1 : 2;
}

static void span_tokens(const Batches *self, int64_t sample, int64_t *first,
                        int64_t *end) {
    (void)self;
    (void)sample;
    *first = 2;
    *end = 5;
}

static const char *span_text(const Batches *self, int64_t sample, int64_t first,
                             int64_t last, size_t *length) {
    static const char *const TEXTS[WINDOWS] = {"..abc.", "..def.", "..ghi.", "..jkl.",
                                               "..mno."};
    (void)self;
    *length = (size_t)(last - first + 1);
    return TEXTS[sample] + first;
}

static bool span_answerable(const Batches *self, int64_t question) {
    return self->classes == 0 || question != 2; /* classes: whether one has no answer */
}

/* 1 for the answer that is expected. */
static void span_compare(const Batches *self, int64_t question, const char *answer,
                         size_t length, double *exact, double *f1) {
    static const char *const RIGHT[] = {"bc", "gh", ""};
    const char *right = question == 2 && self->classes == 0 ? "j" : RIGHT[question];
    *exact = strlen(right) == length && memcmp(right, answer, length) == 0;
    *f1 = *exact ? 1 : 0.25;
}

static const Answers ANSWERS = {.questions = 3,
                                .longest = 2,
                                .question = span_question,
                                .tokens = span_tokens,
                                .text = span_text,
                                .answerable = span_answerable,
                                .compare = span_compare};

static const Column SPAN_COLUMNS[] = {{"scores", {DTYPE_F32, 2, {LENGTH, 2}}},
                                      {DATA_SPAN_FIRST, {DTYPE_I32, 0, {0}}},
                                      {DATA_SPAN_LAST, {DTYPE_I32, 0, {0}}}};

static Status span_fetch(const Batches *self, const Fetch *what, void *const *dst,
                         Diag *diag) {
    (void)self;
    (void)diag;
    for (int64_t i = 0; i < what->n; i++) {
        memcpy((float *)dst[0] + i * LENGTH * 2, SPANS[what->index[i]], sizeof SPANS[0]);
        ((int32_t *)dst[1])[i] = ((int32_t *)dst[2])[i] = 0;
    }
    return STATUS_OK;
}

static Batches span_batches(void) {
    return (Batches){.name = "spans",
                     .count = WINDOWS,
                     .columns = SPAN_COLUMNS,
                     .column_count = 3,
                     .length = span_length,
                     .max_tokens = LENGTH,
                     .answers = &ANSWERS,
                     .fetch = span_fetch};
}

static void test_spans(void **state) {
    (void)state;
    Batches data = span_batches();
    data.classes = 1;
    Model *model = echo("N, 6, 2", TASK_FIND_SPAN);
    const Tree *record = judged(model, &data, ", metric: exact_match, min: 100");
    assert_int_equal(tree_get(record, "questions")->integer, 3);
    assert_int_equal(tree_get(record, "samples")->integer, WINDOWS);
    expect_real(record, "exact_match", 100);
    expect_real(record, "f1", 100);
    expect_real(record, "answerable_f1", 100);
    expect_real(record, "no_answer_accuracy", 100);
    model_destroy(model);
    /* where every question has an answer, none is no answer: "j" and not "jk" or "" */
    data.classes = 0;
    model = echo("N, 6, 2", TASK_FIND_SPAN);
    record = judged(model, &data, "");
    expect_real(record, "exact_match", 100);
    assert_null(tree_get(record, "no_answer_accuracy"));
    model_destroy(model);
}

static void test_spans_refused(void **state) {
    (void)state;
    Batches data = span_batches();
    RecipeInputs inputs = {&data, NULL};
    expect_refusal(echo("N, 6, 2", TASK_FIND_SPAN), &inputs,
                   "  - evaluate: {data: some, metric: accuracy}\n", STATUS_MODEL,
                   "task find_span (f1, exact_match), found accuracy");
    data.answers = NULL;
    expect_refusal(echo("N, 6, 2", TASK_FIND_SPAN), &inputs,
                   "  - evaluate: {data: some}\n", STATUS_MODEL, "format spans");
    data = span_batches();
    data.column_count = 1;
    expect_refusal(echo("N, 6, 2", TASK_FIND_SPAN), &inputs,
                   "  - evaluate: {data: some}\n", STATUS_MODEL, "no column start");
}

/* ---- choices ---- */

enum { CHOICES = 9, GROUP = 3 };

static const float SCORES[CHOICES] = {1, 3, 2, 0.5f, 0.5f, 0, -1, -2, -3};
static const int32_t RIGHT[CHOICES] = {0, 1, 0, 1, 0, 0, 0, 0, 1};

static const Column CHOICE_COLUMNS[] = {{"scores", {DTYPE_F32, 1, {1}}},
                                        {DATA_LABELS, {DTYPE_I32, 0, {0}}},
                                        {DATA_CHOICE_PLACE, {DTYPE_I32, 0, {0}}}};

static Status choice_fetch(const Batches *self, const Fetch *what, void *const *dst,
                           Diag *diag) {
    (void)self;
    (void)diag;
    for (int64_t i = 0; i < what->n; i++) {
        ((float *)dst[0])[i] = SCORES[what->index[i]];
        ((int32_t *)dst[1])[i] = RIGHT[what->index[i]];
        ((int32_t *)dst[2])[i] = (int32_t)(what->index[i] % GROUP);
    }
    return STATUS_OK;
}

static void test_choices(void **state) {
    (void)state;
    Batches data = {.name = "choices",
                    .count = CHOICES,
                    .group = GROUP,
                    .columns = CHOICE_COLUMNS,
                    .column_count = 3,
                    .fetch = choice_fetch};
    Model *model = echo("N, 1", TASK_CHOOSE);
    const Tree *record = judged(model, &data, ", batch_size: 2");
    double loss = 0; /* the first of equal ones wins: two of three are right */
    for (int i = 0; i < CHOICES; i++) {
        double sum = 0;
        for (int k = i / GROUP * GROUP; k < i / GROUP * GROUP + GROUP; k++)
            sum += exp((double)SCORES[k] - (double)SCORES[i]);
        if (RIGHT[i]) loss += log(sum) / 3;
    }
    expect_real(record, "accuracy", 200.0 / 3);
    expect_real(record, "loss", loss);
    assert_int_equal(tree_get(record, "questions")->integer, 3);
    model_destroy(model);
    model = echo("N, 1", TASK_CHOOSE);
    record = judged(model, &data, ", limit: 5"); /* the first question alone is whole */
    expect_real(record, "accuracy", 100);
    assert_int_equal(tree_get(record, "questions")->integer, 1);
    model_destroy(model);
    RecipeInputs inputs = {&data, NULL};
    expect_refusal(echo("N, 1", TASK_CHOOSE), &inputs,
                   "  - evaluate: {data: some, limit: 2}\n", STATUS_MODEL,
                   "choices of one question");
    data.group = 0;
    expect_refusal(echo("N, 1", TASK_CHOOSE), &inputs, "  - evaluate: {data: some}\n",
                   STATUS_MODEL, "format choices");
}

/* ---- endings ---- */

enum { TEXTS = 4, ENDING = 2, VOCABULARY = 3 };

/* log p of a right token is minus its loss: logits of three words, by token. */
static const float ENDINGS[TEXTS][ENDING][VOCABULARY] = {
    {{4, 0, 0}, {0, 0, 0}}, /* one token that is likely */
    {{2, 0, 0}, {0, 3, 0}}, /* two tokens: a larger loss, a smaller one for each byte */
    {{0, 0, 1}, {0, 0, 0}}, /* its token, word 0, is not the likeliest */
    {{0, 0, 0.5f}, {0, 0, 0}},
};
static const int32_t ENDING_LABELS[TEXTS][ENDING] = {
    {0, INDEX_SKIP}, {0, 1}, {0, INDEX_SKIP}, {0, INDEX_SKIP}};
static const int32_t ENDING_RIGHT[TEXTS] = {0, 1, 0, 1},
                     ENDING_BYTES[TEXTS] = {1, 40, 1, 1};

static const Column ENDING_COLUMNS[] = {
    {"scores", {DTYPE_F32, 2, {ENDING, VOCABULARY}}},
    {DATA_LABELS, {DTYPE_I32, 1, {ENDING}}},
    {DATA_CHOICE_RIGHT, {DTYPE_I32, 0, {0}}},
    {DATA_CHOICE_BYTES, {DTYPE_I32, 0, {0}}},
};

static Status ending_fetch(const Batches *self, const Fetch *what, void *const *dst,
                           Diag *diag) {
    (void)diag;
    for (int64_t i = 0; i < what->n; i++) {
        const int64_t at = what->index[i];
        memcpy((float *)dst[0] + i * ENDING * VOCABULARY, ENDINGS[at], sizeof ENDINGS[0]);
        memcpy((int32_t *)dst[1] + i * ENDING, ENDING_LABELS[at],
               sizeof ENDING_LABELS[0]);
        if (self->column_count < 4) continue;
        ((int32_t *)dst[2])[i] = ENDING_RIGHT[at];
        ((int32_t *)dst[3])[i] = ENDING_BYTES[at];
    }
    return STATUS_OK;
}

static void test_endings(void **state) {
    (void)state;
    Batches data = {.name = "endings",
                    .count = TEXTS,
                    .group = 2,
                    .classes = VOCABULARY,
                    .columns = ENDING_COLUMNS,
                    .column_count = 4,
                    .fetch = ending_fetch};
    Model *model = echo("N, 2, 3", TASK_NEXT_TOKEN);
    const Tree *record =
        judged(model, &data, ", metric: choice_accuracy_normalized, min: 99");
    assert_int_equal(tree_get(record, "questions")->integer, 2);
    expect_real(record, "choice_accuracy", 50); /* the second text's alone */
    expect_real(record, "choice_accuracy_normalized", 100);
    expect_real(record, "exact_match", 50); /* of the right ones */
    expect_real(record, "accuracy", 200.0 / 3);
    assert_int_equal(tree_get(record, "tokens")->integer, 3);
    model_destroy(model);
    RecipeInputs inputs = {&data, NULL};
    expect_refusal(echo("N, 2, 3", TASK_NEXT_TOKEN), &inputs,
                   "  - evaluate: {data: some, limit: 1}\n", STATUS_MODEL,
                   "expected a right ending among the first 1, found none");
    data.column_count = 2;
    expect_refusal(echo("N, 2, 3", TASK_NEXT_TOKEN), &inputs,
                   "  - evaluate: {data: some, metric: exact_match}\n", STATUS_MODEL,
                   "expected texts with endings");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_spans_refused),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_endings),
    };
    return cmocka_run_group_tests_name("judges", tests, NULL, NULL);
}
