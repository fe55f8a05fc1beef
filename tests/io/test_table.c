/* Tables: TSV, CSV and JSON Lines, good, ragged and hostile. */
#include "io_test.h"

#include "io/datasets/data_table.h"
#include "ir/random.h"
#include "ir/text.h"

static char folder[256], path[300];

static int enter(void **state) {
    (void)state;
    scratch_make(folder);
    return 0;
}

static int leave(void **state) {
    (void)state;
    scratch_remove(folder);
    return 0;
}

static void put_named(const char *name, const char *text) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    put_text(path, text);
}

/* Reads the file last put. */
static Table *open_table(TableOptions options) {
    Diag *diag = diag_create();
    Table *table;
    assert_ok(table_read(&table, path, &options, diag), diag);
    diag_destroy(diag);
    return table;
}

static void check_cell(const Table *table, int64_t row, int column, const char *wanted) {
    size_t length;
    const char *cell = table_cell(table, row, column, &length);
    assert_string_equal(cell, wanted);
    assert_int_equal(length, strlen(wanted));
}

/* Checks all rows; cells are parted by '|', rows by '/'. */
static void check_rows(const Table *table, const char *wanted) {
    Text text = {0};
    size_t length;
    for (int64_t row = 0; row < table_rows(table); row++)
        for (int column = 0; column < table_columns(table); column++)
            text_add(&text, "%s%s",
                     column ? "|"
                     : row  ? "/"
                            : "",
                     table_cell(table, row, column, &length));
    assert_string_equal(text.data, wanted);
    text_free(&text);
}

static void expect_rows(const char *name, const char *text, TableOptions options,
                        const char *wanted) {
    put_named(name, text);
    Table *table = open_table(options);
    check_rows(table, wanted);
    table_destroy(table);
}

/* --- TSV --- */

static void tsv(void **state) {
    (void)state;
    put_named("a.tsv", "sentence\tlabel\nthe \"cat\t1\n\" sat \t0\nlast\t\n");
    Table *table = open_table((TableOptions){0});
    check_rows(table, "the \"cat|1/\" sat |0/last|");
    assert_string_equal(table_path(table), path);
    assert_string_equal(table_name(table, 1), "label");
    assert_int_equal(table_find(table, "sentence"), 0);
    assert_int_equal(table_find(table, "label"), 1);
    assert_int_equal(table_find(table, "1"), 1);
    assert_int_equal(table_find(table, "2"), -1);
    assert_int_equal(table_find(table, "Label"), -1);
    assert_int_equal(table_find(table, ""), -1);
    assert_int_equal(table_find(table, "00000000000000000001"), -1);
    check_cell(table, 2, 1, "");
    Diag *diag = diag_create();
    int column = -1;
    assert_ok(table_column(&column, table, "label", LOC_NONE, "text", diag), diag);
    assert_int_equal(column, 1);
    Loc at = {"recipe.yaml", 4, 9};
    Status status = table_column(&column, table, "text", at, "data.text", diag);
    expect_error(diag, status, STATUS_RECIPE, "its 2 columns: sentence, label");
    diag_destroy(diag);
    table_destroy(table);
}

static void line_ends(void **state) {
    (void)state;
    TableOptions none = {0};
    expect_rows("a.tsv",
                "\xef\xbb\xbf"
                "a\tb\r\n1\t2\r\n\r\n3\t4",
                none, "1|2/3|4");
    expect_rows("a.tsv", "\n\na\tb\n\n\n1\t2\n\n", none, "1|2");
    expect_rows("a.tsv", "a\tb\n1\t2\r", none, "1|2");
    expect_rows("a.tsv", "a\tb\n1\r2\t3\r\r\n", none, "1\r2|3\r");
    expect_rows("a.tsv", "a\tb\n\t\n\t", none, "|/|");
    expect_rows("a.txt", "a\n\r\n1\n\r", none, "1");
    expect_rows("a.tsv", "a\tb\n\"1\t2\"\n", none, "\"1|2\"");
}

static void places(void **state) {
    (void)state;
    Text text = {0};
    text_add(&text, "a\tb\n");
    for (int i = 0; i < 200; i++) text_add(&text, "%*s%d\tx\n", i % 3, "\n\n", i);
    put_named("a.tsv", text.data);
    text_free(&text);
    Table *table = open_table((TableOptions){.no_header = true});
    assert_int_equal(table_rows(table), 201);
    int line = 1;
    for (int i = 0; i < 200; i++) {
        size_t length;
        line += 1 + (i % 3 == 0 ? 2 : 2);
        assert_int_equal(atoi(table_cell(table, i + 1, 0, &length)), i);
        assert_int_equal(table_loc(table, i + 1).line, line);
    }
    assert_string_equal(table_loc(table, 0).file, path);
    table_destroy(table);
}

static void names(void **state) {
    (void)state;
    const char *const list[] = {"x", "y"};
    TableOptions named = {.names = list, .name_count = 2};
    expect_rows("a.tsv", "a\tb\n1\t2\n", named, "1|2");
    named.no_header = true;
    put_named("a.tsv", "a\tb\n1\t2\n");
    Table *table = open_table(named);
    check_rows(table, "a|b/1|2");
    assert_int_equal(table_find(table, "y"), 1);
    table_destroy(table);
    table = open_table((TableOptions){.no_header = true});
    check_rows(table, "a|b/1|2");
    assert_null(table_name(table, 0));
    assert_int_equal(table_find(table, "a"), -1);
    assert_int_equal(table_find(table, "1"), 1);
    Diag *diag = diag_create();
    int column;
    Status status = table_column(&column, table, "a", LOC_NONE, "text", diag);
    expect_error(diag, status, STATUS_RECIPE, "a number from 0 to 1");
    diag_destroy(diag);
    table_destroy(table);
}

/* --- CSV --- */

static void csv(void **state) {
    (void)state;
    TableOptions none = {0}, raw = {.quotes = TABLE_QUOTES_NONE},
                 quoted = {.quotes = TABLE_QUOTES_RFC4180};
    expect_rows("a.csv", "a,b\n\"1,2\",3\n", none, "1,2|3");
    expect_rows("a.CSV", "a,b\r\n\"say \"\"hi\"\"\",\"\"\r\n", none, "say \"hi\"|");
    expect_rows("a.csv", "a,b\n\"two\nlines\",\"x\r\ny\"\nz,w", none,
                "two\nlines|x\r\ny/z|w");
    expect_rows("a.csv", "a,b\n1\"2\",\"\"\"\"", none, "1\"2\"|\"");
    expect_rows("a.csv", "\"a\"\n\"\"\n\"\n\"\n", none, "/\n");
    expect_rows("a.csv", "a,b\n\"1,2\n", raw, "\"1|2");
    expect_rows("a.tsv", "a\tb\n\"1\t2\"\t3\n", quoted, "1\t2|3");
    put_named("a.csv", "a,b\n\"1\n\n1\",\"2\"\n\n3,4\n5,6\n");
    Table *table = open_table(none);
    assert_int_equal(table_loc(table, 0).line, 2);
    assert_int_equal(table_loc(table, 1).line, 6);
    assert_int_equal(table_loc(table, 2).line, 7);
    table_destroy(table);
}

/* Random cells, written as RFC 4180 says, are read back. */
static void csv_round_trips(void **state) {
    (void)state;
    static const char *const PARTS[] = {"", "a", "\"", ",", "\n", "\r\n", "é", " ", "\r"};
    for (uint64_t i = 0; i < 300; i++) {
        Text file = {0}, wanted = {0};
        int columns = 1 + (int)(random_u64(i, 0) % 4), cells = columns * 19;
        for (int c = 0; c < cells; c++) {
            bool last = c % columns == columns - 1;
            text_add(&wanted, "%s", c == 0 ? "" : c % columns ? "|" : "/");
            text_add(&file, "\"");
            for (uint64_t k = 0; k < 4; k++) {
                const char *part = PARTS[random_u64(i, 4 * (uint64_t)c + k) % 9];
                text_add(&wanted, "%s", part);
                text_add(&file, "%s%s", part, *part == '"' ? part : "");
            }
            text_add(&file, "\"%s", !last ? "," : i % 2 ? "\n" : "\r\n");
        }
        expect_rows("a.csv", file.data, (TableOptions){.no_header = true}, wanted.data);
        text_free(&file);
        text_free(&wanted);
    }
}

/* --- JSON Lines --- */

static void jsonl(void **state) {
    (void)state;
    const char *const list[] = {"label", "text"};
    TableOptions none = {0}, named = {.names = list, .name_count = 2};
    expect_rows("a.jsonl",
                "{\"text\": \"the\\tcat \\u00e9\\n\", \"label\": 1}\r\n\n  \n"
                "{\"label\": -2.5, \"more\": [], \"text\": \"\"}\n{\"text\": true, "
                "\"label\": 1e300}",
                none, "the\tcat é\n|1/|-2.5/true|1e+300");
    expect_rows("a.txt", "\xef\xbb\xbf{\"text\": \"x\", \"m\": {}, \"label\": 3}\n",
                (TableOptions){.format = TABLE_JSONL, .names = list, .name_count = 2},
                "3|x");
    put_named("a.json",
              "{\"text\": \"x\", \"label\": 3}\n\n{\"text\": 4}\n{\"label\": 0, "
              "\"text\": \"y\"}\n");
    named.skip_bad = true;
    Table *table = open_table(named);
    check_rows(table, "3|x/0|y");
    assert_int_equal(table_skipped(table), 1);
    assert_int_equal(table_loc(table, 1).line, 4);
    assert_int_equal(table_find(table, "text"), 1);
    table_destroy(table);
}

/* --- refused --- */

static void expect_refused(TableOptions options, Status status, const char *message) {
    Diag *diag = diag_create();
    Table *table = NULL;
    expect_error(diag, table_read(&table, path, &options, diag), status, message);
    assert_null(table);
    diag_destroy(diag);
}

static void bad(void **state) {
    (void)state;
    static const struct {
        const char *name, *text, *message;
    } BAD[] = {
        {"a.tsv", "", "a.tsv: error: expected rows, found none"},
        {"a.tsv", "a\tb\n", "a.tsv: error: expected rows, found none"},
        {"a.tsv", "a\tb\n1\t2\n\n3\n", "a.tsv:4: error: expected 2 columns, found 1"},
        {"a.tsv", "a\tb\n1\t2\t3\n", "a.tsv:2: error: expected 2 columns, found 3"},
        {"a.tsv", "a\tb\n1\t2\n \n", "a.tsv:3: error: expected 2 columns, found 1"},
        {"a.tsv", "a\ta\n1\t2\n", "a.tsv:1: error: expected columns that differ"},
        {"a.tsv", "a\tb\n1\t\xc3\xa9\xff\n", "a.tsv:2:4: error: invalid UTF-8"},
        {"a.tsv",
         "\xff\xfe"
         "a",
         "a.tsv: error: expected text in UTF-8, found UTF-16"},
        {"a.csv", "a,b\n1,\"2\n3,4\n", "a.csv:2: error: a quote opens here"},
        {"a.csv", "a,b\n\"1\"x,2\n", "a.csv:2: error: expected a separator"},
        {"a.csv", "a,b\n\"1\n\"\rx,2\n", "a.csv:3: error: expected a separator"},
        {"a.csv", "a,b\n\"", "a.csv:2: error: a quote opens here"},
        {"a.jsonl", "{\"a\": 1}\n\n{\"b\": 1}\n", "a.jsonl:3: error: a: missing"},
        {"a.jsonl", "{\"a\": 1}\n[]\n", "a.jsonl:2: error: expected an object"},
        {"a.jsonl", "{}\n", "a.jsonl:1: error: expected an object with keys"},
        {"a.jsonl", "{\"a\": null}\n", "a: expected a string or a number, found null"},
        {"a.jsonl", "{\"a\": 1}\n{\"a\": []}", "a.jsonl:2: error: a: expected a string"},
        {"a.jsonl", "{\"a\": 1}\n{\"a\" 1}\n", "a.jsonl:2:6: error: invalid JSON"},
        {"a.jsonl", "{\"a\": 1}\n{\"a\": 1\n}\n", "a.jsonl:2:7: error: invalid JSON"},
        {"a.jsonl", "{\"a\": 1} {\"a\": 1}\n", "a.jsonl:1:10: error: invalid JSON"},
        {"a.jsonl", "{\"a\": \"\\u0000\"}\n", "a.jsonl:1"},
        {"a.jsonl", "{\"a\": 1, \"a\": 2}\n", "duplicate"}};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        put_named(BAD[i].name, BAD[i].text);
        expect_refused((TableOptions){0}, STATUS_FORMAT, BAD[i].message);
    }
    put_file(path, "a\tb\n1\0\t2\n", 10);
    expect_refused((TableOptions){.format = TABLE_TSV}, STATUS_FORMAT,
                   ":2:2: error: expected text, found a NUL");
}

static void bad_files(void **state) {
    (void)state;
    snprintf(path, sizeof path, "%s/none.tsv", folder);
    expect_refused((TableOptions){0}, STATUS_IO, "cannot open");
    snprintf(path, sizeof path, "%s", folder);
    expect_refused((TableOptions){0}, STATUS_IO, "found a folder");
    put_named("a.tsv", "a\n1\n");
    if (truncate(path, (off_t)1 << 32) == 0)
        expect_refused((TableOptions){0}, STATUS_FORMAT, "at most 4294967295 bytes");
    Text text = {0};
    for (int i = 0; i < TABLE_COLUMNS_MAX; i++) text_add(&text, "\t");
    put_named("a.tsv", text.data);
    expect_refused((TableOptions){0}, STATUS_FORMAT, "at most 4096 columns, found 4097");
    text_free(&text);
}

static void skip_bad(void **state) {
    (void)state;
    TableOptions skipping = {.skip_bad = true};
    put_named("a.tsv", "a\tb\n1\t2\nx\n3\t4\nx\ty\tz\n\n5\t6\nx");
    Table *table = open_table(skipping);
    check_rows(table, "1|2/3|4/5|6");
    assert_int_equal(table_skipped(table), 3);
    assert_int_equal(table_loc(table, 2).line, 7);
    table_destroy(table);
    put_named("a.tsv", "a\tb\n1\n2\n");
    expect_refused(skipping, STATUS_FORMAT, "found none that is complete");
    put_named("a.csv", "a,b\n\"1,2\n");
    expect_refused(skipping, STATUS_FORMAT, "a quote opens here");
}

/* --- mutations --- */

static const struct {
    const char *name, *text;
} GOOD[] = {
    {"a.tsv", "id\tsentence\tlabel\r\n1\tthe cat\t0\n2\tcaf\xc3\xa9\t1\n\n3\tx\t0"},
    {"a.csv", "id,sentence,label\n1,\"the, \"\"cat\"\"\",0\n2,\"a\r\nb\",1\r\n3,,0\n"},
    {"a.jsonl", "{\"id\": 1, \"s\": \"the \\u00e9\"}\n{\"id\": 2.5, \"s\": \"\"}\n"}};

static size_t mutate(char *file, size_t bytes, uint64_t key) {
    int changes = 1 + (int)(random_u64(key, 0) % 4);
    for (int i = 0; i < changes; i++) {
        uint64_t r = random_u64(key, (uint64_t)i + 1);
        size_t at = (size_t)((r >> 8) % bytes);
        switch (r % 5) {
        case 0: file[at] ^= (char)(1 << (r >> 40) % 8); break;
        case 1: file[at] = "\"\n\r\t,{}:\\"[(r >> 40) % 9]; break;
        case 2: file[at] = file[(r >> 40) % bytes]; break;
        case 3: memmove(file + at, file + at + 1, --bytes - at); break;
        default: memmove(file + at + 1, file + at, bytes++ - at); break;
        }
    }
    return bytes;
}

/* Reads the file: refused with one error, or every cell can be read. */
static void try_mutant(Diag *diag, TableOptions options) {
    Table *table;
    Status status = table_read(&table, path, &options, diag);
    if (status != STATUS_OK) {
        expect_error(diag, status, STATUS_FORMAT, "error: ");
        return;
    }
    size_t length;
    int line = 0;
    for (int64_t row = 0; row < table_rows(table); row++) {
        for (int column = 0; column < table_columns(table); column++) {
            const char *cell = table_cell(table, row, column, &length);
            assert_int_equal(strlen(cell), length);
        }
        assert_true(table_loc(table, row).line > line);
        line = table_loc(table, row).line;
    }
    table_destroy(table);
}

static void mutations(void **state) {
    (void)state;
    Diag *diag = diag_create();
    for (uint64_t i = 0; i < 3000; i++) {
        for (size_t k = 0; k < sizeof GOOD / sizeof *GOOD; k++) {
            char file[256];
            size_t length = strlen(GOOD[k].text);
            memcpy(file, GOOD[k].text, length);
            length = mutate(file, length, random_key_name(i, GOOD[k].name));
            snprintf(path, sizeof path, "%s/%s", folder, GOOD[k].name);
            put_file(path, file, length);
            try_mutant(diag, (TableOptions){.skip_bad = i % 2, .no_header = i % 3 == 0});
        }
    }
    diag_destroy(diag);
}

static void cuts(void **state) {
    (void)state;
    Diag *diag = diag_create();
    for (size_t k = 0; k < sizeof GOOD / sizeof *GOOD; k++)
        for (size_t length = 0; length < strlen(GOOD[k].text); length++) {
            snprintf(path, sizeof path, "%s/%s", folder, GOOD[k].name);
            put_file(path, GOOD[k].text, length);
            try_mutant(diag, (TableOptions){0});
        }
    diag_destroy(diag);
}

/* --- real data, in the folder COMPRESS_DATA names --- */

static void real(void **state) {
    (void)state;
    static const struct {
        const char *name, *text, *label, *classes;
        int64_t rows;
    } FILES[] = {
        {"sst2-glue/train.tsv", "sentence", "label", "0|1", 60614},
        {"sst2-glue/dev.tsv", "sentence", "label", "0|1", 6735},
        {"sst2-glue/test.tsv", "sentence", "label", "0|1", 872},
        {"rte/train.tsv", "sentence2", "label", "entailment|not_entailment", 2490},
        {"rte/dev.tsv", "sentence1", "label", "entailment|not_entailment", 277},
        {"qnli-dev/dev.tsv", "question", "label", "entailment|not_entailment", 5463},
        {"mrpc/msr_paraphrase_train.txt", "#1 String", "Quality", "0|1", 4076},
        {"mrpc/msr_paraphrase_test.txt", "#2 String", "Quality", "0|1", 1725}};
    const char *data = getenv("COMPRESS_DATA");
    if (!data) {
        print_message("left out: COMPRESS_DATA is not set\n");
        skip();
    }
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        snprintf(path, sizeof path, "%s/%s", data, FILES[i].name);
        Table *table = open_table((TableOptions){0});
        assert_int_equal(table_rows(table), FILES[i].rows);
        int text = table_find(table, FILES[i].text);
        int label = table_find(table, FILES[i].label);
        assert_true(text >= 0 && label >= 0);
        for (int64_t row = 0; row < table_rows(table); row++) {
            size_t length;
            assert_non_null(
                strstr(FILES[i].classes, table_cell(table, row, label, &length)));
            assert_true(length > 0);
            table_cell(table, row, text, &length);
            assert_true(length > 0);
        }
        table_destroy(table);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tsv),       cmocka_unit_test(line_ends),
        cmocka_unit_test(places),    cmocka_unit_test(names),
        cmocka_unit_test(csv),       cmocka_unit_test(csv_round_trips),
        cmocka_unit_test(jsonl),     cmocka_unit_test(bad),
        cmocka_unit_test(bad_files), cmocka_unit_test(skip_bad),
        cmocka_unit_test(mutations), cmocka_unit_test(cuts),
        cmocka_unit_test(real)};
    return cmocka_run_group_tests(tests, enter, leave);
}
