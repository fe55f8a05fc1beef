/* Words as tokens: where texts are cut, vocabularies made from texts, vocab.json. */
#include "tokenizer_test.h"

#include "io/tokenizers/word_vocabulary.h"

static char output[320], texts[320];

static int enter_words(void **state) {
    enter(state);
    snprintf(output, sizeof output, "%s/tokenizer.json", folder);
    snprintf(texts, sizeof texts, "%s/texts.tsv", folder);
    return 0;
}

/* --- cutting --- */

/* The words of a text, with '|' behind each. */
static const char *words_of(WordSplit split, const char *text) {
    static char words[512];
    size_t begin = 0, end = 0, at = 0;
    *words = 0;
    for (; word_next(split, text, strlen(text), &begin, &end); begin = end)
        at += (size_t)snprintf(words + at, sizeof words - at, "%.*s|", (int)(end - begin),
                               text + begin);
    return words;
}

static void test_cuts(void **state) {
    (void)state;
    static const struct {
        WordSplit split;
        const char *text, *wanted;
    } CASES[] = {
        {SPLIT_WORDS, "I'm fine, 3.5 times!", "I'm|fine|,|3.5|times|!|"},
        {SPLIT_WORDS, "  don\u2019t well-known -- 10,000.", //
         "don\u2019t|well-known|-|-|10,000|.|"},
        {SPLIT_WORDS, "'quoted' it's- -a 1,2,x 3. 4",
         "'|quoted|'|it's|-|-|a|1,2|,|x|3|.|4|"},
        {SPLIT_WORDS, "\u041a\u0442\u043e-\u0442\u043e \u00abe\u0301t\u00e9\u00bb\u2026",
         "\u041a\u0442\u043e-\u0442\u043e|\u00ab|e\u0301t\u00e9|\u00bb|\u2026|"},
        {SPLIT_WORDS, "a_b @x \u00a0y\t\n", "a|_|b|@|x|y|"},
        {SPLIT_PUNCTUATION, "I'm 3.5 a_b \u00ab\u0434\u0430\u00bb",
         "I|'|m|3|.|5|a|_|b|\u00ab|\u0434\u0430|\u00bb|"},
        {SPLIT_SPACES, " I'm  3.5!\u3000x ", "I'm|3.5!|x|"},
        {SPLIT_WORDS, "", ""},
        {SPLIT_SPACES, " \t\u2003", ""},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        assert_string_equal(words_of(CASES[i].split, CASES[i].text), CASES[i].wanted);
}

/* --- making --- */

static WordVocabularyReport make(const char *text, WordVocabularyOptions options) {
    WordVocabularyReport report;
    Diag *diag = diag_create();
    if (text) put_text(texts, text);
    options.path = texts;
    assert_ok(word_vocabulary_write(&report, output, &options, diag), diag);
    diag_destroy(diag);
    return report;
}

static const char *column_names[] = {"a", "b"};

/* Frequent words first, equally frequent ones by their bytes. */
static void test_order(void **state) {
    (void)state;
    const WordVocabularyReport report =
        make("a\tb\nb a B c\tz z z z\na. b A\tq\n",
             (WordVocabularyOptions){.columns = {column_names, 1}, .lowercase = true});
    Bench bench = bench_open(output);
    static const char *const WANTED[] = {"<pad>", "<unk>", "<s>", "</s>",
                                         "a",     "b",     ".",   "c"};
    assert_int_equal(tokenizer_size(bench.tokenizer), 8);
    for (int i = 0; i < 8; i++)
        assert_string_equal(tokenizer_token(bench.tokenizer, i), WANTED[i]);
    assert_true(report.texts == 2 && report.words == 8 && report.different == 4);
    assert_true(report.size == 8 && report.covered == 8);
    const SpecialIds *ids = tokenizer_specials(bench.tokenizer);
    assert_true(ids->pad == 0 && ids->unk == 1 && ids->bos == 2 && ids->eos == 3);
    assert_true(tokenizer_lowercases(bench.tokenizer));
    check_encoding(&bench, "C a? <s> B", NULL, 0, "c a <unk> <s> b </s>", 9);
    check_encoding(&bench, "a b c", NULL, 3, "a b </s>", 9);
    check_encoding(&bench, "a b", "c", 0, "a b c </s>", 2);
    check_plain(&bench, "A.B", "a . b");
    bench_close(&bench);
}

static void test_limits(void **state) {
    (void)state;
    static const char TEXT[] = "a\tb\nx x x y\ty z\nx y\tz w\n";
    WordVocabularyReport r =
        make(TEXT, (WordVocabularyOptions){.columns = {column_names, 2}, .min_count = 2});
    assert_true(r.words == 10 && r.different == 4 && r.size == 7 && r.covered == 9);
    r = make(NULL, (WordVocabularyOptions){.columns = {column_names, 2}, .max_size = 5});
    assert_true(r.size == 5 && r.covered == 4);
    Bench bench = bench_open(output);
    assert_string_equal(tokenizer_token(bench.tokenizer, 4), "x");
    assert_false(tokenizer_lowercases(bench.tokenizer));
    bench_close(&bench);
    r = make("a b\n\nb <pad> </s>\n", (WordVocabularyOptions){.split = SPLIT_SPACES});
    assert_true(r.texts == 2 && r.words == 5 && r.different == 2 && r.size == 6);
}

/* The same texts give the same bytes; what was written reads back as it was meant. */
static void test_bytes(void **state) {
    (void)state;
    char *first, *second;
    size_t one, two;
    Bench bench = bench_open(NULL);
    static const WordSplit SPLITS[] = {SPLIT_WORDS, SPLIT_PUNCTUATION, SPLIT_SPACES};
    for (int i = 0; i < 3; i++) {
        const WordVocabularyOptions options = {.split = SPLITS[i]};
        make("\"it's\" a\\b\nit's 2.5\n", options);
        assert_ok(file_read(&first, &one, bench.arena, output, 1 << 20, bench.diag),
                  bench.diag);
        make(NULL, options);
        assert_ok(file_read(&second, &two, bench.arena, output, 1 << 20, bench.diag),
                  bench.diag);
        assert_string_equal(first, second);
        Bench read = bench_open(output);
        static const char *const TOKENS[] = {"it's 2.5 \\ \" b </s>",
                                             "it ' s 2 . 5 \\ \" b </s>",
                                             "it's 2.5 <unk> <unk> <unk> </s>"};
        check_encoding(&read, "it's 2.5 \\ \" b", NULL, 0, TOKENS[i], 16);
        bench_close(&read);
    }
    bench_close(&bench);
}

/* Words joined with spaces, special tokens left out. */
static void test_decode(void **state) {
    (void)state;
    make("i'm here.\n", (WordVocabularyOptions){0});
    Bench bench = bench_open(output);
    Text text = {0};
    assert_ok(tokenizer_decode(bench.tokenizer, &text, (int32_t[]){2, 6, 5, 4, 1, 3, 0},
                               7, true, LOC_NONE, bench.diag),
              bench.diag);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "%s %s %s", tokenizer_token(bench.tokenizer, 6),
             tokenizer_token(bench.tokenizer, 5), tokenizer_token(bench.tokenizer, 4));
    assert_string_equal(text.data, wanted);
    text_free(&text);
    bench_close(&bench);
}

static void test_refused(void **state) {
    (void)state;
    WordVocabularyReport report;
    WordVocabularyOptions options = {.path = texts, .columns = {column_names, 1}};
    Bench bench = bench_open(NULL);
    put_text(texts, "x\ty\n1\t2\n");
    expect_error(bench.diag, word_vocabulary_write(&report, output, &options, bench.diag),
                 STATUS_RECIPE, "no column 'a'");
    put_text(texts, "a\tb\nok\tok\nw\xff\tx\n");
    expect_error(bench.diag, word_vocabulary_write(&report, output, &options, bench.diag),
                 STATUS_FORMAT, "texts.tsv:3:2");
    put_text(texts, "a\tb\n \t2\n");
    expect_error(bench.diag, word_vocabulary_write(&report, output, &options, bench.diag),
                 STATUS_FORMAT, "found no words");
    put_text(texts, "a\tb\nx y x\t2\n");
    options.min_count = 3;
    expect_error(bench.diag, word_vocabulary_write(&report, output, &options, bench.diag),
                 STATUS_FORMAT,
                 "occur at least 3 times, the most frequent one occurs 2 times");
    bench_close(&bench);
}

/* --- files of others --- */

static void put_in(const char *name, const char *text) {
    char file[320];
    snprintf(file, sizeof file, "%s/%s", folder, name);
    put_text(file, text);
}

/* Marian's vocab.json, when its units are words. */
static void test_vocab_json(void **state) {
    (void)state;
    put_in("vocab.json",
           "{\"</s>\": 0, \"<unk>\": 1, \"cat\": 2, \"the\": 3, \"<pad>\": 4}");
    Bench bench = bench_open(folder);
    const SpecialIds *ids = tokenizer_specials(bench.tokenizer);
    assert_true(ids->pad == 4 && ids->unk == 1 && ids->eos == 0 && ids->bos == -1);
    check_encoding(&bench, "the cat sat. the", NULL, 0, "the cat <unk> the </s>", 9);
    bench_close(&bench);
    put_in("tokenizer_config.json", "{\"do_lower_case\": true, \"eos_token\": \"cat\"}");
    bench = bench_open(folder);
    check_encoding(&bench, "THE", NULL, 0, "the cat", 9);
    bench_close(&bench);
    put_in("tokenizer_config.json", "{}");
    put_in("source.spm", "x");
    Bench refused = bench_open(NULL);
    expect_error(refused.diag, tokenizer_read(&refused.tokenizer, folder, refused.diag),
                 STATUS_FORMAT, "source.spm: error: expected a model of SentencePiece");
    bench_close(&refused);
}

static void test_bad_files(void **state) {
    (void)state;
    static const struct {
        const char *json, *wanted;
    } CASES[] = {
        {"{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0}}}",
         "pre_tokenizer: expected WhitespaceSplit, BertPreTokenizer or Split"},
        {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"x+\"}, "
         "\"behavior\": \"Removed\", \"invert\": true}, "
         "\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0}}}",
         "found 'x+'"},
        {"{\"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}, \"model\": "
         "{\"type\": \"WordLevel\", \"vocab\": {\"a\": 0}, \"unk_token\": \"u\"}}",
         "model.unk_token: 'u' is not in the vocabulary"},
        {"{\"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}, \"model\": "
         "{\"type\": \"WordLevel\", \"vocab\": {\"a\": 1}}}",
         "number 1"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Bench bench = bench_open(NULL);
        put_text(output, CASES[i].json);
        expect_error(bench.diag, tokenizer_read(&bench.tokenizer, output, bench.diag),
                     STATUS_FORMAT, CASES[i].wanted);
        bench_close(&bench);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),
        cmocka_unit_test_setup_teardown(test_order, enter_words, leave),
        cmocka_unit_test_setup_teardown(test_limits, enter_words, leave),
        cmocka_unit_test_setup_teardown(test_bytes, enter_words, leave),
        cmocka_unit_test_setup_teardown(test_decode, enter_words, leave),
        cmocka_unit_test_setup_teardown(test_refused, enter_words, leave),
        cmocka_unit_test_setup_teardown(test_vocab_json, enter_words, leave),
        cmocka_unit_test_setup_teardown(test_bad_files, enter_words, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
