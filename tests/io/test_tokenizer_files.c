/* Tokenizer: files that are unusual, not supported, or hostile. */
#include "tokenizer_test.h"

#include "ir/random.h"

#include <sys/stat.h>

/* --- files that are refused --- */

#define SPECIALS "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"

static void bad_vocab(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } BAD[] = {{"", "vocab.txt: error: expected 1 to 2097150 tokens"},
               {SPECIALS "the\ncat\nthe\n",
                "vocab.txt:8: error: expected tokens that differ, found 'the' of line 6"},
               {SPECIALS "the\n\ncat\n", "vocab.txt:7: error: expected a token"},
               {SPECIALS "the\n \t\ncat\n", "vocab.txt:7: error: expected a token"},
               {SPECIALS "the\nc\xff\n", "vocab.txt:7:2: error: invalid UTF-8"},
               {"[PAD]\n[UNK]\n[SEP]\n", "lacks the class token '[CLS]'"},
               {"[UNK]\n[CLS]\n[SEP]\n", "lacks the padding token '[PAD]'"},
               {"\x1f\x8b\x08",
                "vocab.txt: error: expected text, found a file compressed by gzip"}};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        put_text(path, BAD[i].text);
        expect_unreadable(path, STATUS_FORMAT, BAD[i].message);
    }
    put_file(path, SPECIALS "a\0b\n", sizeof SPECIALS + 3);
    expect_unreadable(path, STATUS_FORMAT,
                      "vocab.txt:6:2: error: expected text, found a NUL");
}

static void odd_vocab(void **state) {
    (void)state;
    put_text(path, "\xef\xbb\xbf[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\nthe  \r\ncat");
    Bench bench = bench_open(path);
    check_plain(&bench, "the cat [MASK]", "the cat [UNK] [UNK] [UNK]");
    assert_int_equal(tokenizer_specials(bench.tokenizer)->mask, -1);
    bench_close(&bench);
}

static void large_vocab(void **state) {
    (void)state;
    char token[TOKEN_BYTES_MAX + 3];
    memset(token, 'x', sizeof token);
    FILE *file = fopen(path, "w");
    fprintf(file, SPECIALS "%.*s\n", TOKEN_BYTES_MAX, token);
    fclose(file);
    Bench bench = bench_open(path);
    bench_close(&bench);
    file = fopen(path, "a");
    fprintf(file, "%.*s\n", TOKEN_BYTES_MAX + 1, token);
    fclose(file);
    expect_unreadable(path, STATUS_FORMAT,
                      "vocab.txt:7: error: expected a token of at most");
    file = fopen(path, "w");
    for (int i = 0; i <= TOKENS_MAX; i++) fputs("a\n", file);
    fclose(file);
    expect_unreadable(path, STATUS_FORMAT, "one a line, found more");
    assert_int_equal(truncate(path, (64 << 20) + 1), 0);
    expect_unreadable(path, STATUS_FORMAT, "expected at most 67108864 bytes");
}

static void bad_paths(void **state) {
    (void)state;
    char name[600];
    expect_unreadable(folder, STATUS_IO, "a tokenizer.json or a vocab.txt");
    expect_unreadable("/nonexistent/vocab.txt", STATUS_IO, "cannot open");
    expect_unreadable("/nonexistent/tokenizer.json", STATUS_IO, "cannot open");
    expect_unreadable("/dev/zero", STATUS_IO, "expected a regular file");
    assert_int_equal(symlink("/etc/passwd", path), 0);
    expect_unreadable(folder, STATUS_FORMAT, "a link that leads out of it");
    unlink(path);
    put_vocab("{}");
    snprintf(name, sizeof name, "%s/added_tokens.json", folder);
    put_text(name, "{}");
    expect_unreadable(folder, STATUS_FORMAT, "added_tokens.json");
}

static void bad_config(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const char *message;
    } BAD[] = {
        {"[]", "expected a JSON object, found list"},
        {"{", "tokenizer_config.json:1:1: error: invalid JSON"},
        {"{\"do_lower_case\": 1}", "do_lower_case: expected boolean, found integer"},
        {"{\"pad_token\": 0}", "pad_token: expected string, found integer"},
        {"{\"pad_token\": \"<pad>\"}", "lacks the padding token '<pad>'"},
        {"{\"pad_token\": {\"content\": 1}}", "pad_token.content: expected string"},
        {"{\"tokenizer_class\": \"MPNetTokenizer\"}", "lacks the padding token '<pad>'"},
        {"{\"tokenizer_class\": \"FunnelTokenizer\"}",
         "MPNetTokenizer beside a vocab.txt, found 'FunnelTokenizer'"},
        {"{\"tokenizer_class\": \"BertJapaneseTokenizer\"}", "BertJapaneseTokenizer"},
        {"{\"do_basic_tokenize\": false}", "do_basic_tokenize: false is not supported"},
        {"{\"never_split\": [\"x\"]}", "never_split: further tokens"},
        {"{\"additional_special_tokens\": [\"x\"]}", "additional_special_tokens"}};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        put_vocab(BAD[i].text);
        expect_unreadable(folder, STATUS_FORMAT, BAD[i].message);
    }
}

/* --- tokenizer.json --- */

/* Writes the fixture, with the first `old` replaced by `new`, to the scratch folder. */
static void put_json(const char *old, const char *new) {
    char *text;
    size_t length;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    assert_ok(file_read(&text, &length, arena, TEXT_DATA "tokenizer.json", 1 << 20, diag),
              diag);
    char *at = strstr(text, old);
    if (!at) fail_msg("no '%s' in the fixture", old);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    put_text(path, arena_printf(arena, "%.*s%s%s", (int)(at - text), text, new,
                                at + strlen(old)));
    diag_destroy(diag);
    arena_destroy(arena);
}

static void bad_json(void **state) {
    (void)state;
    static const struct {
        const char *old, *new, *message;
    } BAD[] = {
        {"\"type\": \"WordPiece\",\n  \"unk", "\"type\": \"Foo\",\n  \"unk",
         "model.type: expected WordPiece, BPE, Unigram, WordLevel or Characters, found 'Foo'"},
        {"\"type\": \"WordPiece\",\n  \"unk", "\"type\": \"BPE\",\n  \"unk",
         "model: continuing_subword_prefix '##' is not supported"},
        {"\"BertNormalizer\"", "\"Sequence\"",
         "normalizer.type: expected BertNormalizer, found 'Sequence'"},
        {"\"BertPreTokenizer\"", "\"Whitespace\"",
         "pre_tokenizer.type: expected BertPreTokenizer, found 'Whitespace'"},
        {"\"pre_tokenizer\"", "\"pre\"", "pre_tokenizer.type: expected BertPreTok"},
        {"\"TemplateProcessing\"", "\"ByteLevel\"",
         "post_processor.type: expected TemplateProcessing or BertProcessing, found Byte"},
        {"\"post_processor\"", "\"post\"", "post_processor.type: "},
        {"{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}},", "",
         "post_processor.single: expected special tokens and the texts A and B"},
        {"\"id\": \"B\"", "\"id\": \"A\"", "post_processor.pair: expected"},
        {"{\"SpecialToken\": {\"id\": \"[CLS]\"", "{\"SpecialToken\": {\"id\": \"<s>\"",
         "post_processor.special_tokens: expected"},
        {"     2\n", "     200\n", "post_processor.special_tokens: expected"},
        {"\"vocab\"", "\"words\"", "model.vocab: missing"},
        {"\"[PAD]\": 0", "\"[PAD]\": 1", "added_tokens: '[PAD]' has number 0"},
        {"\"a\": 37", "\"a\": 38", "have the same number 38"},
        {"\"a\": 37", "\"a\": 200", "'a' has number 200, expected 0 to 108"},
        {"\"a\": 37", "\"a\": -1", "'a' has number -1"},
        {"\"a\": 37", "\"a\": \"b\"", "'a' has number -1"},
        {"\"a\": 37", "\"a\": 37, \"a\": 37", "duplicate"},
        {"\"id\": 104", "\"id\": 103", "have the same number 103"},
        {"\"id\": 104", "\"id\": 10400", "'<b>' has number 10400"},
        {"\"content\": \"<b>\"", "\"content\": 3", "added_tokens[5].content: expected"},
        {"\"unk_token\": \"[UNK]\"", "\"unk_token\": \"<unk>\"",
         "lacks the unknown token '<unk>'"},
        {"_word\": 100", "_word\": 0", "max_input_chars_per_word: expected 1 to 1000"},
        {"\"lowercase\": true", "\"lowercase\": 1", "normalizer.lowercase: expected"},
        {"\"the\": 49", "\"\\u0000\": 49", "invalid JSON"},
        {"{", "", "invalid JSON"},
        {"{", "[{", "invalid JSON"}};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        put_json(BAD[i].old, BAD[i].new);
        expect_unreadable(folder, STATUS_FORMAT, BAD[i].message);
    }
}

static void other_json(void **state) {
    (void)state;
    put_json("\"type\": \"WordPiece\",\n  \"unk", "\"unk"); /* as old files are */
    Bench bench = bench_open(folder);
    check_plain(&bench, "The", "the");
    bench_close(&bench);
    put_json("\"normalizer\"", "\"normal\"");
    bench = bench_open(path);
    check_plain(&bench, "The\tthe Émile éa\xcc\x81", "The the Émile [UNK]");
    bench_close(&bench);
    put_json("\"post_processor\"",
             "\"post_processor\": {\"type\": \"BertProcessing\", \"sep\": [\"[SEP]\", 3],"
             " \"cls\": [\"[CLS]\", 2]}, \"unused\"");
    bench = bench_open(path);
    check_encoding(&bench, "the", "cat", 0, "[CLS] the [SEP] cat [SEP]", 3);
    bench_close(&bench);
    put_json("{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}},",
             "{\"Sequence\": {\"id\": \"A\", \"type_id\": 1}},");
    bench = bench_open(path);
    check_encoding(&bench, "", NULL, 3, "[CLS] [SEP]", 2);
    check_plain(&bench, "the", "the");
    assert_ok(tokenizer_encode(bench.tokenizer, &bench.encoding, span("the"), NULL, 3,
                               LOC_NONE, bench.diag),
              bench.diag);
    assert_int_equal(bench.encoding.types[0], 0);
    assert_int_equal(bench.encoding.types[1], 1);
    assert_int_equal(bench.encoding.types[2], 0);
    bench_close(&bench);
}

static void other_template(void **state) {
    (void)state;
    put_json("     2\n", "     2, 4\n"); /* [CLS] stands for two tokens */
    Bench bench = bench_open(path);
    check_encoding(&bench, "the cat", NULL, 4, "[CLS] [MASK] the [SEP]", 4);
    assert_int_equal(tokenizer_overhead(bench.tokenizer, true), 4);
    bench_close(&bench);
}

/* --- mutations --- */

static size_t mutate(char *file, size_t bytes, uint64_t key) {
    int changes = 1 + (int)(random_u64(key, 0) % 4);
    for (int i = 0; i < changes; i++) {
        uint64_t r = random_u64(key, (uint64_t)i + 1);
        size_t at = (size_t)((r >> 8) % bytes), other = (size_t)((r >> 40) % bytes);
        switch (r % 5) {
        case 0: file[at] ^= (char)(1 << (r >> 40) % 8); break;
        case 1: file[at] = file[other]; break;
        case 2: file[at] = (char)('0' + (r >> 40) % 10); break;
        case 3: memmove(file + at, file + at + 1, --bytes - at); break;
        default: memmove(file + at + 1, file + at, bytes++ - at); break;
        }
    }
    return bytes;
}

/* Reads a mutant: it is refused with one error, or encodes. */
static void try_mutant(Diag *diag) {
    Tokenizer *tokenizer;
    Status status = tokenizer_read(&tokenizer, path, diag);
    if (status != STATUS_OK) {
        expect_error(diag, status, STATUS_FORMAT, "error: ");
        return;
    }
    Encoding encoding = {0};
    TextSpan text = span("The unhappyness of [MASK] CAFÉS, Émile<br> 你好"), other = text;
    if (tokenizer_overhead(tokenizer, true) <= 16)
        assert_ok(
            tokenizer_encode(tokenizer, &encoding, text, &other, 16, LOC_NONE, diag),
            diag);
    for (size_t i = 0; i < encoding.length; i++)
        assert_non_null(tokenizer_token(tokenizer, encoding.ids[i]));
    encoding_free(&encoding);
    tokenizer_destroy(tokenizer);
}

static void mutate_file(const char *from, const char *name) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    char *good;
    size_t length;
    assert_ok(file_read(&good, &length, arena, from, 1 << 20, diag), diag);
    char *mutant = malloc(length + 8);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (uint64_t i = 0; i < 3000; i++) {
        memcpy(mutant, good, length);
        put_file(path, mutant, mutate(mutant, length, random_key_name(i, name)));
        try_mutant(diag);
    }
    free(mutant);
    diag_destroy(diag);
    arena_destroy(arena);
}

static void mutations(void **state) {
    (void)state;
    mutate_file(TEXT_DATA "vocab.txt", "vocab.txt");
    mutate_file(TEXT_DATA "tokenizer.json", "tokenizer.json");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bad_vocab, enter, leave),
        cmocka_unit_test_setup_teardown(odd_vocab, enter, leave),
        cmocka_unit_test_setup_teardown(large_vocab, enter, leave),
        cmocka_unit_test_setup_teardown(bad_paths, enter, leave),
        cmocka_unit_test_setup_teardown(bad_config, enter, leave),
        cmocka_unit_test_setup_teardown(bad_json, enter, leave),
        cmocka_unit_test_setup_teardown(other_json, enter, leave),
        cmocka_unit_test_setup_teardown(other_template, enter, leave),
        cmocka_unit_test_setup_teardown(mutations, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
