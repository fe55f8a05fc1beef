/* Tokenizer of language models: byte-pair encoding against independent encoders,
 * characters, special tokens, and the way back to text. */
#include "tokenizer_cases.h"

#define BYTES    TEXT_DATA "bytes/"
#define FALLBACK TEXT_DATA "fallback/"

static void check_decode(Bench *bench, const char *tokens, const char *wanted) {
    int32_t ids[32];
    size_t count = 0;
    char *copy = arena_strdup(bench->arena, tokens), *rest = copy;
    for (char *token; (token = strsep(&rest, " "));) {
        ids[count] = tokenizer_find(bench->tokenizer, token);
        if (ids[count++] < 0) fail_msg("no token '%s'", token);
    }
    assert_string_equal(decode(bench, ids, count, true), wanted);
}

/* --- against the expectations of other encoders --- */

static void copy_file(const char *from, const char *name) {
    Bench bench = bench_open(NULL);
    char *text, to[300];
    size_t length;
    assert_ok(file_read(&text, &length, bench.arena, from, 1 << 20, bench.diag),
              bench.diag);
    snprintf(to, sizeof to, "%s/%s", folder, name);
    put_file(to, text, length);
    bench_close(&bench);
}

static void put_config(const char *name, const char *text) {
    char file[300];
    snprintf(file, sizeof file, "%s/%s", folder, name);
    put_text(file, text);
}

static void put_merges(void) {
    copy_file(BYTES "vocab.json", "vocab.json");
    copy_file(BYTES "merges.txt", "merges.txt");
}

static void bytes(void **state) {
    (void)state;
    check_cases(BYTES, BYTES "cases.json", NULL, 70);
    check_cases(BYTES "tokenizer.json", BYTES "cases.json", NULL, 70);
    put_merges(); /* knows no <|user|> */
    check_cases(folder, BYTES "cases.json", "<|user|>", 70);
}

static void fallback(void **state) {
    (void)state;
    check_cases(FALLBACK, FALLBACK "cases.json", NULL, 70);
}

/* Real vocabularies, in the folder COMPRESS_DATA names. */
static void real(void **state) {
    (void)state;
    static const char *const NAMES[] = {"stories15M", "gpt2"};
    const char *data = getenv("COMPRESS_DATA");
    int found = 0;
    for (int i = 0; data && i < 2; i++) {
        char name[600], file[700];
        snprintf(name, sizeof name, "%s/models/%s", data, NAMES[i]);
        snprintf(file, sizeof file, "%s/tokenizer_reference.json", name);
        if (!path_is_file(file)) continue;
        check_cases(name, file, NULL, 10);
        found++;
    }
    if (found > 0) return;
    print_message("left out: COMPRESS_DATA has no tokenizer of a language model\n");
    skip();
}

/* --- variants of the fixtures --- */

/* Writes a fixture's tokenizer.json with the first `old` replaced. */
static void put_variant(const char *from, const char *old, const char *new) {
    Bench bench = bench_open(NULL);
    char *text;
    size_t length;
    assert_ok(file_read(&text, &length, bench.arena, from, 1 << 20, bench.diag),
              bench.diag);
    char *at = strstr(text, old);
    if (!at) fail_msg("no '%s' in %s", old, from);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    put_text(path, arena_printf(bench.arena, "%.*s%s%s", (int)(at - text), text, new,
                                at + strlen(old)));
    bench_close(&bench);
}

static void check_variant(const char *from, const char *old, const char *new,
                          const char *text, const char *tokens) {
    put_variant(from, old, new);
    Bench bench = bench_open(path);
    check_plain(&bench, text, tokens);
    bench_close(&bench);
}

#define META(more)                                                                       \
    "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"▁\"" more "}"

static void pre_tokenizers(void **state) {
    (void)state;
    static const char JSON[] = BYTES "tokenizer.json";
    check_variant(JSON, "\"add_prefix_space\": false", "\"add_prefix_space\": true",
                  "the the", "Ġthe Ġthe");
    check_variant(JSON, "\"use_regex\": true", "\"use_regex\": false", "n\n the",
                  "n Ċ Ġthe");
    check_variant(JSON, "\"pre_tokenizer\": {",
                  "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": ["
                  "{\"type\": \"Digits\", \"individual_digits\": true}, {\"type\": "
                  "\"ByteLevel\", \"add_prefix_space\": false}]}, \"unused\": {",
                  "12 the12", "1 2 Ġthe 1 2");
    check_variant(JSON, "\"normalizer\": null",
                  "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": ["
                  "{\"type\": \"NFC\"}, {\"type\": \"Lowercase\"}]}",
                  "THE e\xcc\x81", "the Ġ Ã©");
    put_variant(JSON, "\"merges\": [", "\"merges\": [], \"unused\": [");
    check_variant(path, "\"fuse_unk\": false", "\"ignore_merges\": true", "the thex",
                  "the Ġ t h e x");
}

static void metaspace(void **state) {
    (void)state;
    static const char JSON[] = FALLBACK "tokenizer.json",
                      NORMALIZER[] = "\"normalizer\": {";
    static const struct {
        const char *pre, *text, *tokens;
    } CASES[] = {{META(""), "the  the", "▁the ▁ ▁the"},
                 {META(", \"prepend_scheme\": \"never\""), "x the", "x ▁the"},
                 {META(", \"add_prefix_space\": false"), "x the", "x ▁the"},
                 {META(", \"prepend_scheme\": \"first\""), "x</s>x", "▁ x </s> x"},
                 {META(", \"prepend_scheme\": \"always\""), "x</s>x", "▁ x </s> ▁ x"},
                 {META(", \"split\": false"), "x   ", "▁ x ▁ ▁ ▁"}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char new[300];
        snprintf(new, sizeof new, "%s, \"unused\": {", CASES[i].pre);
        put_variant(JSON, "\"pre_tokenizer\": null", "\"other\": null");
        check_variant(path, NORMALIZER, new, CASES[i].text, CASES[i].tokens);
    }
}

static void unknown(void **state) {
    (void)state;
    static const char JSON[] = FALLBACK "tokenizer.json";
    static const char ON[] = "\"byte_fallback\": true";
    check_variant(JSON, ON, "\"byte_fallback\": false", "the ЖЖx", "▁the ▁ <unk> x");
    check_variant(JSON, "\"fuse_unk\": true,\n  \"byte_fallback\": true",
                  "\"fuse_unk\": false", "the ЖЖx", "▁the ▁ <unk> <unk> x");
    put_variant(JSON, ON, "\"byte_fallback\": false");
    put_variant(path, "\"unk_token\": \"<unk>\"", "\"unk_token\": null");
    Bench bench = bench_open(path);
    expect_error(bench.diag,
                 tokenizer_encode_plain(bench.tokenizer, &bench.encoding,
                                        span("the\nthe Жx"), (Loc){"corpus.txt", 0, 0},
                                        bench.diag),
                 STATUS_FORMAT, "corpus.txt: error: no token stands for the character");
    bench.encoding.skip_unknown = true;
    check_plain(&bench, "the ЖЖx", "▁the ▁ x");
    assert_int_equal(bench.encoding.skipped, 2);
    bench_close(&bench);
}

/* --- characters --- */

#define CHARACTERS(members)                                                              \
    "{\"added_tokens\": [{\"id\": 0, \"content\": \"<pad>\", \"special\": true}],"       \
    " \"model\": {\"type\": \"Characters\", " members "}}"
#define LIST "\"vocab\": [\"<pad>\", \"a\", \"b\", \" \", \"é\", \"\\n\"]"
#define MAP  "\"vocab\": {\"b\": 2, \"a\": 1, \"\\n\": 5, \"é\": 4, \" \": 3}"

static void expect_unknown(Bench *bench, const char *text, const char *message) {
    expect_error(bench->diag,
                 tokenizer_encode(bench->tokenizer, &bench->encoding, span(text), NULL, 0,
                                  LOC_NONE, bench->diag),
                 STATUS_FORMAT, message);
}

static void characters(void **state) {
    (void)state;
    static const char *const FILES[] = {CHARACTERS(LIST ", \"lowercase\": true"),
                                        CHARACTERS(MAP ", \"lowercase\": true")};
    for (int i = 0; i < 2; i++) {
        put_config("tokenizer.json", FILES[i]);
        Bench bench = bench_open(folder);
        assert_int_equal(tokenizer_size(bench.tokenizer), 6);
        assert_int_equal(tokenizer_specials(bench.tokenizer)->pad, 0);
        assert_int_equal(tokenizer_overhead(bench.tokenizer, false), 0);
        check_encoding(&bench, "aB É", NULL, 0, "a b   é", 4);
        check_encoding(&bench, "ab<pad>", "é", 0, "a b <pad> é", 3);
        check_encoding(&bench, "abab", NULL, 3, "a b a", 3);
        expect_unknown(&bench, "ab\nÉaЖ", "character 'ж' (U+0436), line 2, column 3 of");
        expect_unknown(&bench, "a\x01", "character '' (U+0001), line 1, column 2");
        bench.encoding.skip_unknown = true;
        check_plain(&bench, "xaxЖb", "a b");
        assert_int_equal(bench.encoding.skipped, 3);
        assert_string_equal(decode(&bench, (int32_t[]){1, 0, 4, 5}, 4, true), "aé\n");
        assert_string_equal(decode(&bench, (int32_t[]){1, 0, 4}, 3, false), "a<pad>é");
        bench_close(&bench);
    }
    put_config("tokenizer.json", CHARACTERS(LIST ", \"unk_token\": \"<pad>\""));
    Bench bench = bench_open(folder);
    check_plain(&bench, "aB É", "a <pad>   <pad>");
    assert_int_equal(tokenizer_specials(bench.tokenizer)->unk, 0);
    bench_close(&bench);
    assert_int_equal(text_characters(span("aé時😀")), 4);
}

/* --- special tokens --- */

static void check_specials(const char *from, int32_t bos, int32_t eos, int32_t pad) {
    Bench bench = bench_open(from);
    const SpecialIds *ids = tokenizer_specials(bench.tokenizer);
    assert_int_equal(ids->bos, bos);
    assert_int_equal(ids->eos, eos);
    assert_int_equal(ids->pad, pad);
    assert_int_equal(ids->cls, -1);
    bench_close(&bench);
}

static void specials(void **state) {
    (void)state;
    const int32_t end = 355; /* <|endoftext|> */
    check_specials(BYTES, end, end, -1);
    check_specials(FALLBACK, 1, 2, -1);
    put_merges();
    check_specials(folder, end, end, -1);
    put_config("config.json", "{\"bos_token_id\": 5, \"eos_token_id\": [7, 8],"
                              " \"pad_token_id\": -1}");
    check_specials(folder, 5, 7, -1);
    put_config("tokenizer_config.json",
               "{\"bos_token\": {\"content\": \"the\"}, \"pad_token\": \"!\","
               " \"add_bos_token\": true, \"add_prefix_space\": true}");
    Bench bench = bench_open(folder);
    const int32_t the = tokenizer_find(bench.tokenizer, "the");
    check_encoding(&bench, "a", "b", 0, "the Ġ a the Ġ b", 3);
    bench_close(&bench);
    check_specials(folder, the, 7, 0);
}

static void templates(void **state) {
    (void)state;
    static const char OLD[] = "\"post_processor\": {";
    put_variant(
        BYTES "tokenizer.json", OLD,
        "\"post_processor\": {\"type\": \"RobertaProcessing\", \"cls\": [\"!\", 0],"
        " \"sep\": [\"the\", 257]}, \"unused\": {");
    Bench bench = bench_open(path);
    check_encoding(&bench, "a", "b", 0, "! a the the b the", 99);
    check_encoding(&bench, "a", NULL, 0, "! a the", 99);
    bench_close(&bench);
    put_variant(
        BYTES "tokenizer.json", OLD,
        "\"post_processor\": {\"type\": \"Sequence\", \"processors\": [{\"type\": "
        "\"ByteLevel\"}, {\"type\": \"TemplateProcessing\", \"single\": ["
        "{\"SpecialToken\": {\"id\": \"x\", \"type_id\": 0}}, {\"Sequence\": "
        "{\"id\": \"A\", \"type_id\": 0}}], \"pair\": [{\"Sequence\": {\"id\": "
        "\"A\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"B\", \"type_id\": 1}}]"
        ", \"special_tokens\": {\"x\": {\"ids\": [355]}}}]}, \"unused\": {");
    bench = bench_open(path);
    check_encoding(&bench, "a", NULL, 0, "<|endoftext|> a", 99);
    check_plain(&bench, "a", "a");
    bench_close(&bench);
}

/* --- back to text --- */

static void wordpiece(void **state) {
    (void)state;
    Bench bench = bench_open(TEXT_DATA "vocab.txt");
    check_decode(&bench, "[CLS] the un ##happy ##ness cat [SEP]", "the unhappyness cat");
    check_decode(&bench, "the cat , the . [MASK]", "the cat, the.");
    assert_string_equal(decode(&bench, (int32_t[]){2, 49}, 2, false), "[CLS] the");
    bench_close(&bench);
}

static void broken_bytes(void **state) {
    (void)state;
    static const struct {
        const char *tokens, *text;
    } CASES[] = {{"<0xF0> <0x9F> <0x98> <0x80>", "😀"},
                 {"<0xF0> <0x9F> <0x98>", "\xef\xbf\xbd"},
                 {"<0xF0> <0x9F> x", "\xef\xbf\xbdx"},
                 {"<0x80> <0xC3> <0xA9> <0xC3>", "\xef\xbf\xbdé\xef\xbf\xbd"},
                 {"<0xED> <0xA0> <0x80>", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
                 {"<0x20> x", "x"},
                 {"▁ ▁ x", " x"}};
    Bench bench = bench_open(FALLBACK);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        check_decode(&bench, CASES[i].tokens, CASES[i].text);
    bench_close(&bench);
}

/* Nothing of a character comes before its last byte. */
static void held_back(void **state) {
    (void)state;
    static const size_t LENGTHS[] = {0, 0, 0, 4, 5};
    Bench bench = bench_open(FALLBACK);
    Detokenizer stream = {0};
    Text text = {0};
    detokenizer_start(&stream, bench.tokenizer, true);
    for (size_t i = 0; i < 5; i++) {
        static const char *const TOKENS[] = {"<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "x"};
        int32_t id = tokenizer_find(bench.tokenizer, TOKENS[i]);
        assert_ok(detokenizer_add(&stream, &text, id, LOC_NONE, bench.diag), bench.diag);
        assert_int_equal(text.length, LENGTHS[i]);
    }
    expect_error(bench.diag, detokenizer_add(&stream, &text, -1, LOC_NONE, bench.diag),
                 STATUS_FORMAT, "found -1");
    expect_error(bench.diag,
                 detokenizer_add(&stream, &text, tokenizer_size(bench.tokenizer),
                                 LOC_NONE, bench.diag),
                 STATUS_FORMAT, "expected a token from 0 to");
    detokenizer_finish(&stream, &text);
    assert_string_equal(text.data, "😀x");
    detokenizer_free(&stream);
    text_free(&text);
    bench_close(&bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes, enter, leave),
        cmocka_unit_test(fallback),
        cmocka_unit_test(real),
        cmocka_unit_test_setup_teardown(pre_tokenizers, enter, leave),
        cmocka_unit_test_setup_teardown(metaspace, enter, leave),
        cmocka_unit_test_setup_teardown(unknown, enter, leave),
        cmocka_unit_test_setup_teardown(characters, enter, leave),
        cmocka_unit_test_setup_teardown(specials, enter, leave),
        cmocka_unit_test_setup_teardown(templates, enter, leave),
        cmocka_unit_test(wordpiece),
        cmocka_unit_test(broken_bytes),
        cmocka_unit_test(held_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
