/* Translation data sets: tokens of both sides, shifted targets, padding, lengths,
 * references, and what is refused. */
#include "io/tokenizers/word_vocabulary.h"
#include "tests/io/text_set.h"

enum { S = 6, T = 5 };

/* <pad> <unk> <s> </s>, then a to f: numbers 4 to 9. */
static int enter_pairs(void **state) {
    char texts[320], output[320];
    WordVocabularyReport report;
    Diag *diag = diag_create();
    set_format = "translation";
    set_tokenizer = NULL;
    enter(state);
    snprintf(texts, sizeof texts, "%s/texts", folder);
    snprintf(output, sizeof output, "%s/t.json", folder);
    put_text(texts, "a b c d e f\n");
    const WordVocabularyOptions options = {.path = texts, .lowercase = true};
    assert_ok(word_vocabulary_write(&report, output, &options, diag), diag);
    put_text(texts, "x y\n");
    snprintf(output, sizeof output, "%s/u.json", folder);
    const WordVocabularyOptions other = {.path = texts};
    assert_ok(word_vocabulary_write(&report, output, &other, diag), diag);
    diag_destroy(diag);
    put("p.tsv", "id\tsource\ttarget\n1\ta b c\tD e\n2\tb\tf\n3\tA A A A\ta b c\n");
    return 0;
}

#define P "\"path\": \"p.tsv\", \"tokenizer\": \"t.json\""

/* --- samples --- */

static void test_columns(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t dim;
    } WANTED[] = {{"input_ids", DIM_S},
                  {"attention_mask", DIM_S},
                  {"decoder_input_ids", DIM_T},
                  {"decoder_attention_mask", DIM_T},
                  {"labels", DIM_T}};
    Set pairs = set_open(P);
    const Batches *data = pairs.data;
    assert_int_equal(data->count, 3);
    assert_int_equal(data->classes, 10);
    assert_int_equal(data->max_tokens, 4);
    assert_int_equal(data->max_source, 5);
    assert_int_equal(data->column_count, 5);
    for (int i = 0; i < 5; i++) {
        const Column *column = &data->columns[i];
        assert_string_equal(column->name, WANTED[i].name);
        assert_int_equal(column->type.dtype, DTYPE_I32);
        assert_int_equal(column->type.rank, 1);
        assert_int_equal(column->type.dim[0], WANTED[i].dim);
    }
    set_close(&pairs);
}

/* Three pairs in one batch, padded on each side by itself. */
static void test_fetch(void **state) {
    (void)state;
    static const int32_t X[3][S] = {{4, 5, 6, 3, 0, 0}, {5, 3}, {4, 4, 4, 4, 3, 0}};
    static const int32_t Y[3][T] = {
        {7, 8, 3, -100, -100}, {9, 3, -100, -100, -100}, {4, 5, 6, 3, -100}};
    static const int32_t SHIFTED[3][T] = {{0, 7, 8, 0, 0}, {0, 9, 0, 0, 0}, {0, 4, 5, 6}};
    static const int SOURCE[] = {4, 2, 5}, TARGET[] = {3, 2, 4};
    static const int64_t INDEX[] = {0, 1, 2};
    int32_t x[3][S], mask[3][S], shifted[3][T], decoder_mask[3][T], y[3][T];
    Set pairs = set_open(P);
    const Batches *data = pairs.data;
    const Fetch what = {.index = INDEX, .n = 3, .tokens = T, .source = S};
    assert_ok(data->fetch(data, &what, (void *[]){x, mask, shifted, decoder_mask, y},
                          pairs.bench.diag),
              pairs.bench.diag);
    assert_memory_equal(x, X, sizeof x);
    assert_memory_equal(y, Y, sizeof y);
    assert_memory_equal(shifted, SHIFTED, sizeof shifted);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(data->length(data, i), TARGET[i]);
        assert_int_equal(data->source_length(data, i), SOURCE[i]);
        for (int t = 0; t < S; t++) assert_int_equal(mask[i][t], t < SOURCE[i]);
        for (int t = 0; t < T; t++) assert_int_equal(decoder_mask[i][t], t < TARGET[i]);
    }
    memset(y, 0, sizeof y);
    assert_ok(
        data->fetch(data, &what, (void *[]){NULL, NULL, NULL, NULL, y}, pairs.bench.diag),
        pairs.bench.diag);
    assert_memory_equal(y, Y, sizeof y);
    const Fetch narrow = {.index = INDEX, .n = 3, .tokens = T, .source = 4};
    expect_error(pairs.bench.diag,
                 data->fetch(data, &narrow, (void *[]){NULL, NULL, NULL, NULL, y},
                             pairs.bench.diag),
                 STATUS_INTERNAL, "sample 2 has 5 and 4 tokens, 4 and 5");
    set_close(&pairs);
}

/* Batches are padded no further than needed, and sorted by both lengths. */
static void test_padding(void **state) {
    (void)state;
    Text text = {0};
    text_add(&text, "source\ttarget\n");
    for (int i = 0; i < 30; i++) {
        for (int k = 0; k <= i * 7 % 30; k++) text_add(&text, " a");
        text_add(&text, "\t");
        for (int k = 0; k <= i / 10; k++) text_add(&text, " b");
        text_add(&text, "\n");
    }
    put("p.tsv", text.data);
    text_free(&text);
    Set pairs = set_open(P);
    int64_t index[30];
    for (int i = 0; i < 30; i++) index[i] = i;
    batches_sort(pairs.data, index, 30);
    for (int i = 1; i < 30; i++) {
        const int64_t a = pairs.data->length(pairs.data, index[i - 1]);
        const int64_t b = pairs.data->length(pairs.data, index[i]);
        const int64_t c = pairs.data->source_length(pairs.data, index[i - 1]);
        const int64_t d = pairs.data->source_length(pairs.data, index[i]);
        assert_true(a < b || (a == b && c <= d));
    }
    Fetch what = {.index = (int64_t[]){0, 20}, .n = 2}; /* 2 and 22 tokens; 2 and 4 */
    batches_pad(pairs.data, &what);
    assert_int_equal(what.source, 24);
    assert_int_equal(what.tokens, 4); /* the longest there is */
    what.n = 1;
    batches_pad(pairs.data, &what);
    assert_int_equal(what.source, 8);
    set_close(&pairs);
}

/* --- options --- */

static void test_start(void **state) {
    (void)state;
    static const char *const NAMES[] = {"pad", "bos", "end"};
    static const int32_t WANTED[] = {0, 2, 3};
    for (int i = 0; i < 3; i++) {
        char rest[128];
        int32_t shifted[T];
        snprintf(rest, sizeof rest, P ", \"start\": \"%s\"", NAMES[i]);
        Set pairs = set_open(rest);
        const Fetch what = {.index = (int64_t[]){0}, .n = 1, .tokens = T, .source = S};
        assert_ok(pairs.data->fetch(pairs.data, &what,
                                    (void *[]){NULL, NULL, shifted, NULL, NULL},
                                    pairs.bench.diag),
                  pairs.bench.diag);
        assert_int_equal(shifted[0], WANTED[i]);
        assert_int_equal(shifted[1], 7);
        assert_int_equal(pairs.data->translations->start, WANTED[i]);
        assert_int_equal(pairs.data->translations->end, 3);
        set_close(&pairs);
    }
}

/* Targets begin with a token of their own, which counts. */
static void test_begin(void **state) {
    (void)state;
    static const int32_t Y[2][T] = {{2, 7, 8, 3, -100}, {2, 9, 3, -100, -100}};
    static const int32_t SHIFTED[2][T] = {{3, 2, 7, 8}, {3, 2, 9}};
    int32_t shifted[2][T], y[2][T];
    Set pairs = set_open(P ", \"start\": \"end\", \"begin\": true, \"max_target\": 4");
    const Fetch what = {.index = (int64_t[]){0, 1}, .n = 2, .tokens = T, .source = S};
    assert_ok(pairs.data->fetch(pairs.data, &what,
                                (void *[]){NULL, NULL, shifted, NULL, y},
                                pairs.bench.diag),
              pairs.bench.diag);
    assert_memory_equal(y, Y, sizeof y);
    assert_memory_equal(shifted, SHIFTED, sizeof shifted);
    assert_int_equal(pairs.data->length(pairs.data, 2), 4); /* cut */
    set_close(&pairs);
}

static void check_lengths(const Batches *data, int64_t i, int64_t source,
                          int64_t target) {
    assert_int_equal(data->source_length(data, i), source);
    assert_int_equal(data->length(data, i), target);
}

static void test_too_long(void **state) {
    (void)state;
    Set pairs = set_open(P ", \"max_source\": 4, \"max_target\": 2");
    assert_int_equal(pairs.data->count, 3);
    check_lengths(pairs.data, 0, 4, 2);
    check_lengths(pairs.data, 1, 2, 2);
    check_lengths(pairs.data, 2, 4, 2);
    int32_t y[3][2];
    const Fetch what = {.index = (int64_t[]){0, 1, 2}, .n = 3, .tokens = 2, .source = 4};
    assert_ok(pairs.data->fetch(pairs.data, &what, (void *[]){NULL, NULL, NULL, NULL, y},
                                pairs.bench.diag),
              pairs.bench.diag);
    assert_true(y[0][0] == 7 && y[0][1] == 3); /* cut targets end, too */
    char *message = diag_text(pairs.bench.diag);
    assert_non_null(
        strstr(message, "2 of 3 pairs have more than 4 source or 2 target tokens"));
    free(message);
    assert_string_equal(pairs.data->translations->reference(pairs.data, 2), "a b c");
    set_close(&pairs);

    pairs = set_open(P ", \"max_source\": 4, \"max_target\": 2, \"too_long\": \"drop\"");
    assert_int_equal(pairs.data->count, 1);
    check_lengths(pairs.data, 0, 2, 2);
    assert_string_equal(pairs.data->translations->reference(pairs.data, 0), "f");
    set_close(&pairs);
    refuse(P
           ", \"max_source\": 4, \"max_target\": 2, \"too_long\": \"drop\", \"limit\": 1",
           STATUS_RECIPE, "too_long");
}

/* Two vocabularies; the target's keeps case, so do its references. */
static void test_two_tokenizers(void **state) {
    (void)state;
    put("q.tsv", "de\ten\na B\tx Y.\n");
    Set pairs = set_open("\"path\": \"q.tsv\", \"source_tokenizer\": \"t.json\", "
                         "\"target_tokenizer\": \"u.json\", \"source\": \"de\", "
                         "\"target\": \"en\"");
    int32_t x[3], y[4];
    Text text = {0};
    const Translations *t = pairs.data->translations;
    const Fetch what = {.index = (int64_t[]){0}, .n = 1, .tokens = 4, .source = 3};
    assert_int_equal(pairs.data->classes, 6);
    assert_ok(pairs.data->fetch(pairs.data, &what, (void *[]){x, NULL, NULL, NULL, y},
                                pairs.bench.diag),
              pairs.bench.diag);
    assert_memory_equal(x, ((int32_t[]){4, 5, 3}), sizeof x);
    assert_memory_equal(y, ((int32_t[]){4, 1, 1, 3}), sizeof y);
    assert_false(t->lowercase);
    assert_string_equal(t->reference(pairs.data, 0), "x Y.");
    assert_ok(t->spell(pairs.data, &text, (int32_t[]){5, 4, 3}, 3, pairs.bench.diag),
              pairs.bench.diag);
    assert_string_equal(text.data, "y x");
    expect_error(pairs.bench.diag,
                 t->spell(pairs.data, &text, (int32_t[]){6}, 1, pairs.bench.diag),
                 STATUS_FORMAT, "from 0 to 5, found 6");
    text_free(&text);
    set_close(&pairs);
    pairs = set_open(P);
    assert_true(pairs.data->translations->lowercase);
    assert_string_equal(pairs.data->translations->reference(pairs.data, 0), "d e");
    set_close(&pairs);
}

static void test_refused(void **state) {
    (void)state;
    refuse("\"path\": \"p.tsv\"", STATUS_RECIPE,
           "expected tokenizer, or source_tokenizer");
    refuse("\"path\": \"p.tsv\", \"source_tokenizer\": \"t.json\"", STATUS_RECIPE,
           "expected tokenizer");
    refuse("\"path\": \"p.tsv\", \"tokenizer\": \"t.json\", \"source_tokenizer\": "
           "\"t.json\", \"target_tokenizer\": \"t.json\"",
           STATUS_RECIPE, "found all three");
    refuse(P ", \"source\": \"x\"", STATUS_RECIPE, "no column 'x'");
    refuse(P ", \"source\": null", STATUS_RECIPE,
           "source: expected string or number from 0, found null");
    refuse(P ", \"target\": null", STATUS_RECIPE,
           "target: expected string or number from 0, found null");
    refuse(P ", \"target\": \"\"", STATUS_RECIPE, "target: expected non-empty string");
    refuse(P ", \"max_source\": 1", STATUS_RECIPE, "max_source: expected at least 2");
    refuse(P ", \"limit\": 4", STATUS_RECIPE, "limit");
    put("p.tsv", "source\ttarget\na\tb\n\na\tb\tc\n");
    refuse(P, STATUS_FORMAT, "p.tsv:4: error: expected 2 columns, found 3");
    put("p.tsv", "source\ttarget\na\tb\n\nb\t \n");
    refuse(P, STATUS_FORMAT, "p.tsv:4: error: expected a translation, found one without");
    put("p.tsv", "source\ttarget\n\tb\n");
    refuse(P, STATUS_FORMAT, "p.tsv:2: error: expected a sentence to translate");
    put("p.tsv", "source\ttarget\na\tb\na b\xc3(\tb\n");
    refuse(P, STATUS_FORMAT, "p.tsv:3:4: error: invalid UTF-8");
    put("v.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n");
    refuse("\"path\": \"p.tsv\", \"tokenizer\": \"v.txt\"", STATUS_RECIPE,
           "tokens for padding and for the end");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_columns, enter_pairs, leave),
        cmocka_unit_test_setup_teardown(test_fetch, enter_pairs, leave),
        cmocka_unit_test_setup_teardown(test_padding, enter_pairs, leave),
        cmocka_unit_test_setup_teardown(test_start, enter_pairs, leave),
        cmocka_unit_test_setup_teardown(test_begin, enter_pairs, leave),
        cmocka_unit_test_setup_teardown(test_too_long, enter_pairs, leave),
        cmocka_unit_test_setup_teardown(test_two_tokenizers, enter_pairs, leave),
        cmocka_unit_test_setup_teardown(test_refused, enter_pairs, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
