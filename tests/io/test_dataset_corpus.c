/* Corpora: windows by places in the bytes of text and JSON Lines, against the tokens of
 * what stands there, by hand and by a plain reading of the whole. */
#include "io/tokenizers/unicode.h"
#include "tests/io/text_set.h"

#include <sys/stat.h>

enum { MOST = 64 };

/* The tokens of window `index`: its ids and the last label, between spaces. */
static const char *window(const Set *set, int64_t index) {
    static char text[1024];
    int32_t ids[MOST], labels[MOST];
    const int64_t length = set->data->columns[0].type.dim[0];
    const Fetch what = {.index = &index, .n = 1};
    size_t at = 0;
    assert_true(length < MOST);
    assert_ok(
        set->data->fetch(set->data, &what, (void *[]){ids, labels}, set->bench.diag),
        set->bench.diag);
    assert_memory_equal(ids + 1, labels, (size_t)(length - 1) * sizeof *ids);
    ids[length] = labels[length - 1];
    for (int64_t i = 0; i <= length; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? " " : "",
                               tokenizer_token(set->bench.tokenizer, ids[i]));
    return text;
}

/* Expects a fetch to fail with every part of `parts`, parted by '|'. */
static void refuse_window(const char *rest, int64_t index, const char *parts) {
    Set set = set_open(rest);
    int32_t ids[MOST], labels[MOST];
    const Fetch what = {.index = &index, .n = 1};
    assert_int_equal(
        set.data->fetch(set.data, &what, (void *[]){ids, labels}, set.bench.diag),
        STATUS_FORMAT);
    char *message = diag_text(set.bench.diag), *left = NULL;
    char *list = arena_strdup(set.bench.arena, parts);
    for (char *part = strtok_r(list, "|", &left); part; part = strtok_r(NULL, "|", &left))
        if (!strstr(message, part)) fail_msg("expected '%s' in: %s", part, message);
    free(message);
    set_close(&set);
}

/* ---- text ---- */

/* Windows begin at words, and behind the last word comes the first. */
static void test_windows(void **state) {
    (void)state;
    put("a.txt", "the cat sat on the mat the cat\n");
    Set set = set_open("\"path\": \"a.txt\", \"length\": 3, \"bytes\": 9");
    const Batches *data = set.data;
    assert_int_equal(data->count, 3);
    assert_int_equal(data->column_count, 2);
    assert_string_equal(data->columns[0].name, "input_ids");
    assert_string_equal(data->columns[1].name, "labels");
    assert_int_equal(data->columns[0].type.dim[0], 3);
    assert_null(data->length);
    assert_int_equal(data->classes, tokenizer_size(set.bench.tokenizer));
    assert_string_equal(window(&set, 0), "the cat sat on");
    assert_string_equal(window(&set, 1), "on the mat the"); /* byte 9 is in "sat" */
    assert_string_equal(window(&set, 2), "mat the cat the");
    set_close(&set);
}

/* As many bytes as a window's tokens take: 8 tokens in 31 bytes, three in 12. */
static void test_measured(void **state) {
    (void)state;
    put("a.txt", "the cat sat on the mat the cat\n");
    Set set = set_open("\"path\": \"a.txt\", \"length\": 3, \"offset\": 1");
    assert_true(set.data->count >= 1 && set.data->count <= 3);
    assert_true(set.data->label_characters > 2.5 && set.data->label_characters < 5);
    set_close(&set);
}

static void test_documents(void **state) {
    (void)state;
    put("a.txt", "--\nthe cat\n--\r\n--\n\nsat\n --\non\n--");
    Set set = set_open("\"path\": \"a.txt\", \"length\": 9, \"bytes\": 20, "
                       "\"separator\": \"--\"");
    /* A line with a space is none, and so is " --". */
    assert_string_equal(window(&set, 0), "the cat sat - - on the cat sat -");
    set_close(&set);
    set = set_open("\"path\": \"a.txt\", \"length\": 5, \"bytes\": 20");
    assert_string_equal(window(&set, 0), "- - the cat - -");
    set_close(&set);
}

/* Long words and texts without spaces are cut between characters. */
static void test_characters(void **state) {
    (void)state;
    char text[6001];
    for (int i = 0; i < 2000; i++) memcpy(text + 3 * i, i % 2 ? "好" : "你", 3);
    text[6000] = 0;
    put("a.txt", text);
    Set set = set_open("\"path\": \"a.txt\", \"length\": 4, \"bytes\": 7");
    assert_int_equal(set.data->count, 857);
    assert_string_equal(window(&set, 0), "你 好 你 好 你");
    assert_string_equal(window(&set, 1), "好 你 好 你 好");   /* byte 7 is in the third */
    assert_string_equal(window(&set, 856), "你 好 你 好 你"); /* no word is left */
    set_close(&set);
}

/* What is before and behind a part is never read. */
static void test_parts(void **state) {
    (void)state;
    put("a.txt", "the cat\nthe cat\nsat on\nmat\nplay\n");
    Set set = set_open("\"path\": \"a.txt\", \"length\": 7, \"bytes\": 8, \"to\": 0.5");
    assert_string_equal(window(&set, 0), "the cat the cat the cat the cat");
    assert_string_equal(window(&set, 1), "the cat the cat the cat the cat");
    set_close(&set);
    set = set_open("\"path\": \"a.txt\", \"length\": 7, \"bytes\": 8, \"from\": 0.5");
    assert_string_equal(window(&set, 0), "sat on mat play sat on mat play");
    set_close(&set);
}

/* ---- JSON Lines ---- */

static void test_lines(void **state) {
    (void)state;
    put("a.jsonl", "{\"text\": \"the cat\"}\n"
                   "\n"
                   "{\"n\": 1, \"text\": \"sat \\u006fn the\\nmat\"}\n"
                   "{\"text\": \"\"}\n"
                   "{\"text\": \"play\"}");
    Set set = set_open("\"path\": \"a.jsonl\", \"length\": 6, \"bytes\": 21");
    assert_int_equal(set.data->count, 4);
    assert_string_equal(window(&set, 0), "the cat sat on the mat play");
    assert_string_equal(window(&set, 1), "sat on the mat play the cat");
    /* Byte 42 is in the middle of its line, and so of its text. */
    assert_string_equal(window(&set, 2), "the mat play the cat sat on");
    set_close(&set);
    put("b.jsonl", "{\"story\": \"the cat\"}\n");
    set = set_open("\"path\": \"b.jsonl\", \"length\": 2, \"field\": \"story\"");
    assert_string_equal(window(&set, 0), "the cat the");
    set_close(&set);
}

/* A folder is its files .txt, .jsonl and .ndjson in the order of their names. */
static void test_folder(void **state) {
    (void)state;
    char name[512];
    snprintf(name, sizeof name, "%s/texts", folder);
    mkdir(name, 0700);
    put("texts/b.txt", "sat on");
    put("texts/a.jsonl", "{\"text\": \"the cat\"}\n");
    put("texts/c.txt", "");
    put("texts/d.NDJSON", "{\"text\": \"mat\"}\n");
    put("texts/f.txt", "\xEF\xBB\xBFplay");
    put("texts/README.md", "play play play");
    put("texts/.e.txt", "play play play");
    Set set = set_open("\"path\": \"texts\", \"length\": 6, \"bytes\": 100");
    assert_string_equal(window(&set, 0), "the cat sat on mat play the");
    set_close(&set);
}

/* ---- against a plain reading ---- */

/* Windows of the shipped text are what its tokens are from there on, whatever is fetched
 * with them. */
static void test_shipped(void **state) {
    (void)state;
    const char *before = set_tokenizer;
    char rest[600], *path_of = realpath("recipes/data/shakespeare/text.txt", NULL), *text;
    size_t length;
    set_tokenizer = "recipes/data/shakespeare/tokenizer.json";
    snprintf(rest, sizeof rest,
             "\"path\": \"%s\", \"length\": 50, \"lowercase\": true, "
             "\"skip_unknown\": true",
             path_of);
    Set set = set_open(rest);
    assert_true(set.data->label_characters > 0.9 && set.data->label_characters <= 1);
    assert_ok(
        file_read(&text, &length, set.bench.arena, path_of, 1 << 24, set.bench.diag),
        set.bench.diag);
    /* 38 characters, one each: bytes of a window are those of its tokens. */
    const int64_t bytes = (int64_t)length / set.data->count;
    assert_true(bytes >= 50 && bytes <= 52);
    enum { N = 40 };
    int64_t index[N];
    int32_t ids[N * 50], alone[50];
    for (int i = 0; i < N; i++) index[i] = (7919 * (int64_t)i) % set.data->count;
    const Fetch all = {.index = index, .n = N};
    assert_ok(set.data->fetch(set.data, &all, (void *[]){ids, NULL}, set.bench.diag),
              set.bench.diag);
    for (int i = 0; i < N; i++) {
        const Fetch one = {.index = index + i, .n = 1};
        assert_ok(
            set.data->fetch(set.data, &one, (void *[]){alone, NULL}, set.bench.diag),
            set.bench.diag);
        assert_memory_equal(alone, ids + 50 * i, sizeof alone);
        /* Somewhere in the next bytes of the text these tokens stand as they are. */
        bool found = false;
        size_t at = (size_t)index[i] * 50;
        for (size_t from = at; from < at + (size_t)(2 * index[i] + 200) && !found;
             from++) {
            Text lower = {0};
            if (from + 60 > length) break;
            utf8_lower(&lower, text + from, 60);
            set.bench.encoding.skip_unknown = true;
            assert_ok(tokenizer_encode_plain(set.bench.tokenizer, &set.bench.encoding,
                                             (TextSpan){lower.data, lower.length},
                                             LOC_NONE, set.bench.diag),
                      set.bench.diag);
            found = set.bench.encoding.length >= 50 &&
                    memcmp(set.bench.encoding.ids, alone, sizeof alone) == 0;
            text_free(&lower);
        }
        assert_true(found);
    }
    set_close(&set);
    set_tokenizer = before;
    free(path_of);
}

/* ---- what is refused ---- */

static void test_refused(void **state) {
    (void)state;
    char name[512];
    refuse("\"path\": \"none.txt\"", STATUS_IO, "none.txt");
    put("a.txt", "the cat");
    refuse("\"path\": \"a.txt\", \"from\": 0.5, \"to\": 0.5", STATUS_RECIPE, "from < to");
    refuse("\"path\": \"a.txt\", \"window\": 2", STATUS_RECIPE, "window");
    refuse("\"path\": \"a.txt\", \"add_bos\": true", STATUS_RECIPE,
           "beginning of a text");
    put("b.txt", "");
    refuse("\"path\": \"b.txt\"", STATUS_FORMAT, "b.txt|expected text");
    put("c.txt", " \n\n ");
    refuse("\"path\": \"c.txt\"", STATUS_FORMAT, "c.txt|has tokens for");
    put("d.txt", "--\n--\n");
    refuse("\"path\": \"d.txt\", \"separator\": \"--\"", STATUS_FORMAT, "d.txt|none");
    put("e.txt", "the cat \xFF sat");
    refuse("\"path\": \"e.txt\"", STATUS_FORMAT, "e.txt|UTF-8|byte 8");
    put("f.jsonl", "{\"text\": \"the cat\"}\n{\"text\": 3}\n");
    refuse("\"path\": \"f.jsonl\"", STATUS_FORMAT, "f.jsonl|text|byte 20");
    put("g.jsonl", "{\"text\": \"the cat\"}\n{\"text\": \n");
    refuse("\"path\": \"g.jsonl\"", STATUS_FORMAT, "g.jsonl:2");
    put("h.jsonl", "\n\n");
    refuse("\"path\": \"h.jsonl\"", STATUS_FORMAT, "h.jsonl|none");
    snprintf(name, sizeof name, "%s/empty", folder);
    mkdir(name, 0700);
    put("empty/a.md", "the cat");
    refuse("\"path\": \"empty\"", STATUS_FORMAT, "empty|.txt or .jsonl");
}

/* What no probe sees is told when it is read: the line, or the byte. */
static void test_damaged_later(void **state) {
    (void)state;
    Text text = {0}, lines = {0};
    for (int i = 0; i < 60000; i++) text_add(&text, "the cat sat on the mat\n");
    memcpy(text.data + 23 * 1500 + 4, "\xFF", 1); /* between two probes */
    put("a.txt", text.data);
    refuse_window("\"path\": \"a.txt\", \"length\": 6, \"bytes\": 23, \"limit\": 2000",
                  1500, "a.txt|byte 34504");
    for (int i = 0; i < 60000; i++)
        text_add(&lines,
                 i == 1020 ? "{\"text\": \"the cat}\n" : "{\"text\": \"the cat\"}\n");
    put("a.jsonl", lines.data);
    refuse_window("\"path\": \"a.jsonl\", \"length\": 2, \"bytes\": 20", 1020,
                  "a.jsonl:1021");
    text_free(&text);
    text_free(&lines);
}

/* What is damaged is left out where the recipe says so: bytes, and lines of JSON. */
static void test_left_out(void **state) {
    (void)state;
    static const char SKIP[] = "\"length\": 3, \"bytes\": 40, \"on_error\": \"skip\"";
    char keys[128];
    put("a.txt", "the cat \xFF\xFE\xC3 sat \xE2\x82 on\n");
    snprintf(keys, sizeof keys, "\"path\": \"a.txt\", %s", SKIP);
    Set set = set_open(keys);
    assert_string_equal(window(&set, 0), "the cat sat on");
    char *said = diag_text(set.bench.diag);
    assert_non_null(strstr(said, "a.txt: warning: damaged text is left out, the first at "
                                 "byte 8"));
    assert_null(strstr(strstr(said, "warning") + 1, "warning"));
    free(said);
    set_close(&set);
    put("a.jsonl",
        "{\"text\": \"the cat\"}\n{\"text\": \"mat}\n{\"text\": \"sat on\"}\n");
    snprintf(keys, sizeof keys, "\"path\": \"a.jsonl\", %s", SKIP);
    set = set_open(keys);
    assert_string_equal(window(&set, 0), "the cat sat on");
    set_close(&set);
    put("b.txt", "\xFE\xC0\xFF");
    snprintf(keys, sizeof keys, "\"path\": \"b.txt\", %s", SKIP);
    refuse(keys, STATUS_FORMAT, "b.txt|none");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_windows),   cmocka_unit_test(test_measured),
        cmocka_unit_test(test_documents), cmocka_unit_test(test_characters),
        cmocka_unit_test(test_parts),     cmocka_unit_test(test_lines),
        cmocka_unit_test(test_folder),    cmocka_unit_test(test_shipped),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_damaged_later),
        cmocka_unit_test(test_left_out),
    };
    set_format = "corpus";
    return cmocka_run_group_tests(tests, enter, leave);
}
