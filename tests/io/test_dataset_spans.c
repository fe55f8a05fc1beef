/* Questions about texts: windows, places of answers, comparison of answers, faults. */
#include "io/datasets/squad.h"
#include "tests/io/text_set.h"

#define ANSWERS "tests/data/metrics/answers.jsonl"

/* SQuAD's comparison, by Python's string functions: tests/data/metrics/make_answers.py.
 */
static void test_comparison(void **state) {
    (void)state;
    Bench bench = bench_open(NULL);
    FILE *file = fopen(ANSWERS, "r");
    assert_non_null(file);
    char *line = NULL;
    size_t room = 0;
    int count = 0;
    for (ssize_t length; (length = getline(&line, &room, file)) > 0; count++) {
        Tree *at;
        double exact, f1;
        Text normal = {0};
        assert_ok(json_parse_line(&at, bench.arena, ANSWERS, count + 1, line,
                                  (size_t)length, bench.diag),
                  bench.diag);
        const char *answer = tree_get(at, "answer")->string;
        const char *right = tree_get(at, "right")->string;
        const TextSpan spans[] = {{answer, strlen(answer)}, {right, strlen(right)}};
        squad_normalize(&normal, spans[0]);
        assert_string_equal(normal.length ? normal.data : "",
                            tree_get(at, "normal")->string);
        squad_compare(spans[0], spans[1], &exact, &f1);
        assert_true(exact == tree_get(at, "exact")->real);
        assert_float_equal(f1, tree_get(at, "f1")->real, 1e-15);
        text_free(&normal);
    }
    assert_int_equal(count, 200);
    free(line);
    fclose(file);
    bench_close(&bench);
}

/* 11 tokens: the cat sat . un ##happy mat ( the cat ) */
#define CONTEXT "The cat  sat. Unhappy mat (the cat)"

static void put_questions(const char *qas) {
    Text json = {0};
    text_add(&json,
             "{\"version\": \"1.1\", \"data\": [{\"title\": \"t\", \"paragraphs\": "
             "[{\"context\": \"" CONTEXT "\", \"qas\": [%s]}]}]}",
             qas);
    put("q.json", json.data);
    text_free(&json);
}

/* The question that most tests ask: two tokens, the answer is "mat (the". */
#define QUESTION                                                                         \
    "{\"id\": \"q1\", \"question\": \"mat cat\", \"answers\": [{\"text\": \"mat "        \
    "(the\", \"answer_start\": 22}, {\"text\": \"The mat\", \"answer_start\": 0}]}"
#define NO_ANSWER                                                                        \
    "{\"id\": \"q2\", \"question\": \"sat\", \"answers\": [], \"is_impossible\": true}"

enum { WIDTH = 24 };

typedef struct Row {
    int32_t ids[WIDTH], mask[WIDTH], types[WIDTH], first, last;
} Row;

static Row row_of(const Set *set, int64_t index) {
    Row row;
    void *const dst[] = {row.ids, row.mask, row.types, &row.first, &row.last};
    const Fetch what = {&index, 1, WIDTH, 0};
    assert_ok(set->data->fetch(set->data, &what, dst, set->bench.diag), set->bench.diag);
    return row;
}

static void expect_tokens(const Set *set, const Row *row, const char *tokens) {
    char *list = arena_strdup(set->bench.arena, tokens), *left = NULL;
    int length = 0;
    for (char *token = strtok_r(list, " ", &left); token;
         token = strtok_r(NULL, " ", &left))
        assert_int_equal(row->ids[length++], tokenizer_find(set->bench.tokenizer, token));
    for (int i = 0; i < WIDTH; i++) {
        assert_int_equal(row->mask[i], i < length);
        assert_int_equal(row->types[i], i >= 4 && i < length);
    }
}

static void expect_text(const Set *set, int64_t sample, int64_t first, int64_t last,
                        const char *wanted) {
    size_t length;
    const char *text = set->data->answers->text(set->data, sample, first, last, &length);
    assert_int_equal(length, strlen(wanted));
    assert_memory_equal(text, wanted, length);
}

static void test_windows(void **state) {
    (void)state;
    set_format = "spans";
    put_questions(QUESTION);
    Set set = set_open("\"path\": \"q.json\"");
    assert_int_equal(set.data->count, 1);
    assert_int_equal(set.data->max_tokens, 16);
    Row row = row_of(&set, 0);
    expect_tokens(&set, &row,
                  "[CLS] mat cat [SEP] the cat sat . un ##happy mat ( the cat ) [SEP]");
    assert_int_equal(row.first, 10);
    assert_int_equal(row.last, 12);
    expect_text(&set, 0, 10, 12, "mat (the");
    expect_text(&set, 0, 4, 6, "The cat  sat");
    expect_text(&set, 0, 9, 9, "Unhappy");
    set_close(&set);

    /* windows of 6 tokens, 4 apart: 0-5, 4-9, 8-10; the answer, 6-8, is in the second */
    set = set_open("\"path\": \"q.json\", \"max_length\": 11, \"stride\": 4, "
                   "\"question_length\": 2");
    assert_int_equal(set.data->count, 3);
    static const char *const TOKENS[] = {
        "[CLS] mat cat [SEP] the cat sat . un ##happy [SEP]",
        "[CLS] mat cat [SEP] un ##happy mat ( the cat [SEP]",
        "[CLS] mat cat [SEP] the cat ) [SEP]"};
    static const int32_t PLACES[][2] = {{0, 0}, {6, 8}, {0, 0}};
    for (int i = 0; i < 3; i++) {
        int64_t first, end;
        row = row_of(&set, i);
        expect_tokens(&set, &row, TOKENS[i]);
        assert_int_equal(row.first, PLACES[i][0]);
        assert_int_equal(row.last, PLACES[i][1]);
        assert_int_equal(set.data->answers->question(set.data, i), 0);
        set.data->answers->tokens(set.data, i, &first, &end);
        assert_int_equal(first, 4);
        assert_int_equal(end, i == 2 ? 7 : 10);
    }
    expect_text(&set, 1, 6, 8, "mat (the");
    expect_text(&set, 2, 4, 6, "the cat)");
    set_close(&set);
}

static void test_answers(void **state) {
    (void)state;
    double exact, f1;
    set_format = "spans";
    put_questions(QUESTION ", " NO_ANSWER);
    Set set = set_open("\"path\": \"q.json\"");
    const Answers *answers = set.data->answers;
    assert_int_equal(answers->questions, 2);
    assert_true(answers->answerable(set.data, 0));
    assert_false(answers->answerable(set.data, 1));
    answers->compare(set.data, 0, "the mat!", 8, &exact, &f1); /* the second one */
    assert_true(exact == 1 && f1 == 1);
    answers->compare(set.data, 0, "mat sat", 7, &exact, &f1);
    assert_true(exact == 0 && f1 == 2.0 / 3);
    answers->compare(set.data, 1, "", 0, &exact, &f1);
    assert_true(exact == 1 && f1 == 1);
    answers->compare(set.data, 1, "mat", 3, &exact, &f1);
    assert_true(exact == 0 && f1 == 0);
    set_close(&set);
    set = set_open("\"path\": \"q.json\", \"offset\": 1");
    assert_int_equal(set.data->count, 1);
    assert_int_equal(set.data->answers->question(set.data, 0), 1);
    set_close(&set);
}

static void test_faults(void **state) {
    (void)state;
    set_format = "spans";
    put_questions("{\"id\": \"q7\", \"question\": \"mat\", \"answers\": [{\"text\": "
                  "\"mat\", \"answer_start\": 21}]}");
    refuse("\"path\": \"q.json\"", STATUS_FORMAT, "q7|\"mat\" at character 21");
    put_questions("{\"id\": \"q7\", \"question\": \"mat\", \"answers\": [{\"text\": "
                  "\"mat\", \"answer_start\": -1}]}");
    refuse("\"path\": \"q.json\"", STATUS_FORMAT, "answer_start");
    put_questions("{\"id\": \"q7\", \"question\": \"mat\", \"answers\": [{\"text\": "
                  "\"mat\", \"answer_start\": 9223372036854775807}]}");
    refuse("\"path\": \"q.json\"", STATUS_FORMAT, "answer_start");
    put_questions("{\"id\": \"q7\", \"question\": \"mat\"}");
    refuse("\"path\": \"q.json\"", STATUS_FORMAT, "answers|q7|SQuAD");
    put_questions("{\"id\": \"q7\", \"answers\": []}");
    refuse("\"path\": \"q.json\"", STATUS_FORMAT, "question: expected");
    put("q.json", "[]");
    refuse("\"path\": \"q.json\"", STATUS_FORMAT, "data: expected");
    put("q.json", "{\"data\": [{\"paragraphs\": [{\"context\": 3, \"qas\": []}]}]}");
    refuse("\"path\": \"q.json\"", STATUS_FORMAT, "context: expected");
    put_questions(QUESTION);
    refuse("\"path\": \"q.json\", \"max_length\": 60", STATUS_RECIPE,
           "max_length: expected more than");
    refuse("\"path\": \"q.json\", \"offset\": 2", STATUS_RECIPE, "offset");
}

static void test_empty(void **state) {
    (void)state;
    set_format = "spans";
    put("q.json", "{\"data\": [{\"paragraphs\": [{\"context\": \"\", \"qas\": "
                  "[{\"question\": \"mat cat\", \"answers\": []}, {\"question\": \"\", "
                  "\"answers\": [{\"text\": \"\", \"answer_start\": 0}]}]}]}]}");
    Set set = set_open("\"path\": \"q.json\"");
    assert_int_equal(set.data->count, 2);
    const Row row = row_of(&set, 0);
    expect_tokens(&set, &row, "[CLS] mat cat [SEP] [SEP]");
    assert_int_equal(row_of(&set, 1).mask[2], 1);
    assert_int_equal(row_of(&set, 1).mask[3], 0);
    assert_int_equal(row_of(&set, 1).first, 0);
    set_close(&set);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comparison), cmocka_unit_test(test_windows),
        cmocka_unit_test(test_answers),    cmocka_unit_test(test_faults),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests_name("spans", tests, enter, leave);
}
