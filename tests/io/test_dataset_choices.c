/* Questions with choices and texts with endings: tokens, groups, labels, faults. */
#include "tests/io/text_set.h"

enum { WIDTH = 16 };

typedef struct Row {
    int32_t ids[WIDTH], mask[WIDTH], third[WIDTH], place, label, bytes;
} Row;

static Row row_of(const Set *set, int64_t index) {
    Row row = {.bytes = -1};
    void *const dst[] = {row.ids,    row.mask,   row.third,
                         &row.place, &row.label, &row.bytes};
    const Fetch what = {&index, 1, WIDTH, 0};
    assert_ok(set->data->fetch(set->data, &what, dst, set->bench.diag), set->bench.diag);
    return row;
}

/* Checks tokens between spaces; returns how many there are. */
static int expect_tokens(const Set *set, const int32_t *ids, const char *tokens) {
    char *list = arena_strdup(set->bench.arena, tokens), *left = NULL;
    int length = 0;
    for (char *token = strtok_r(list, " ", &left); token;
         token = strtok_r(NULL, " ", &left))
        assert_int_equal(ids[length++], tokenizer_find(set->bench.tokenizer, token));
    return length;
}

static void expect_pair(const Set *set, int64_t index, const char *tokens, int firsts,
                        int place, int label) {
    const Row row = row_of(set, index);
    const int length = expect_tokens(set, row.ids, tokens);
    for (int i = 0; i < WIDTH; i++) {
        assert_int_equal(row.mask[i], i < length);
        assert_int_equal(row.third[i], i >= firsts && i < length);
    }
    assert_int_equal(row.place, place);
    assert_int_equal(row.label, label);
}

static void check_pairs(const char *rest) {
    set_format = "choices";
    Set set = set_open(rest);
    assert_int_equal(set.data->count, 4);
    assert_int_equal(set.data->group, 2);
    expect_pair(&set, 0, "[CLS] the cat [SEP] on mat [SEP]", 4, 0, 0);
    expect_pair(&set, 1, "[CLS] the cat [SEP] on un ##happy [SEP]", 4, 1, 1);
    expect_pair(&set, 2, "[CLS] mat [SEP] sat cat [SEP]", 3, 0, 1);
    expect_pair(&set, 3, "[CLS] mat [SEP] sat the [SEP]", 3, 1, 0);
    set_close(&set);
}

static void test_pairs(void **state) {
    (void)state;
    put("c.jsonl", "{\"context\": \"the cat\", \"q\": \"on\", \"e\": [\"mat\", "
                   "\"unhappy\"], \"label\": 1}\n"
                   "{\"context\": \"mat\", \"q\": \"sat\", \"e\": [\"cat\", \"the\"], "
                   "\"label\": 0}\n");
    put("c.csv", "text,q,a,b,right\nthe cat,on,mat,unhappy,B\nmat,sat,cat,the,A\n");
    check_pairs("\"path\": \"c.jsonl\", \"question\": \"q\", \"choices\": [\"e\"]");
    check_pairs("\"path\": \"c.csv\", \"context\": \"text\", \"question\": \"q\", "
                "\"choices\": [\"a\", \"b\"], \"label\": \"right\", "
                "\"labels\": [\"A\", \"B\"]");
}

/* Tokens, and which of them are labels: those from number `from` on. */
static void expect_ending(const Set *set, int64_t index, const char *tokens, int from,
                          int right, int bytes) {
    const Row row = row_of(set, index);
    int32_t all[WIDTH + 1];
    memcpy(all, row.ids, sizeof row.ids);
    int length = 0;
    while (length < WIDTH && row.mask[length]) length++;
    for (int i = 0; i < length; i++) {
        assert_int_equal(row.third[i] != INDEX_SKIP, i + 1 >= from);
        if (row.third[i] == INDEX_SKIP) continue;
        if (i + 1 < length) assert_int_equal(row.third[i], row.ids[i + 1]);
        all[i + 1] = row.third[i];
    }
    for (int i = length; i < WIDTH; i++) assert_int_equal(row.third[i], INDEX_SKIP);
    assert_int_equal(expect_tokens(set, all, tokens), length + 1);
    assert_int_equal(row.label, right);
    assert_int_equal(row.bytes, bytes);
    assert_int_equal(set->data->length(set->data, index), length);
}

static void test_endings(void **state) {
    (void)state;
    set_format = "endings";
    put("e.jsonl", "{\"context\": \"the cat\", \"e\": [\"sat.\", \"unhappy mat\"], "
                   "\"label\": 0}\n");
    Set set = set_open("\"path\": \"e.jsonl\", \"choices\": [\"e\"]");
    assert_int_equal(set.data->count, 2);
    assert_int_equal(set.data->group, 2);
    expect_ending(&set, 0, "the cat sat .", 2, 1, 4);
    expect_ending(&set, 1, "the cat un ##happy mat", 2, 0, 11);
    set_close(&set);
    put("lines", "the cat sat on mat \nThe unhappy\n");
    set = set_open("\"path\": \"lines\", \"table\": \"lines\"");
    assert_int_equal(set.data->count, 2);
    assert_int_equal(batches_group(set.data), 1);
    expect_ending(&set, 0, "the cat sat on mat", 4, 1, 3);
    set_close(&set);
    /* what is cut goes at the start */
    set = set_open("\"path\": \"lines\", \"table\": \"lines\", \"max_length\": 3");
    expect_ending(&set, 0, "cat sat on mat", 3, 1, 3);
    set_close(&set);
}

/* A token for the beginning that the text itself has stands there once. */
static void test_begun(void **state) {
    (void)state;
    set_format = "endings";
    set_tokenizer = TEXT_DATA "bytes/tokenizer.json";
    put("lines", "<|endoftext|>the the\n");
    Set set = set_open("\"path\": \"lines\", \"table\": \"lines\"");
    expect_ending(&set, 0, "<|endoftext|> the Ġthe", 2, 1, 3);
    set_close(&set);
    set_tokenizer = TEXT_DATA "vocab.txt";
}

static void test_faults(void **state) {
    (void)state;
    set_format = "choices";
    put("c.jsonl", "{\"context\": \"the\", \"e\": [\"mat\", \"cat\"], \"label\": 0}\n"
                   "{\"context\": \"mat\", \"e\": [\"cat\", \"the\", \"on\"], "
                   "\"label\": 0}\n");
    refuse("\"path\": \"c.jsonl\", \"choices\": [\"e\"]", STATUS_FORMAT,
           "c.jsonl:2|expected 2 choices|found 3");
    put("c.jsonl", "{\"context\": \"the\", \"e\": [\"mat\"], \"label\": 0}\n");
    refuse("\"path\": \"c.jsonl\", \"choices\": [\"e\"]", STATUS_FORMAT,
           "at least 2 choices, found 1");
    put("c.jsonl", "{\"context\": \"the\", \"e\": [\"mat\", \"cat\"], \"label\": 2}\n");
    refuse("\"path\": \"c.jsonl\", \"choices\": [\"e\"]", STATUS_FORMAT,
           "label from 0 to 1, found '2'");
    refuse("\"path\": \"c.jsonl\"", STATUS_RECIPE, "choices: expected 1 to");
    refuse("\"path\": \"c.jsonl\", \"choices\": [\"f\"]", STATUS_RECIPE, "choices|'f'");
    set_format = "endings";
    put("lines", "the cat\nword\n");
    refuse("\"path\": \"lines\", \"table\": \"lines\"", STATUS_FORMAT,
           "lines:2|at least two words");
}

/* A list of `count` choices. */
static void put_many(int count) {
    Text json = {0};
    text_add(&json, "{\"context\": \"the\", \"label\": 0, \"e\": [\"a\"");
    for (int i = 1; i < count; i++) text_add(&json, ",\"a\"");
    text_add(&json, "]}\n");
    put("many.jsonl", json.data);
    text_free(&json);
}

static void test_many(void **state) {
    (void)state;
    set_format = "choices";
    put_many(1024);
    Set set = set_open("\"path\": \"many.jsonl\", \"choices\": [\"e\"]");
    assert_int_equal(set.data->count, 1024);
    assert_int_equal(set.data->group, 1024);
    set_close(&set);
    put_many(1025);
    refuse("\"path\": \"many.jsonl\", \"choices\": [\"e\"]", STATUS_FORMAT,
           "many.jsonl:1|choices: expected at most 1024 choices, found 1025");
}

/* A tokenizer without special tokens makes nothing of two empty texts. */
static void test_empty(void **state) {
    (void)state;
    set_format = "choices";
    put("c.jsonl", "{\"context\": \"the\", \"e\": [\"a\", \"e\"], \"label\": 0}\n"
                   "{\"context\": \"\", \"e\": [\"a\", \"\"], \"label\": 0}\n");
    Set set = set_open("\"path\": \"c.jsonl\", \"choices\": [\"e\"]");
    expect_pair(&set, 3, "[CLS] [SEP] [SEP]", 2, 1, 0);
    set_close(&set);
    set_tokenizer = TEXT_DATA "bytes/tokenizer.json";
    refuse("\"path\": \"c.jsonl\", \"choices\": [\"e\"]", STATUS_FORMAT,
           "c.jsonl:2|without tokens");
    set_tokenizer = TEXT_DATA "vocab.txt";
}

static void test_room(void **state) {
    (void)state;
    set_format = "choices";
    put("c.jsonl", "{\"context\": \"the\", \"e\": [\"a\", \"e\"], \"label\": 0}\n");
    refuse("\"path\": \"c.jsonl\", \"choices\": [\"e\"], \"max_length\": 4",
           STATUS_RECIPE, "recipe|max_length: expected at least 5|found 4");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs), cmocka_unit_test(test_endings),
        cmocka_unit_test(test_begun), cmocka_unit_test(test_faults),
        cmocka_unit_test(test_many),  cmocka_unit_test(test_empty),
        cmocka_unit_test(test_room),
    };
    return cmocka_run_group_tests_name("choices", tests, enter, leave);
}
