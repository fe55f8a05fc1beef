/* Tokenizer: BERT's rules, added tokens, truncation, the real vocabulary. */
#include "tokenizer_test.h"

#include "io/datasets/data_table.h"
#include "io/files/json.h"
#include "ir/random.h"

/* --- the rules --- */

static void check_cases(const char *from) {
    Bench bench = bench_open(from);
    Table *table;
    TableOptions options = {.names = (const char *[]){"case", "text", "tokens"},
                            .name_count = 3};
    assert_ok(table_read(&table, TEXT_DATA "cases.jsonl", &options, bench.diag),
              bench.diag);
    for (int64_t i = 0; i < table_rows(table); i++) {
        size_t length;
        TextSpan text = {table_cell(table, i, 1, &length), 0};
        text.length = length;
        const char *wanted = table_cell(table, i, 2, &length);
        const char *found = plain_tokens(&bench, text);
        if (strcmp(found, wanted) != 0)
            fail_msg("%s: expected '%s', found '%s'", table_cell(table, i, 0, &length),
                     wanted, found);
    }
    assert_true(table_rows(table) > 40);
    table_destroy(table);
    bench_close(&bench);
}

static void cases(void **state) {
    (void)state;
    check_cases(TEXT_DATA "vocab.txt");
    check_cases(TEXT_DATA "tokenizer.json");
    check_cases(TEXT_DATA); /* prefers tokenizer.json */
}

static void nul_is_dropped(void **state) {
    (void)state;
    Bench bench = bench_open(TEXT_DATA "vocab.txt");
    assert_string_equal(plain_tokens(&bench, (TextSpan){"c\0at\0", 5}), "cat");
    assert_string_equal(plain_tokens(&bench, (TextSpan){"", 0}), "");
    assert_string_equal(plain_tokens(&bench, (TextSpan){NULL, 0}), "");
    bench_close(&bench);
}

static void configured(void **state) {
    (void)state;
    static const char TEXT[] = "The Émile \xc4\xb0 é 你";
    put_vocab("{\"do_lower_case\": false}");
    Bench bench = bench_open(folder);
    check_plain(&bench, TEXT, "The [UNK] [UNK] é 你");
    bench_close(&bench);
    put_vocab("{\"do_lower_case\": false, \"strip_accents\": true,"
              " \"tokenizer_class\": \"BertTokenizer\"}");
    bench = bench_open(path);
    check_plain(&bench, TEXT, "The [UNK] [UNK] [UNK] 你");
    check_plain(&bench, "E É", "E E");
    bench_close(&bench);
    put_vocab("{\"strip_accents\": false, \"tokenize_chinese_chars\": false,"
              " \"mask_token\": {\"content\": \"mask\"}, \"never_split\": null}");
    bench = bench_open(folder);
    check_plain(&bench, "THE É a你", "the é [UNK]");
    check_plain(&bench, "mask [MASK]", "mask [ mask ]");
    assert_string_equal(
        tokenizer_token(bench.tokenizer, tokenizer_specials(bench.tokenizer)->mask),
        "mask");
    bench_close(&bench);
}

static void known(void **state) {
    (void)state;
    Bench bench = bench_open(TEXT_DATA);
    const SpecialIds *ids = tokenizer_specials(bench.tokenizer);
    assert_int_equal(tokenizer_size(bench.tokenizer), 109);
    assert_int_equal(ids->pad, 0);
    assert_int_equal(ids->unk, 1);
    assert_int_equal(ids->cls, 2);
    assert_int_equal(ids->sep, 3);
    assert_int_equal(ids->mask, 4);
    assert_int_equal(tokenizer_find(bench.tokenizer, "the"), 49);
    assert_int_equal(tokenizer_find(bench.tokenizer, "<br>"), 105);
    assert_int_equal(tokenizer_find(bench.tokenizer, "dog"), -1);
    assert_string_equal(tokenizer_token(bench.tokenizer, 107), "Émile");
    assert_null(tokenizer_token(bench.tokenizer, 109));
    assert_null(tokenizer_token(bench.tokenizer, -1));
    assert_int_equal(tokenizer_overhead(bench.tokenizer, false), 2);
    assert_int_equal(tokenizer_overhead(bench.tokenizer, true), 3);
    bench_close(&bench);
}

/* --- added tokens --- */

static void added(void **state) {
    (void)state;
    Bench bench = bench_open(TEXT_DATA);
    check_plain(&bench, "a<b>c<br>a <B>", "a <b> c <br> a < b >");
    check_plain(&bench, "word a,word.", "word a , word .");
    check_plain(&bench, "words aword b1_word éword word\xcc\x81", /* not alone */
                "[UNK] [UNK] b1 _ [UNK] [UNK] [UNK]");
    check_plain(&bench, "the ÉMILE emile e\xcc\x81milethe", /* found normalized */
                "the Émile Émile Émile the");
    check_plain(&bench, "the<end>  the  [MASK]", "the <end> the [MASK]");
    check_plain(&bench,
                "<end>\xcc\x81"
                "a <end> [MASK][MASK] <end>",
                "<end> a <end> [MASK] [MASK] <end>");
    bench_close(&bench);
}

/* --- whole encodings --- */

static void encodings(void **state) {
    (void)state;
    Bench bench = bench_open(TEXT_DATA "vocab.txt");
    check_encoding(&bench, "", NULL, 0, "[CLS] [SEP]", 2);
    check_encoding(&bench, "the cat", NULL, 0, "[CLS] the cat [SEP]", 4);
    check_encoding(&bench, "the cat", "", 0, "[CLS] the cat [SEP] [SEP]", 4);
    check_encoding(&bench, "the", "cat sat", 0, "[CLS] the [SEP] cat sat [SEP]", 3);
    check_encoding(&bench, "the cat sat", NULL, 4, "[CLS] the cat [SEP]", 4);
    check_encoding(&bench, "the cat sat", NULL, 2, "[CLS] [SEP]", 2);
    check_encoding(&bench, "the cat", "sat", 3, "[CLS] [SEP] [SEP]", 2);
    check_encoding(&bench, "unhappyness", NULL, 4, "[CLS] un ##happy [SEP]", 4);
    TextSpan b = span("cat");
    for (int pair = 0; pair < 2; pair++)
        expect_error(bench.diag,
                     tokenizer_encode(bench.tokenizer, &bench.encoding, span("the"),
                                      pair ? &b : NULL, 1, LOC_NONE, bench.diag),
                     STATUS_RECIPE, "max_length: expected at least");
    bench_close(&bench);
}

/* Lengths before and after, with room for 7 and 8 tokens. */
static void truncation(void **state) {
    (void)state;
    static const size_t CASES[][5] = {{7, 0, 0, 0, 0}, {7, 0, 2, 0, 2}, {7, 0, 4, 0, 4},
                                      {7, 0, 8, 0, 7}, {7, 2, 0, 2, 0}, {7, 2, 2, 2, 2},
                                      {7, 2, 4, 2, 4}, {7, 2, 8, 2, 5}, {7, 4, 0, 4, 0},
                                      {7, 4, 2, 4, 2}, {7, 4, 4, 3, 4}, {7, 4, 8, 3, 4},
                                      {7, 8, 0, 7, 0}, {7, 8, 2, 5, 2}, {7, 8, 4, 4, 3},
                                      {7, 8, 8, 3, 4}, {8, 8, 9, 4, 4}, {8, 9, 3, 5, 3},
                                      {1, 4, 4, 0, 1}, {1, 5, 4, 1, 0}, {0, 1, 1, 0, 0}};
    Bench bench = bench_open(TEXT_DATA "vocab.txt");
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const size_t *row = CASES[i];
        TextSpan a = {"a b c a b c a b c a b c ", 2 * row[1]};
        TextSpan b = {"1 2 3 1 2 3 1 2 3 1 2 3 ", 2 * row[2]};
        assert_ok(tokenizer_encode(bench.tokenizer, &bench.encoding, a, &b, row[0] + 3,
                                   LOC_NONE, bench.diag),
                  bench.diag);
        assert_int_equal(bench.encoding.length, row[3] + row[4] + 3);
        assert_int_equal(bench.encoding.ids[row[3] + 1], 3);
        assert_int_equal(bench.encoding.types[row[3] + 1], 0);
    }
    bench_close(&bench);
}

static void invalid_utf8(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } BAD[] = {{"\x80", "byte 0x80 at offset 0"},
               {"the cat sat on the mat\xff", "byte 0xff at offset 22"},
               {"a\xc0\xaf", "offset 1"},
               {"a\xc3", "offset 1"},
               {"a\xe0\x80\x80", "offset 1"},
               {"é\xed\xa0\x80", "offset 2"},
               {"\xf4\x90\x80\x80", "offset 0"},
               {"\xf0\x8f\xbf\xbf", "offset 0"},
               {"abc\xe4\xbd", "offset 3"}};
    Bench bench = bench_open(TEXT_DATA "vocab.txt");
    Loc at = {"train.tsv", 7, 0};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        Status status = tokenizer_encode(bench.tokenizer, &bench.encoding, span("a"),
                                         &(TextSpan){BAD[i].text, strlen(BAD[i].text)}, 0,
                                         at, bench.diag);
        expect_error(bench.diag, status, STATUS_FORMAT, BAD[i].message);
    }
    check_plain(&bench, "a", "a"); /* still usable */
    bench_close(&bench);
}

/* --- other texts --- */

/* Any bytes as text: valid UTF-8 encodes, the rest is refused, one after the other. */
static void random_texts(void **state) {
    (void)state;
    static const char PIECES[] = "\xcc\x81\xe3\x80\xf0\x9d\x85\xa5\xad[]MASK<br> aB,";
    Bench bench = bench_open(TEXT_DATA);
    for (uint64_t i = 0; i < 3000; i++) {
        char text[64];
        size_t length = (size_t)(random_u64(i, 99) % sizeof text);
        for (size_t k = 0; k < length; k++) {
            uint64_t r = random_u64(i, k);
            text[k] = PIECES[r % (sizeof PIECES - 1)];
            if (r >> 40 & 1) text[k] = (char)((r >> 32) & 0x7f);
        }
        Status status =
            tokenizer_encode(bench.tokenizer, &bench.encoding, (TextSpan){text, length},
                             NULL, 12, LOC_NONE, bench.diag);
        if (status != STATUS_OK)
            expect_error(bench.diag, status, STATUS_FORMAT, "invalid UTF-8");
        else
            assert_in_range(bench.encoding.length, 2, 12);
    }
    bench_close(&bench);
}

/* A long run of marks in the worst order takes no time worth naming. */
static void long_runs(void **state) {
    (void)state;
    enum { MARKS = 1 << 18 };
    Bench bench = bench_open(TEXT_DATA);
    char *text = malloc(4 * MARKS);
    for (int i = 0; i < MARKS; i++)
        memcpy(text + 4 * i, i < MARKS / 2 ? "\xf0\x9d\x85\xad" : "\xf0\x9d\x85\xa5", 4);
    assert_string_equal(plain_tokens(&bench, (TextSpan){text, 4 * MARKS}), "[UNK]");
    memset(text, '[', 4 * MARKS);
    plain_tokens(&bench, (TextSpan){text, MARKS});
    assert_int_equal(bench.encoding.length, MARKS);
    free(text);
    bench_close(&bench);
}

/* --- the real vocabulary, in the folder COMPRESS_DATA names --- */

static void check_ids(const Bench *bench, const Tree *ids, const char *text) {
    const Tree *id = ids->first;
    bool equal = (size_t)ids->count == bench->encoding.length;
    for (size_t i = 0; equal && i < bench->encoding.length; i++, id = id->next)
        equal = bench->encoding.ids[i] == id->integer;
    if (!equal)
        fail_msg("other tokens for '%s': %s", text ? text : "?", tokens_text(bench));
}

/* Texts of the reference hold NUL as U+0001, which is dropped alike. */
static void check_text(Bench *bench, const char *first, const char *second,
                       const Tree *ids) {
    TextSpan b = second ? span(second) : (TextSpan){0};
    assert_ok(tokenizer_encode(bench->tokenizer, &bench->encoding, span(first),
                               second ? &b : NULL, 0, LOC_NONE, bench->diag),
              bench->diag);
    check_ids(bench, ids, first);
}

static Tree *reference_read(Bench *bench, const char *data) {
    char *text, *nul;
    size_t length;
    Tree *root;
    const char *file = arena_printf(
        bench->arena, "%s/models/minilm-l6-v2/tokenizer_reference.json", data);
    assert_ok(file_read(&text, &length, bench->arena, file, 1 << 20, bench->diag),
              bench->diag);
    while ((nul = strstr(text, "\\u0000"))) nul[5] = '1';
    assert_ok(json_parse(&root, bench->arena, file, text, length, bench->diag),
              bench->diag);
    return root;
}

static void check_sentences(Bench *bench, const char *data, const Tree *ids) {
    Table *table;
    size_t length;
    assert_ok(table_read(&table,
                         arena_printf(bench->arena, "%s/sst2-glue/test.tsv", data),
                         &(TableOptions){0}, bench->diag),
              bench->diag);
    assert_int_equal(table_rows(table), ids->count);
    const Tree *wanted = ids->first;
    for (int64_t i = 0; wanted; i++, wanted = wanted->next)
        check_text(bench, table_cell(table, i, 0, &length), NULL, wanted);
    table_destroy(table);
}

static void real(void **state) {
    (void)state;
    const char *data = getenv("COMPRESS_DATA");
    if (!data) {
        print_message("left out: COMPRESS_DATA is not set\n");
        skip();
    }
    static const char *const NAMES[] = {"", "/vocab.txt", "/tokenizer.json"};
    for (int i = 0; i < 3; i++) {
        char name[1024];
        snprintf(name, sizeof name, "%s/models/minilm-l6-v2%s", data, NAMES[i]);
        Bench bench = bench_open(name);
        const Tree *root = reference_read(&bench, data);
        assert_int_equal(tokenizer_size(bench.tokenizer), 30522);
        assert_int_equal(tree_get(root, "sst2_test")->count, 872);
        check_sentences(&bench, data, tree_get(root, "sst2_test"));
        for (const Tree *t = tree_get(root, "tricky")->first; t; t = t->next)
            check_text(&bench, tree_get(t, "text")->string, NULL, tree_get(t, "ids"));
        for (const Tree *t = tree_get(root, "pairs")->first; t; t = t->next) {
            const char *second = tree_get(t, "b")->string; /* "" was taken for none */
            check_text(&bench, tree_get(t, "a")->string, *second ? second : NULL,
                       tree_get(t, "ids"));
        }
        bench_close(&bench);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases),
        cmocka_unit_test(nul_is_dropped),
        cmocka_unit_test_setup_teardown(configured, enter, leave),
        cmocka_unit_test(known),
        cmocka_unit_test(added),
        cmocka_unit_test(encodings),
        cmocka_unit_test(truncation),
        cmocka_unit_test(invalid_utf8),
        cmocka_unit_test(random_texts),
        cmocka_unit_test(long_runs),
        cmocka_unit_test(real),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
