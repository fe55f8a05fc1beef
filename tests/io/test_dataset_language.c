/* Language data sets: windows, labels, parts, documents and characters by hand. */
#include "tests/io/text_set.h"
#include "tests/support/rounding.h"

#include <math.h>

enum { MOST = 64 };

/* Checks the two columns of window `index`: `length` + 1 tokens between spaces, of which
 * the labels are all but the first. */
static void check_window(const Set *set, int64_t index, const char *tokens) {
    int32_t ids[MOST], labels[MOST], wanted[MOST + 1];
    const int64_t length = set->data->columns[0].type.dim[0];
    const Fetch what = {.index = &index, .n = 1};
    char *list = arena_strdup(set->bench.arena, tokens), *left = NULL;
    int64_t count = 0;
    for (char *token = strtok_r(list, " ", &left); token;
         token = strtok_r(NULL, " ", &left))
        wanted[count++] = tokenizer_find(set->bench.tokenizer, token);
    assert_int_equal(count, length + 1);
    assert_ok(
        set->data->fetch(set->data, &what, (void *[]){ids, labels}, set->bench.diag),
        set->bench.diag);
    assert_memory_equal(ids, wanted, (size_t)length * sizeof *ids);
    assert_memory_equal(labels, wanted + 1, (size_t)length * sizeof *ids);
}

/* All tokens of a text, from its windows of one token. */
static const char *stream_text(const char *rest) {
    static char text[4096];
    Set set = set_open(rest);
    int32_t id = 0, label = 0;
    size_t at = 0;
    assert_int_equal(set.data->columns[0].type.dim[0], 1);
    for (int64_t i = 0; i < set.data->count; i++) {
        const Fetch what = {.index = &i, .n = 1};
        assert_ok(
            set.data->fetch(set.data, &what, (void *[]){&id, &label}, set.bench.diag),
            set.bench.diag);
        if (i == 0)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s",
                                   tokenizer_token(set.bench.tokenizer, id));
        at += (size_t)snprintf(text + at, sizeof text - at, " %s",
                               tokenizer_token(set.bench.tokenizer, label));
    }
    set_close(&set);
    return text;
}

static void put_eight(void) {
    put("a.txt", "the cat sat on the mat the cat\n");
}

/* --- windows --- */

static void test_windows(void **state) {
    (void)state;
    put_eight();
    Set set = set_open("\"path\": \"a.txt\", \"length\": 3");
    const Batches *data = set.data;
    assert_int_equal(data->count, 2);
    assert_int_equal(data->column_count, 2);
    assert_string_equal(data->columns[0].name, "input_ids");
    assert_string_equal(data->columns[1].name, "labels");
    for (int c = 0; c < 2; c++) {
        assert_int_equal(data->columns[c].type.dtype, DTYPE_I32);
        assert_int_equal(data->columns[c].type.rank, 1);
        assert_int_equal(data->columns[c].type.dim[0], 3);
    }
    assert_null(data->length);
    assert_null(data->masked);
    assert_int_equal(data->classes, tokenizer_size(set.bench.tokenizer));
    assert_true(data->label_characters == 31.0 / 8);
    check_window(&set, 0, "the cat sat on");
    check_window(&set, 1, "on the mat the");
    set_close(&set);
}

static void test_stride(void **state) {
    (void)state;
    put_eight();
    Set set = set_open("\"path\": \"a.txt\", \"length\": 4, \"stride\": 1");
    assert_int_equal(set.data->count, 4);
    check_window(&set, 0, "the cat sat on the");
    check_window(&set, 3, "on the mat the cat");
    set_close(&set);
    set = set_open("\"path\": \"a.txt\", \"length\": 1, \"stride\": 3");
    assert_int_equal(set.data->count, 3);
    check_window(&set, 2, "the cat");
    set_close(&set);
    set = set_open("\"path\": \"a.txt\", \"length\": 7");
    assert_int_equal(set.data->count, 1);
    check_window(&set, 0, "the cat sat on the mat the cat");
    assert_int_equal(diag_status(set.bench.diag), STATUS_OK);
    set_close(&set);
}

static void test_slice(void **state) {
    (void)state;
    put_eight();
    Set set = set_open("\"path\": \"a.txt\", \"length\": 2, \"offset\": 1, \"limit\": 2");
    assert_int_equal(set.data->count, 2);
    check_window(&set, 0, "sat on the");
    check_window(&set, 1, "the mat the");
    set_close(&set);
    refuse("\"path\": \"a.txt\", \"length\": 2, \"offset\": 2, \"limit\": 2",
           STATUS_RECIPE, "limit|at least 2 samples from 2 on|has 3");
}

/* A column that is not wanted is left out; no sample lies beyond the last. */
static void test_fetch(void **state) {
    (void)state;
    put_eight();
    Set set = set_open("\"path\": \"a.txt\", \"length\": 3");
    const int64_t both[] = {1, 0}, beyond = 2;
    int32_t labels[6];
    const Fetch what = {.index = both, .n = 2}, bad = {.index = &beyond, .n = 1};
    assert_true(set.data->partial);
    assert_ok(set.data->fetch(set.data, &what, (void *[]){NULL, labels}, set.bench.diag),
              set.bench.diag);
    assert_int_equal(labels[0], tokenizer_find(set.bench.tokenizer, "the"));
    assert_int_equal(labels[3], tokenizer_find(set.bench.tokenizer, "cat"));
    assert_int_equal(
        set.data->fetch(set.data, &bad, (void *[]){NULL, labels}, set.bench.diag),
        STATUS_INTERNAL);
    set_close(&set);
}

/* The rest of the text is named when it is more than 1 %. */
static void test_rest(void **state) {
    (void)state;
    put_eight();
    Set set = set_open("\"path\": \"a.txt\", \"length\": 4");
    char *message = diag_text(set.bench.diag);
    assert_non_null(strstr(message, "warning"));
    assert_non_null(strstr(message, "the last 3 of 8 tokens"));
    free(message);
    set_close(&set);
    set = set_open("\"path\": \"a.txt\", \"length\": 7");
    message = diag_text(set.bench.diag);
    assert_string_equal(message, "");
    free(message);
    set_close(&set);
}

/* --- parts of the text, documents --- */

#define ONE "\"path\": \"a.txt\", \"length\": 1"

static void test_parts(void **state) {
    (void)state;
    put_eight(); /* 31 bytes: 0.5 is offset 15, "the mat the cat" */
    assert_string_equal(stream_text(ONE ", \"to\": 0.5"), "the cat sat on");
    assert_string_equal(stream_text(ONE ", \"from\": 0.5"), "the mat the cat");
    assert_string_equal(stream_text(ONE ", \"from\": 0.25, \"to\": 0.5"), "sat on");
    refuse(ONE ", \"from\": 0.5, \"to\": 0.5", STATUS_RECIPE, "from|from 0.5 and to 0.5");
    refuse(ONE ", \"from\": 0.97", STATUS_RECIPE, "length|more than 1 tokens|has 0");
}

/* Parts meet between characters, wherever the shares fall. */
static void test_parts_of_characters(void **state) {
    (void)state;
    put("a.txt", "\xEF\xBB\xBF" /* byte order mark */
                 "\xE4\xB8\x80\xE4\xBA\x8C\xE4\xB8\x89 the cat");
    int known = 0;
    for (int cut = 1; cut < 17; cut++) {
        char rest[128];
        double characters = 0;
        for (int half = 0; half < 2; half++) {
            snprintf(rest, sizeof rest, ONE ", \"%s\": %.17g", half ? "from" : "to",
                     (cut + 0.01) / 17);
            Set set = {.bench = bench_open(NULL)};
            if (set_load(&set, rest) == STATUS_OK)
                characters += set.data->label_characters * (double)(set.data->count + 1);
            else /* less than two tokens; nothing was damaged */
                assert_int_equal(diag_status(set.bench.diag), STATUS_RECIPE);
            if (!set.data) characters = NAN;
            set_close(&set);
        }
        if (!isnan(characters))
            assert_within(characters, 11, rounding_tolerance(PRECISION_F64, 8, 11));
        known += !isnan(characters);
    }
    assert_true(known >= 6);
}

static void test_documents(void **state) {
    (void)state;
    put("a.txt", "---\nthe cat\n---\r\nsat on\n---\n---\nthe --- mat\n---");
    assert_string_equal(stream_text(ONE ", \"separator\": \"---\""),
                        "the cat sat on the - - - mat");
    Set set = set_open(ONE ", \"separator\": \"---\"");
    assert_true(set.data->label_characters == (8 + 7 + 12) / 9.0);
    set_close(&set);
    refuse(ONE ", \"separator\": \"---\", \"add_bos\": true", STATUS_RECIPE,
           "add_bos|beginning of a text");
}

static void test_lowercase(void **state) {
    (void)state;
    put("a.txt", "THE Cat SAT");
    assert_string_equal(stream_text(ONE ", \"lowercase\": true"), "the cat sat");
}

/* --- characters --- */

static const char CHARACTERS[] =
    "{\"added_tokens\": [{\"id\": 4, \"content\": \"<s>\", \"special\": true}],\n"
    " \"model\": {\"type\": \"Characters\","
    " \"vocab\": [\"a\", \"b\", \"\\n\", \"\u00e9\"]}}";

/* Opens `rest` with the tokenizer above. */
static Set open_characters(const char *rest) {
    char file[300];
    const char *before = set_tokenizer;
    put("tokenizer.json", CHARACTERS);
    snprintf(file, sizeof file, "%s/tokenizer.json", folder);
    set_tokenizer = file;
    Set set = set_open(rest);
    set_tokenizer = before;
    return set;
}

static void check_ids(const Set *set, const int32_t *wanted, int64_t count) {
    const int64_t first = 0;
    int32_t ids[MOST], labels[MOST];
    const Fetch what = {.index = &first, .n = 1};
    assert_int_equal(set->data->columns[0].type.dim[0], count - 1);
    assert_ok(
        set->data->fetch(set->data, &what, (void *[]){ids, labels}, set->bench.diag),
        set->bench.diag);
    assert_memory_equal(ids, wanted, (size_t)(count - 1) * sizeof *ids);
    assert_memory_equal(labels, wanted + 1, (size_t)(count - 1) * sizeof *ids);
}

/* Every character is a token; those that are left out stand for nothing. */
static void test_characters(void **state) {
    (void)state;
    put("a.txt", "aB?b\n\xC3\x89!");
    Set set = open_characters("\"path\": \"a.txt\", \"length\": 4,"
                              " \"lowercase\": true, \"skip_unknown\": true");
    check_ids(&set, (const int32_t[]){0, 1, 1, 2, 3}, 5);
    assert_true(set.data->label_characters == 1);
    set_close(&set);
}

/* A token for the beginning stands for no character. */
static void test_beginnings(void **state) {
    (void)state;
    put("a.txt", "ab\n--\n--\nba");
    Set set = open_characters("\"path\": \"a.txt\", \"length\": 6,"
                              " \"separator\": \"--\", \"add_bos\": true");
    check_ids(&set, (const int32_t[]){4, 0, 1, 2, 4, 1, 0}, 7);
    assert_true(set.data->label_characters == 5.0 / 7);
    set_close(&set);
    set = open_characters("\"path\": \"a.txt\", \"length\": 3, \"to\": 0.3,"
                          " \"add_bos\": true");
    check_ids(&set, (const int32_t[]){4, 0, 1, 2}, 4);
    set_close(&set);
}

/* The data that is shipped: 38 characters, one each. */
static void test_shipped(void **state) {
    (void)state;
    const char *before = set_tokenizer;
    char rest[600], *text = realpath("recipes/data/shakespeare/text.txt", NULL);
    set_tokenizer = "recipes/data/shakespeare/tokenizer.json";
    snprintf(rest, sizeof rest, "\"path\": \"%s\", \"length\": 100, \"lowercase\": true",
             text);
    Set set = set_open(rest);
    assert_int_equal(set.data->classes, 38);
    assert_int_equal(set.data->count, (199995 - 1) / 100);
    assert_true(set.data->label_characters == 1);
    set_close(&set);
    set_tokenizer = before;
    free(text);
}

/* --- what is refused --- */

static void test_refused(void **state) {
    (void)state;
    put("a.txt", "the cat");
    refuse("\"path\": \"a.txt\"", STATUS_RECIPE,
           "length|more than 128 tokens|a.txt has 2|smaller 'length'");
    refuse("\"path\": \"a.txt\", \"length\": 2", STATUS_RECIPE, "more than 2|has 2");
    refuse("\"path\": \"none.txt\"", STATUS_IO, "none.txt");
    refuse("\"path\": \"a.txt\", \"from\": 2", STATUS_RECIPE, "from|between 0 and 1");
    refuse("\"path\": \"a.txt\", \"window\": 2", STATUS_RECIPE, "window");
    put("b.txt", "the\ncat \xFF sat");
    refuse("\"path\": \"b.txt\"", STATUS_FORMAT, "b.txt:2:5|UTF-8");
    put("c.txt", "");
    refuse("\"path\": \"c.txt\"", STATUS_RECIPE, "c.txt has 0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_stride),
        cmocka_unit_test(test_slice),
        cmocka_unit_test(test_fetch),
        cmocka_unit_test(test_rest),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_parts_of_characters),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_lowercase),
        cmocka_unit_test(test_characters),
        cmocka_unit_test(test_beginnings),
        cmocka_unit_test(test_shipped),
        cmocka_unit_test(test_refused),
    };
    set_format = "language";
    return cmocka_run_group_tests(tests, enter, leave);
}
