/* Text data sets whose labels are several, or numbers; and sentences of tagged words. */
#include "tests/io/text_set.h"

#include <math.h>

enum { WIDTH = 12 };

/* ---- several labels, values ---- */

/* Checks the labels of all samples, one after another. */
static void check_targets(const char *rest, int64_t width, const float *wanted,
                          const char *const *names) {
    Set set = set_open(rest);
    const int column = batches_column(set.data, "labels");
    assert_int_equal(column, 3);
    const Type *type = &set.data->columns[column].type;
    assert_true(type->dtype == DTYPE_F32 && type->rank == 1 && type->dim[0] == width);
    assert_int_equal(set.data->classes, width);
    assert_int_equal(set.data->class_names != NULL, names != NULL);
    for (int64_t l = 0; names && l < width; l++)
        assert_string_equal(set.data->class_names[l], names[l]);
    for (int64_t i = 0; i < set.data->count; i++) {
        int32_t ids[WIDTH], mask[WIDTH], types[WIDTH];
        float found[WIDTH] = {0};
        void *const dst[] = {ids, mask, types, found};
        const Fetch what = {&i, 1, WIDTH, 0};
        assert_ok(set.data->fetch(set.data, &what, dst, set.bench.diag), set.bench.diag);
        assert_memory_equal(found, wanted + i * width, (size_t)width * sizeof(float));
    }
    set_close(&set);
}

static const char *const TAGS[] = {"red", "green", "blue"};
static const float THREE[] = {1, 0, 1, 0, 0, 0, 0, 1, 0};

static void test_several_labels(void **state) {
    (void)state;
    put("a.jsonl", "{\"sentence\": \"the cat\", \"label\": [\"blue\", \"red\"]}\n"
                   "{\"sentence\": \"sat\", \"label\": []}\n"
                   "{\"sentence\": \"mat\", \"label\": [\"green\"]}\n");
    put("n.jsonl", "{\"sentence\": \"the cat\", \"label\": [2, 0]}\n"
                   "{\"sentence\": \"sat\", \"label\": []}\n"
                   "{\"sentence\": \"mat\", \"label\": 1}\n");
    put("a.tsv", "sentence\tlabel\nthe cat\tblue | red\nsat\t\nmat\tgreen|\n");
    put("a.csv",
        "red,sentence,green,blue\n1,the cat,0,true\n0,sat,0,0\nfalse,mat,1,0.0\n");
    check_targets("\"path\": \"a.jsonl\", \"targets\": \"labels\","
                  " \"labels\": [\"red\", \"green\", \"blue\"]",
                  3, THREE, TAGS);
    check_targets("\"path\": \"n.jsonl\", \"targets\": \"labels\"", 3, THREE, NULL);
    check_targets("\"path\": \"a.tsv\", \"targets\": \"labels\", \"separator\": \"|\","
                  " \"labels\": [\"red\", \"green\", \"blue\"]",
                  3, THREE, TAGS);
    check_targets("\"path\": \"a.csv\", \"targets\": \"labels\","
                  " \"columns\": [\"red\", \"green\", \"blue\"]",
                  3, THREE, TAGS);
    check_targets("\"path\": \"n.jsonl\", \"targets\": \"labels\", \"offset\": 2,"
                  " \"classes\": 4",
                  4, (const float[]){0, 1, 0, 0}, NULL);
    static const char *const OTHER[] = {"r", "g", "b"};
    check_targets("\"path\": \"a.csv\", \"targets\": \"labels\","
                  " \"columns\": [\"red\", \"green\", \"blue\"],"
                  " \"labels\": [\"r\", \"g\", \"b\"]",
                  3, THREE, OTHER);
}

static void test_values(void **state) {
    (void)state;
    put("v.tsv", "sentence\tlabel\tx\nthe cat\t-1.5\t2e1\nsat\t0.25\t3\n");
    put("v.jsonl", "{\"sentence\": \"the cat\", \"label\": [-1.5, 20]}\n"
                   "{\"sentence\": \"sat\", \"label\": [0.25, 3]}\n");
    static const float BOTH[] = {-1.5f, 20, 0.25f, 3}, FIRST[] = {-1.5f, 0.25f};
    check_targets("\"path\": \"v.tsv\", \"targets\": \"values\"", 1, FIRST, NULL);
    check_targets("\"path\": \"v.tsv\", \"targets\": \"values\","
                  " \"columns\": [\"label\", \"x\"]",
                  2, BOTH, NULL);
    check_targets("\"path\": \"v.jsonl\", \"targets\": \"values\"", 2, BOTH, NULL);
}

static void test_bad_targets(void **state) {
    (void)state;
    static const struct {
        const char *file, *text, *rest;
        Status status;
        const char *parts;
    } CASES[] = {
        {"b.tsv", "sentence\tlabel\nsat\tred,pink\n",
         "\"targets\": \"labels\", \"labels\": [\"red\"]", STATUS_FORMAT, "b.tsv:2|pink"},
        {"b.tsv", "sentence\tlabel\nsat\t0\nmat\t1,-2\n", "\"targets\": \"labels\"",
         STATUS_FORMAT, "b.tsv:3|'-2'"},
        {"b.tsv", "sentence\tlabel\nsat\t99999999999999999999\n",
         "\"targets\": \"labels\"", STATUS_FORMAT, "b.tsv:2|number of a label"},
        {"b.tsv", "sentence\tlabel\nsat\t3\n", "\"targets\": \"labels\", \"classes\": 3",
         STATUS_FORMAT, "b.tsv:2|number of a label"},
        {"b.tsv", "sentence\tlabel\nsat\t\n", "\"targets\": \"labels\"", STATUS_FORMAT,
         "rows with labels, found none"},
        {"b.tsv", "sentence\tlabel\nsat\tx\n", "\"targets\": \"values\"", STATUS_FORMAT,
         "b.tsv:2|a number, found 'x'"},
        {"b.tsv", "sentence\tlabel\nsat\tnan\n", "\"targets\": \"values\"", STATUS_FORMAT,
         "b.tsv:2|a number"},
        {"b.tsv", "sentence\tlabel\nsat\t1e39\n", "\"targets\": \"values\"",
         STATUS_FORMAT, "b.tsv:2|a number"},
        {"b.tsv", "sentence\tlabel\nsat\t1,2\nmat\t1\n", "\"targets\": \"values\"",
         STATUS_FORMAT, "b.tsv:3|2 numbers"},
        {"b.tsv", "sentence\tlabel\nsat\t\n", "\"targets\": \"values\"", STATUS_FORMAT,
         "b.tsv:2|1 number"},
        {"b.tsv", "sentence\tlabel\nsat\t2\n",
         "\"targets\": \"labels\", \"columns\": [\"label\"]", STATUS_FORMAT,
         "b.tsv:2|0 or 1, found '2'"},
        {"b.tsv", "sentence\tlabel\nsat\t2\n",
         "\"targets\": \"labels\", \"columns\": [\"none\"]", STATUS_RECIPE,
         "columns|no column 'none'"},
        {"b.tsv", "sentence\tlabel\nsat\t2\n", "\"columns\": [\"label\"]", STATUS_RECIPE,
         "columns|targets: labels or values"},
        {"b.tsv", "sentence\tlabel\nsat\t2\n",
         "\"targets\": \"values\", \"labels\": [\"a\"]", STATUS_RECIPE, "no names"},
        {"b.tsv", "sentence\tlabel\nsat\t2\n",
         "\"targets\": \"labels\", \"columns\": [\"label\"], \"labels\": [\"a\", \"b\"]",
         STATUS_RECIPE, "1 names, one for each of 'columns', found 2"},
        {"b.jsonl", "{\"sentence\": \"sat\", \"label\": [[1]]}\n",
         "\"targets\": \"labels\"", STATUS_FORMAT, "b.jsonl:1|a string or a number"},
        {"b.jsonl", "{\"sentence\": \"sat\", \"label\": [\"a\\u001fb\"]}\n",
         "\"targets\": \"labels\"", STATUS_FORMAT, "b.jsonl:1|U+001F"},
        {"b.jsonl", "{\"sentence\": \"sat\", \"label\": [1]}\n", "\"classes\": 2",
         STATUS_FORMAT, "b.jsonl:1|found list"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char rest[256];
        put(CASES[i].file, CASES[i].text);
        snprintf(rest, sizeof rest, "\"path\": \"%s\", %s", CASES[i].file, CASES[i].rest);
        refuse(rest, CASES[i].status, CASES[i].parts);
    }
}

/* ---- tagged words ---- */

/* Checks the tokens of a sample and their labels, "." for none, special ones with them.
 */
static void check_sentence(const Set *set, int64_t index, const char *tokens,
                           const char *labels) {
    int32_t ids[WIDTH], mask[WIDTH], types[WIDTH], found[WIDTH];
    void *const dst[] = {ids, mask, types, found};
    const Fetch what = {&index, 1, WIDTH, 0};
    char *list = arena_strdup(set->bench.arena, tokens), *left = NULL;
    int length = 0;
    assert_ok(set->data->fetch(set->data, &what, dst, set->bench.diag), set->bench.diag);
    for (char *token = strtok_r(list, " ", &left); token;
         token = strtok_r(NULL, " ", &left), length++) {
        assert_int_equal(ids[length], tokenizer_find(set->bench.tokenizer, token));
        assert_true(mask[length] == 1 && types[length] == 0);
        assert_int_equal(found[length],
                         labels[length] == '.' ? INDEX_SKIP : labels[length] - '0');
    }
    assert_int_equal(labels[length], 0);
    assert_int_equal(set->data->length(set->data, index), length);
    for (; length < WIDTH; length++) {
        assert_true(ids[length] == 0 && mask[length] == 0);
        assert_int_equal(found[length], INDEX_SKIP);
    }
}

#define CAT "[CLS] the un ##happy cat [SEP]"
#define SAT "[CLS] sat [SEP]"

static void check_tagged(const char *rest) {
    Set set = set_open(rest);
    assert_int_equal(set.data->count, 2);
    assert_int_equal(set.data->classes, 3);
    assert_int_equal(set.data->max_tokens, 6);
    check_sentence(&set, 0, CAT, ".01.2.");
    check_sentence(&set, 1, SAT, ".0.");
    set_close(&set);
}

#define NAMES "\"labels\": [\"O\", \"B-X\", \"I-X\"]"

static void test_tagged(void **state) {
    (void)state;
    set_format = "tokens";
    put("a.conll", "-DOCSTART- -X- O\n\nthe DT O\nunhappy\tJJ  B-X\r\ncat NN I-X\n\n \n"
                   "-DOCSTART- O O\nsat VB O");
    put("b.txt", "O the\nB-X unhappy\nI-X cat\n\nO sat\n\n");
    put("n.conll", "the 0\nunhappy 1\ncat 2\n\nsat 0\n");
    put("a.jsonl", "{\"tokens\": [\"the\", \"unhappy\", \"cat\"],"
                   " \"ner_tags\": [\"O\", \"B-X\", \"I-X\"]}\n\n"
                   "{\"tokens\": [\"sat\"], \"id\": 3, \"ner_tags\": [\"O\"]}\n");
    put("n.json", "{\"words\": [\"the\", \"unhappy\", \"cat\"], \"tags\": [0, 1, 2]}\n"
                  "{\"words\": [], \"tags\": []}\n"
                  "{\"words\": [\"sat\"], \"tags\": [0]}\n");
    check_tagged("\"path\": \"a.conll\", " NAMES);
    check_tagged("\"path\": \"a.conll\", \"label\": \"2\", \"word\": \"0\", " NAMES);
    check_tagged("\"path\": \"b.txt\", \"label\": \"0\", \"word\": \"1\", " NAMES);
    check_tagged("\"path\": \"n.conll\"");
    check_tagged("\"path\": \"a.jsonl\", " NAMES);
    check_tagged("\"path\": \"n.json\", \"word\": \"words\", \"label\": \"tags\"");
    check_tagged(
        "\"path\": \"n.json\", \"word\": \"words\", \"label\": \"tags\", " NAMES);
    Set set = set_open("\"path\": \"a.conll\", \"label\": \"\", \"offset\": 1");
    assert_int_equal(set.data->column_count, 3);
    assert_int_equal(set.data->count, 1);
    set_close(&set);
    put("config.json", "{\"id2label\": {\"0\": \"O\", \"1\": \"B-X\", \"2\": \"I-X\"}}");
    check_tagged("\"path\": \"a.conll\", \"config\": \"config.json\"");
}

/* What does not fit is left out and told. */
static void test_cut(void **state) {
    (void)state;
    set_format = "tokens";
    Set set = set_open("\"path\": \"a.conll\", \"max_length\": 4, " NAMES);
    check_sentence(&set, 0, "[CLS] the un [SEP]", ".01.");
    char *message = diag_text(set.bench.diag);
    assert_non_null(strstr(message, "1 of 2 sentences have more than 4 tokens and are "
                                    "cut: 1 words are left out"));
    free(message);
    set_close(&set);
}

static void test_bad_tagged(void **state) {
    (void)state;
    static const struct {
        const char *file, *text, *rest;
        Status status;
        const char *parts;
    } CASES[] = {
        {"b.conll", "the O\ncat\n", NAMES, STATUS_FORMAT, "b.conll:2|2 columns, found 1"},
        {"b.conll", "the O\ncat O\n", "\"label\": \"3\", " NAMES, STATUS_FORMAT,
         "b.conll:1|4 columns, found 2"},
        {"b.conll", "sat O\n\nthe O\ncat B-Y\n", NAMES, STATUS_FORMAT,
         "b.conll:3|found 'B-Y'"},
        {"b.conll", "the O\n", "\"limit\": 1", STATUS_FORMAT, "b.conll:1|from 0|'O'"},
        {"b.conll", "the 1x\n", "\"limit\": 1", STATUS_FORMAT, "b.conll:1|'1x'"},
        {"b.conll", "the 2\n", "\"classes\": 2", STATUS_FORMAT, "b.conll:1|from 0 to 1"},
        {"b.conll", "the O\n", "\"word\": \"x\"", STATUS_RECIPE, "word|number of a"},
        {"b.conll", "\n-DOCSTART- O\n \n", NAMES, STATUS_FORMAT, "found none"},
        {"b.jsonl", "{\"tokens\": [\"the\"], \"ner_tags\": []}\n", NAMES, STATUS_FORMAT,
         "b.jsonl:1|1 labels, one for each of 'tokens', found 0"},
        {"b.jsonl", "{\"tokens\": \"the\", \"ner_tags\": []}\n", NAMES, STATUS_FORMAT,
         "b.jsonl:1|tokens: expected a list, found string"},
        {"b.jsonl", "{\"tokens\": [\"the\"]}\n", NAMES, STATUS_FORMAT,
         "ner_tags: expected a list, found none"},
        {"b.jsonl", "{\"tokens\": [1], \"ner_tags\": [1]}\n", NAMES, STATUS_FORMAT,
         "tokens: expected texts, found integer"},
        {"b.jsonl", "{\"tokens\": [\"a\"], \"ner_tags\": [1.5]}\n", NAMES, STATUS_FORMAT,
         "ner_tags: expected texts or integers"},
        {"b.jsonl", "[]\n", NAMES, STATUS_FORMAT, "expected a list, found none"},
        {"b.conll", "the O\n", "\"max_length\": 2, " NAMES, STATUS_RECIPE, "at least 3"},
        {"b.conll", "the O\n", "\"labels\": [\"O\", \"O\"]", STATUS_RECIPE, "twice"},
        {"b.conll", "the O\n", "\"classes\": 3, \"labels\": [\"O\"]", STATUS_RECIPE,
         "classes|expected 1"},
    };
    set_format = "tokens";
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char rest[256];
        put(CASES[i].file, CASES[i].text);
        snprintf(rest, sizeof rest, "\"path\": \"%s\", %s", CASES[i].file, CASES[i].rest);
        refuse(rest, CASES[i].status, CASES[i].parts);
    }
}

/* Words of a tokenizer whose tokens begin with a space get one each; special tokens are
 * of no word. */
static void test_words(void **state) {
    (void)state;
    static const char *const PATHS[] = {TEXT_DATA "vocab.txt", TEXT_DATA "bytes"};
    for (int k = 0; k < 2; k++) {
        Bench bench = bench_open(PATHS[k]);
        Encoding whole = {0}, words = {0};
        const TextSpan list[] = {{"the", 3}, {"cat", 3}, {"", 0}, {"sat", 3}};
        const char *text = k == 0 ? "the cat sat" : " the cat sat";
        assert_ok(tokenizer_encode(bench.tokenizer, &whole,
                                   (TextSpan){text, strlen(text)}, NULL, 0, LOC_NONE,
                                   bench.diag),
                  bench.diag);
        const TextSpan *given = list;
        assert_ok(tokenizer_encode_words(bench.tokenizer, &words, given, k == 0 ? 4 : 2,
                                         0, LOC_NONE, bench.diag),
                  bench.diag);
        const size_t same = k == 0 ? whole.length : words.length;
        assert_memory_equal(whole.ids, words.ids, same * sizeof *words.ids);
        int32_t before = 0;
        for (size_t i = 0; i < words.length; i++) {
            assert_true(words.words[i] == -1 || words.words[i] >= before);
            assert_true(words.words[i] != 2);
            if (words.words[i] >= 0) before = words.words[i];
        }
        assert_int_equal(before, k == 0 ? 3 : 1);
        encoding_free(&whole);
        encoding_free(&words);
        bench_close(&bench);
    }
}

/* What only the files tell: names beside `classes`, sentences that give no tokens. */
static void test_odd_tagged(void **state) {
    (void)state;
    set_format = "tokens";
    put("n.conll", "the O\nsat I-X\n");
    put("config.json", "{\"id2label\": {\"0\": \"O\", \"1\": \"B-X\", \"2\": \"I-X\"}}");
    refuse("\"path\": \"n.conll\", \"config\": \"config.json\", \"classes\": 2",
           STATUS_RECIPE, "classes: expected 3, one for each name|found 2");
    put("letters.json", "{\"model\": {\"type\": \"Characters\", \"vocab\": [\"a\"]}}");
    put("e.jsonl", "{\"tokens\": [\"a\"], \"ner_tags\": [0]}\n"
                   "{\"tokens\": [\"\"], \"ner_tags\": [0]}\n");
    snprintf(path, sizeof path, "%s/letters.json", folder);
    set_tokenizer = path;
    refuse("\"path\": \"e.jsonl\"", STATUS_FORMAT, "e.jsonl:2|without tokens");
    set_tokenizer = TEXT_DATA "vocab.txt";
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_several_labels),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_bad_targets),
        cmocka_unit_test(test_tagged),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_bad_tagged),
        cmocka_unit_test(test_odd_tagged),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
