/* Text data sets: tokens, padding, pairs, labels, and what is refused. */
#include "tests/io/text_set.h"

enum { WIDTH = 12 };

/* Checks a sample, alone and padded to WIDTH, against its tokens between spaces. Types
 * are 1 from `firsts` on. */
static void check_sample(const Set *set, int64_t index, const char *tokens, int firsts,
                         int32_t label) {
    int32_t ids[WIDTH], mask[WIDTH], types[WIDTH], found = -1, length = 0;
    void *const dst[] = {ids, mask, types, &found};
    const Fetch what = {&index, 1, WIDTH, 0};
    char *list = arena_strdup(set->bench.arena, tokens), *left = NULL;
    assert_ok(set->data->fetch(set->data, &what, dst, set->bench.diag), set->bench.diag);
    for (char *token = strtok_r(list, " ", &left); token;
         token = strtok_r(NULL, " ", &left), length++) {
        assert_int_equal(ids[length], tokenizer_find(set->bench.tokenizer, token));
        assert_int_equal(mask[length], 1);
        assert_int_equal(types[length], length >= firsts);
    }
    assert_int_equal(set->data->length(set->data, index), length);
    for (; length < WIDTH; length++)
        assert_true(ids[length] == 0 && mask[length] == 0 && types[length] == 0);
    assert_int_equal(found, label);
}

#define CAT "[CLS] the cat [SEP]"
#define SAT "[CLS] un ##happy mat sat [SEP]"

static void check_two(const char *rest) {
    Set set = set_open(rest);
    assert_int_equal(set.data->count, 2);
    assert_int_equal(set.data->classes, 2);
    assert_int_equal(set.data->max_tokens, 6);
    assert_int_equal(set.data->column_count, 4);
    assert_int_equal(set.data->columns[0].type.dim[0], DIM_T);
    assert_int_equal(batches_column(set.data, "labels"), 3);
    check_sample(&set, 0, CAT, WIDTH, 1);
    check_sample(&set, 1, SAT, WIDTH, 0);
    set_close(&set);
}

static void test_tables(void **state) {
    (void)state;
    put("a.tsv", "sentence\tlabel\nthe cat\t1\nunhappy mat sat\t0\n");
    put("a.csv", "label,n,text\nyes,1,\"The cat\"\nno,2,unhappy mat sat\n");
    put("a.jsonl", "{\"sentence\": \"the CAT\", \"label\": 1}\n"
                   "{\"label\": 0, \"sentence\": \"unhappy mat sat\"}\n");
    put("plain", "1,the cat\r\n0,unhappy mat sat\r\n");
    check_two("\"path\": \"a.tsv\"");
    check_two("\"path\": \"a.tsv\", \"table\": \"tsv\", \"classes\": 2");
    check_two("\"path\": \"a.jsonl\"");
    check_two(
        "\"path\": \"a.csv\", \"sentence\": \"text\", \"labels\": [\"no\", \"yes\"]");
    check_two("\"path\": \"plain\", \"table\": \"csv\", \"header\": false,"
              " \"sentence\": \"1\", \"label\": \"0\"");
}

/* Samples of different lengths in one batch, in any order. */
static void test_padding(void **state) {
    (void)state;
    put("a.tsv", "sentence\tlabel\nthe cat\t1\nunhappy mat sat\t0\n\t1\n");
    Set set = set_open("\"path\": \"a.tsv\"");
    int32_t ids[18], mask[18], types[18], labels[3];
    const int64_t index[] = {2, 1, 0};
    const int lengths[] = {2, 6, 4};
    void *const dst[] = {ids, mask, types, labels};
    assert_int_equal(batches_tokens(set.data, index, 3), 6);
    const Fetch what = {index, 3, 6, 0};
    assert_ok(set.data->fetch(set.data, &what, dst, set.bench.diag), set.bench.diag);
    for (int i = 0; i < 18; i++) {
        assert_int_equal(mask[i], i % 6 < lengths[i / 6]);
        assert_int_equal(ids[i] != 0, mask[i]);
        assert_int_equal(types[i], 0);
    }
    assert_true(labels[0] == 1 && labels[1] == 0 && labels[2] == 1);
    const Fetch narrow = {index, 3, 5, 0};
    expect_error(set.bench.diag, set.data->fetch(set.data, &narrow, dst, set.bench.diag),
                 STATUS_INTERNAL, "sample 1 has 6 tokens, 5");
    const Fetch beyond = {&(int64_t){3}, 1, 6, 0};
    expect_error(set.bench.diag, set.data->fetch(set.data, &beyond, dst, set.bench.diag),
                 STATUS_INTERNAL, "no sample 3 of 3");
    set_close(&set);
}

static void test_pairs(void **state) {
    (void)state;
    put("p.tsv", "a\tb\tlabel\nthe cat\tsat\t0\nthe\tthe cat sat on mat\t2\n");
    Set set = set_open("\"path\": \"p.tsv\", \"sentence\": \"a\", \"sentence2\": \"b\"");
    assert_int_equal(set.data->classes, 3);
    assert_int_equal(set.data->max_tokens, 9);
    check_sample(&set, 0, CAT " sat [SEP]", 4, 0);
    check_sample(&set, 1, "[CLS] the [SEP] the cat sat on mat [SEP]", 3, 2);
    set_close(&set);
    set = set_open("\"path\": \"p.tsv\", \"sentence\": \"a\", \"sentence2\": \"b\","
                   " \"max_length\": 6, \"offset\": 1, \"classes\": 5");
    assert_int_equal(set.data->count, 1);
    assert_int_equal(set.data->classes, 5);
    assert_int_equal(set.data->max_tokens, 6);
    check_sample(&set, 0, "[CLS] the [SEP] the cat [SEP]", 3, 2);
    char *warned = diag_text(set.bench.diag);
    assert_non_null(
        strstr(warned, "p.tsv: 1 of 1 texts have more than 6 tokens and are cut"));
    free(warned);
    set_close(&set);
}

static void test_no_labels(void **state) {
    (void)state;
    put("a.tsv", "sentence\tlabel\nthe cat\t-1\nunhappy mat sat\tx\n");
    static const char *const NONE[] = {"\"\"", "null"};
    for (int i = 0; i < 2; i++) {
        char rest[128];
        snprintf(rest, sizeof rest, "\"path\": \"a.tsv\", \"limit\": 1, \"label\": %s",
                 NONE[i]);
        Set set = set_open(rest);
        assert_int_equal(set.data->column_count, 3);
        assert_int_equal(set.data->classes, 0);
        assert_int_equal(set.data->count, 1);
        assert_int_equal(set.data->max_tokens, 4);
        check_sample(&set, 0, CAT, WIDTH, -1);
        set_close(&set);
    }
}

#define LINES "\"path\": \"a.txt\", \"table\": \"lines\""

/* Lines of text: tabs, commas and quotes are text, blank lines are none, no header. */
static void test_lines(void **state) {
    (void)state;
    put("a.txt", " = the = \r\n\n \t\v\f\r\nthe\tcat\n\xc2\xa0\xe3\x80\x80\n"
                 "\"the, cat\n\r\n  unhappy mat sat");
    static const char *const SAME[] = {"", ", \"label\": \"\"", ", \"label\": null",
                                       ", \"header\": false", ", \"sentence\": \"0\""};
    for (size_t i = 0; i < sizeof SAME / sizeof *SAME; i++) {
        char rest[128];
        snprintf(rest, sizeof rest, LINES "%s", SAME[i]);
        Set set = set_open(rest);
        assert_int_equal(set.data->count, 4);
        assert_int_equal(set.data->column_count, 3);
        assert_int_equal(set.data->classes, 0);
        check_sample(&set, 0, "[CLS] = the = [SEP]", WIDTH, -1);
        check_sample(&set, 1, CAT, WIDTH, -1);
        check_sample(&set, 2, "[CLS] \" the , cat [SEP]", WIDTH, -1);
        check_sample(&set, 3, SAT, WIDTH, -1);
        set_close(&set);
    }
    Set set = set_open(LINES ", \"offset\": 1, \"limit\": 1, \"max_length\": 3");
    check_sample(&set, 0, "[CLS] the [SEP]", WIDTH, -1);
    set_close(&set);
}

static void test_bad_lines(void **state) {
    (void)state;
    put("a.txt", "the cat\n\nsat\n");
    refuse(LINES ", \"label\": \"0\"", STATUS_RECIPE, "label: expected none|found '0'");
    refuse(LINES ", \"sentence\": \"text\"", STATUS_RECIPE, "no column 'text'|sentence");
    refuse(LINES ", \"sentence2\": \"b\"", STATUS_RECIPE, "sentence2:|no column 'b'");
    refuse(LINES ", \"limit\": 3", STATUS_RECIPE, "limit|has 2");
    put("a.txt", " \n\t\n\r\n");
    refuse(LINES, STATUS_FORMAT, "a.txt|expected rows, found none");
    put("a.txt", "");
    refuse(LINES, STATUS_FORMAT, "a.txt|expected rows, found none");
    static const char *const BAD[] = {"\xff",
                                      "\x80",
                                      "\xc3",
                                      "\xc3(",
                                      "\xc0\xaf",
                                      "\xe2\x82",
                                      "\xed\xa0\x80",
                                      "\xf0\x9f\x98",
                                      "\xf0\x80\x80\x80",
                                      "\xf4\x90\x80\x80",
                                      "\xfe\xff"};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        char text[64];
        for (int end = 0; end < 2; end++) {
            snprintf(text, sizeof text, "the cat\n \n\xc3\xa9 %s%s", BAD[i],
                     end ? "" : "\nsat\n");
            put("a.txt", text);
            refuse(LINES, STATUS_FORMAT, "a.txt:3:3:|UTF-8");
        }
    }
    char file[300];
    snprintf(file, sizeof file, "%s/a.txt", folder);
    put_file(file, "the\nc\0t\n", 8);
    refuse(LINES, STATUS_FORMAT, "a.txt:2:2:|NUL");
}

#define A "\"path\": \"a.tsv\""

static void test_bad_options(void **state) {
    (void)state;
    put("a.tsv", "sentence\tlabel\nthe cat\t1\nunhappy mat sat\t0\n");
    refuse(A ", \"sentence\": \"text\"", STATUS_RECIPE,
           "sentence:|no column 'text'|sentence, label");
    refuse(A ", \"sentence2\": \"b\"", STATUS_RECIPE, "sentence2:|no column 'b'");
    refuse(A ", \"label\": \"y\"", STATUS_RECIPE, "label:|no column 'y'|no labels");
    refuse(A ", \"sentence\": null", STATUS_RECIPE, "sentence: expected a column");
    refuse(A ", \"header\": false", STATUS_RECIPE, "no column|number from 0 to 1");
    refuse(A ", \"labels\": [\"a\", \"b\"], \"classes\": 3", STATUS_RECIPE,
           "classes: expected 2|found 3");
    refuse(A ", \"labels\": [\"a\", \"b\", \"a\"]", STATUS_RECIPE, "labels:|'a' twice");
    refuse(A ", \"max_length\": 2", STATUS_RECIPE, "max_length: expected at least 3");
    refuse(A ", \"limit\": 3", STATUS_RECIPE, "limit|has 2");
    refuse(A ", \"table\": \"xml\"", STATUS_RECIPE, "table");
    refuse(A ", \"tokens\": 2", STATUS_RECIPE, "tokens|tokenizer");
    refuse("\"path\": \"none.tsv\"", STATUS_IO, "none.tsv");
    refuse("\"sentence\": \"a\"", STATUS_RECIPE, "path");
}

static void test_bad_labels(void **state) {
    (void)state;
    put("a.tsv", "sentence\tlabel\nthe cat\t1\n\nunhappy mat sat\t2\n");
    refuse(A ", \"classes\": 2", STATUS_FORMAT, "a.tsv:4:|from 0 to 1|found '2'");
    refuse(A ", \"labels\": [\"1\", \"yes\"]", STATUS_FORMAT,
           "a.tsv:4:|unknown label '2'|labels: 1, yes");
    static const char *const BAD[] = {"-1",    "1.5",     "x",  "",
                                      "0x1",   "1 ",      " 1", "99999999999999999999",
                                      "1e300", "1000000", "+1"};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        char text[128];
        snprintf(text, sizeof text, "sentence\tlabel\nthe cat\t%s\n", BAD[i]);
        put("a.tsv", text);
        refuse(A, STATUS_FORMAT, "a.tsv:2:|expected a label from 0 to 999999|names");
    }
}

static void test_bad_files(void **state) {
    (void)state;
    put("a.tsv", "sentence\tlabel\nthe cat\t1\nunhappy mat sat\n");
    refuse(A, STATUS_FORMAT, "a.tsv:3:|expected 2 columns, found 1");
    put("a.tsv", "sentence\tlabel\nthe cat\t1\nthe \xff\t0\n");
    refuse(A, STATUS_FORMAT, "a.tsv:3:5:|UTF-8");
    put("a.tsv", "sentence\tlabel\n\nthe cat\t1\n\r\nunhappy\tmat\t0\n");
    refuse(A, STATUS_FORMAT, "a.tsv:5:|expected 2 columns, found 3");
    put("a.tsv", "sentence\tlabel\nthe cat\t1\n \n");
    refuse(A, STATUS_FORMAT, "a.tsv:3:|expected 2 columns, found 1");
    put("a.tsv", "sentence\tsentence\nthe cat\t1\n");
    refuse(A, STATUS_FORMAT, "a.tsv:1:|found 'sentence' twice");
    put("a.tsv", "sentence\tlabel\n");
    refuse(A, STATUS_FORMAT, "a.tsv|found none");
    put("a.tsv", "sentence\tla\xc0\xaf"
                 "bel\nthe cat\t1\n");
    refuse(A, STATUS_FORMAT, "a.tsv:1:12:|UTF-8");
    put("a.csv", "sentence,label\n\"the\ncat\",1\n\"sat,0\n");
    refuse("\"path\": \"a.csv\"", STATUS_FORMAT, "a.csv:4:|never closed");
    put("a.jsonl", "{\"sentence\": \"the cat\", \"label\": 1}\n\n{\"sentence\": [\n");
    refuse("\"path\": \"a.jsonl\"", STATUS_FORMAT, "a.jsonl:3");
    put("a.jsonl",
        "{\"sentence\": \"the cat\", \"label\": 1}\n{\"sentence\": \"cat\"}\n");
    refuse("\"path\": \"a.jsonl\"", STATUS_FORMAT, "a.jsonl:2|label: missing");
    refuse("\"path\": \"a.jsonl\", \"table\": \"csv\"", STATUS_FORMAT,
           "a.jsonl:2:|expected 2 columns, found 1");
}

/* Characters without a padding token: nothing may be padded, and what would be is named.
 */
static void test_no_padding_token(void **state) {
    (void)state;
    char file[300];
    put("chars.json",
        "{\"model\": {\"type\": \"Characters\", \"vocab\": [\"a\", \"b\"]}}");
    put("a.tsv", "sentence\tlabel\nab\t1\naba\t0\n");
    put("equal.tsv", "sentence\tlabel\nab\t1\nba\t0\n");
    snprintf(file, sizeof file, "%s/chars.json", folder);
    set_tokenizer = file;
    refuse(A, STATUS_RECIPE,
           "tokenizer: expected one with a padding token|2 to 3 tokens|chars.json|<pad>");
    Set set = set_open("\"path\": \"equal.tsv\"");
    assert_int_equal(set.data->max_tokens, 2);
    set_close(&set);
    set_tokenizer = TEXT_DATA "vocab.txt";
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables),      cmocka_unit_test(test_padding),
        cmocka_unit_test(test_pairs),       cmocka_unit_test(test_no_labels),
        cmocka_unit_test(test_lines),       cmocka_unit_test(test_bad_lines),
        cmocka_unit_test(test_bad_options), cmocka_unit_test(test_bad_labels),
        cmocka_unit_test(test_bad_files),   cmocka_unit_test(test_no_padding_token)};
    return cmocka_run_group_tests(tests, enter, leave);
}
