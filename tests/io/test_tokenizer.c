/* Tokenizer: BERT's rules, added tokens, truncation, unsupported and hostile files. */
#include "io_test.h"

#include "io/file.h"
#include "io/json.h"
#include "io/table.h"
#include "io/tokenizer.h"
#include "ir/random.h"

#include <sys/stat.h>

#define TEXT_DATA "tests/data/text/"

static char folder[256], path[300];

static int enter(void **state) {
    (void)state;
    scratch_make(folder);
    snprintf(path, sizeof path, "%s/vocab.txt", folder);
    return 0;
}

static int leave(void **state) {
    (void)state;
    scratch_remove(folder);
    return 0;
}

/* One test's things. */
typedef struct Bench {
    Arena *arena;
    Diag *diag;
    Tokenizer *tokenizer;
    Encoding encoding;
} Bench;

static Bench bench_open(const char *from) {
    Bench bench = {.arena = arena_create(), .diag = diag_create()};
    if (from) assert_ok(tokenizer_read(&bench.tokenizer, from, bench.diag), bench.diag);
    return bench;
}

static void bench_close(Bench *bench) {
    encoding_free(&bench->encoding);
    tokenizer_destroy(bench->tokenizer);
    diag_destroy(bench->diag);
    arena_destroy(bench->arena);
}

static TextSpan span(const char *text) {
    return (TextSpan){text, strlen(text)};
}

/* Tokens of the encoding, between spaces; in the arena. */
static const char *tokens_text(const Bench *bench) {
    Text text = {0};
    const Encoding *encoding = &bench->encoding;
    for (size_t i = 0; i < encoding->length; i++)
        text_add(&text, "%s%s", i ? " " : "",
                 tokenizer_token(bench->tokenizer, encoding->ids[i]));
    const char *copy = arena_strdup(bench->arena, text.data ? text.data : "");
    text_free(&text);
    return copy;
}

static const char *plain_tokens(Bench *bench, TextSpan text) {
    assert_ok(tokenizer_encode_plain(bench->tokenizer, &bench->encoding, text, LOC_NONE,
                                     bench->diag),
              bench->diag);
    return tokens_text(bench);
}

static void check_plain(Bench *bench, const char *text, const char *wanted) {
    assert_string_equal(plain_tokens(bench, span(text)), wanted);
}

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

/* Copies the fixture vocabulary into the scratch folder, with a configuration. */
static void put_vocab(const char *config) {
    char *text, name[300];
    size_t length;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    assert_ok(file_read(&text, &length, arena, TEXT_DATA "vocab.txt", 1 << 20, diag),
              diag);
    put_file(path, text, length);
    snprintf(name, sizeof name, "%s/tokenizer_config.json", folder);
    put_text(name, config);
    diag_destroy(diag);
    arena_destroy(arena);
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
    check_plain(&bench, TEXT, "The [UNK] i [UNK] 你");
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

static void check_encoding(Bench *bench, const char *first, const char *second,
                           size_t max_length, const char *tokens, size_t firsts) {
    TextSpan b = second ? span(second) : (TextSpan){0};
    assert_ok(tokenizer_encode(bench->tokenizer, &bench->encoding, span(first),
                               second ? &b : NULL, max_length, LOC_NONE, bench->diag),
              bench->diag);
    assert_string_equal(tokens_text(bench), tokens);
    for (size_t i = 0; i < bench->encoding.length; i++)
        assert_int_equal(bench->encoding.types[i], i >= firsts);
}

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

/* --- files that are refused --- */

/* Expects one error from a path. */
static void expect_refused(const char *from, Status status, const char *message) {
    Diag *diag = diag_create();
    Tokenizer *tokenizer = NULL;
    expect_error(diag, tokenizer_read(&tokenizer, from, diag), status, message);
    assert_null(tokenizer);
    diag_destroy(diag);
}

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
               {"\x1f\x8b\x08", "vocab.txt:1:2: error: invalid UTF-8, byte 0x8b"}};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        put_text(path, BAD[i].text);
        expect_refused(path, STATUS_FORMAT, BAD[i].message);
    }
    put_file(path, SPECIALS "a\0b\n", sizeof SPECIALS + 3);
    expect_refused(path, STATUS_FORMAT,
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
    expect_refused(path, STATUS_FORMAT,
                   "vocab.txt:7: error: expected a token of at most");
    file = fopen(path, "w");
    for (int i = 0; i <= TOKENS_MAX; i++) fputs("a\n", file);
    fclose(file);
    expect_refused(path, STATUS_FORMAT, "one a line, found more");
    assert_int_equal(truncate(path, (64 << 20) + 1), 0);
    expect_refused(path, STATUS_FORMAT, "expected at most 67108864 bytes");
}

static void bad_paths(void **state) {
    (void)state;
    char name[600];
    expect_refused(folder, STATUS_IO, "a tokenizer.json or a vocab.txt");
    expect_refused("/nonexistent/vocab.txt", STATUS_IO, "cannot open");
    expect_refused("/nonexistent/tokenizer.json", STATUS_IO, "cannot open");
    expect_refused("/dev/zero", STATUS_IO, "expected a regular file");
    assert_int_equal(symlink("/etc/passwd", path), 0);
    expect_refused(folder, STATUS_FORMAT, "a link that leads out of it");
    unlink(path);
    put_vocab("{}");
    snprintf(name, sizeof name, "%s/added_tokens.json", folder);
    put_text(name, "{}");
    expect_refused(folder, STATUS_FORMAT, "added_tokens.json");
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
        {"{\"tokenizer_class\": \"MPNetTokenizer\"}", "found 'MPNetTokenizer'"},
        {"{\"tokenizer_class\": \"BertJapaneseTokenizer\"}", "BertJapaneseTokenizer"},
        {"{\"do_basic_tokenize\": false}", "do_basic_tokenize: false is not supported"},
        {"{\"never_split\": [\"x\"]}", "never_split: further tokens"},
        {"{\"additional_special_tokens\": [\"x\"]}", "additional_special_tokens"}};
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        put_vocab(BAD[i].text);
        expect_refused(folder, STATUS_FORMAT, BAD[i].message);
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
        {"\"type\": \"WordPiece\",\n  \"unk", "\"type\": \"BPE\",\n  \"unk",
         "model.type: expected WordPiece, found 'BPE'"},
        {"\"BertNormalizer\"", "\"Sequence\"",
         "normalizer.type: expected BertNormalizer, found 'Sequence'"},
        {"\"BertPreTokenizer\"", "\"Whitespace\"",
         "pre_tokenizer.type: expected BertPreTokenizer, found 'Whitespace'"},
        {"\"pre_tokenizer\"", "\"pre\"", "pre_tokenizer.type: expected BertPreTok"},
        {"\"TemplateProcessing\"", "\"RobertaProcessing\"",
         "post_processor.type: expected TemplateProcessing or BertProcessing, found Rob"},
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
        expect_refused(folder, STATUS_FORMAT, BAD[i].message);
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
    check_encoding(&bench, "the cat", NULL, 3, "[CLS] the [SEP]", 1);
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

/* Any bytes as text: valid UTF-8 encodes, the rest is refused, one after the other. */
static void random_texts(void **state) {
    (void)state;
    Bench bench = bench_open(TEXT_DATA);
    for (uint64_t i = 0; i < 3000; i++) {
        char text[64];
        size_t length = (size_t)(random_u64(i, 99) % sizeof text);
        for (size_t k = 0; k < length; k++) {
            uint64_t r = random_u64(i, k);
            text[k] = "\xcc\x81\xe3\x80\xf0\x9d\x85\xa5\xad[]MASK<br> aB,"[r % 25];
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
        cmocka_unit_test_setup_teardown(bad_vocab, enter, leave),
        cmocka_unit_test_setup_teardown(odd_vocab, enter, leave),
        cmocka_unit_test_setup_teardown(large_vocab, enter, leave),
        cmocka_unit_test_setup_teardown(bad_paths, enter, leave),
        cmocka_unit_test_setup_teardown(bad_config, enter, leave),
        cmocka_unit_test_setup_teardown(bad_json, enter, leave),
        cmocka_unit_test_setup_teardown(other_json, enter, leave),
        cmocka_unit_test_setup_teardown(other_template, enter, leave),
        cmocka_unit_test_setup_teardown(mutations, enter, leave),
        cmocka_unit_test(random_texts),
        cmocka_unit_test(long_runs),
        cmocka_unit_test(real),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
