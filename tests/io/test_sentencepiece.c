/* SentencePiece: its model files against SentencePiece itself, with what the classes of
 * tokenizers add, and damaged ones. */
#include "tokenizer_cases.h"

#include "ir/random.h"

#define UNIGRAM TEXT_DATA "spm_unigram/"
#define BYTES   TEXT_DATA "spm_bytes/"
#define BPE     TEXT_DATA "spm_bpe/"

static void recorded(void **state) {
    (void)state;
    check_cases(UNIGRAM, UNIGRAM "cases.json", NULL, 56);
    check_cases(UNIGRAM "spiece.model", UNIGRAM "cases.json", NULL, 56);
    check_cases(BYTES, BYTES "cases.json", NULL, 57);
    check_cases(BPE, BPE "cases.json", NULL, 57);
}

/* --- classes --- */

static char *read_model(Bench *bench, const char *from, size_t *length) {
    char *text;
    assert_ok(file_read(&text, length, bench->arena, from, 1 << 20, bench->diag),
              bench->diag);
    return text;
}

static void put_in(const char *name, const char *text, size_t length) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    put_file(path, text, length);
}

/* Copies a model into the scratch folder, under a name, beside a configuration. */
static void put_model(const char *from, const char *name, const char *config) {
    Bench bench = bench_open(NULL);
    size_t length;
    const char *text = read_model(&bench, from, &length);
    put_in(name, text, length);
    put_in("tokenizer_config.json", config, strlen(config));
    bench_close(&bench);
}

static void check_ids(Bench *bench, const char *text, const char *tokens) {
    assert_ok(tokenizer_encode(bench->tokenizer, &bench->encoding, span(text), NULL, 0,
                               LOC_NONE, bench->diag),
              bench->diag);
    assert_string_equal(tokens_text(bench), tokens);
}

static void t5(void **state) {
    (void)state;
    put_model(UNIGRAM "spiece.model", "spiece.model",
              "{\"tokenizer_class\": \"T5Tokenizer\", \"extra_ids\": 3}");
    Bench bench = bench_open(folder), plain = bench_open(UNIGRAM);
    const int32_t size = tokenizer_size(plain.tokenizer);
    assert_int_equal(tokenizer_size(bench.tokenizer), size + 3);
    assert_int_equal(tokenizer_find(bench.tokenizer, "<extra_id_0>"), size + 2);
    check_ids(&bench, "the <extra_id_1> the<extra_id_0>the",
              "▁the <extra_id_1> ▁the <extra_id_0> ▁the </s>");
    check_encoding(&bench, "the", "the", 0, "▁the </s> ▁the </s>", 9);
    bench_close(&bench);
    put_model(UNIGRAM "spiece.model", "spiece.model",
              "{\"tokenizer_class\": \"T5TokenizerFast\", \"legacy\": false}");
    bench = bench_open(folder);
    assert_int_equal(tokenizer_size(bench.tokenizer), size + 100);
    check_ids(&bench, "the <extra_id_1> the<extra_id_0>the",
              "▁the <extra_id_1> ▁the <extra_id_0> th e </s>");
    check_ids(&bench, "<extra_id_9>  the ", "<extra_id_9> ▁the </s>");
    bench_close(&bench);
    bench_close(&plain);
}

/* Numbers of fairseq: those of the pieces and one. */
static void xlm_roberta(void **state) {
    (void)state;
    put_model(BYTES "tokenizer.model", "sentencepiece.bpe.model", "{}");
    put_in("config.json", "{\"model_type\": \"xlm-roberta\"}", 29);
    Bench bench = bench_open(folder), plain = bench_open(BYTES);
    const int32_t size = tokenizer_size(plain.tokenizer);
    const SpecialIds *ids = tokenizer_specials(bench.tokenizer);
    assert_int_equal(tokenizer_size(bench.tokenizer), size + 2);
    assert_int_equal(ids->pad, 1);
    assert_int_equal(ids->unk, 3);
    assert_int_equal(ids->cls, 0);
    assert_int_equal(ids->sep, 2);
    assert_int_equal(ids->mask, size + 1);
    check_ids(&bench, "the <mask>the", "<s> ▁the <mask> ▁the </s>");
    assert_int_equal(bench.encoding.ids[1], tokenizer_find(plain.tokenizer, "▁the") + 1);
    check_encoding(&bench, "the", NULL, 0, "<s> ▁the </s>", 9);
    const TextSpan second = span("the");
    assert_ok(tokenizer_encode(bench.tokenizer, &bench.encoding, span("the"), &second, 0,
                               LOC_NONE, bench.diag),
              bench.diag);
    assert_string_equal(tokens_text(&bench), "<s> ▁the </s> </s> ▁the </s>");
    assert_int_equal(bench.encoding.types[4], 0);
    bench_close(&bench);
    bench_close(&plain);
}

static void llama(void **state) {
    (void)state;
    static const struct {
        const char *config, *tokens;
    } CASES[] = {
        {"{\"tokenizer_class\": \"LlamaTokenizer\"}", "<s> ▁the </s> ▁the"},
        {"{\"tokenizer_class\": \"LlamaTokenizer\", \"add_bos_token\": false, "
         "\"add_eos_token\": true}",
         "▁the </s> ▁the </s>"},
        {"{\"tokenizer_class\": \"LlamaTokenizer\", \"add_prefix_space\": false, "
         "\"add_bos_token\": false}",
         "t he </s> t he"},
        {"{\"tokenizer_class\": \"LlamaTokenizer\", \"legacy\": false}",
         "<s> ▁the </s> t he"},
        {"{\"tokenizer_class\": \"LlamaTokenizer\", \"added_tokens_decoder\": {\"2\": "
         "{\"content\": \"</s>\", \"special\": true}, \"3\": {\"content\": \"the\"}}}",
         NULL},
        {"{\"tokenizer_class\": \"LlamaTokenizer\", \"added_tokens_decoder\": {\"563\": "
         "{\"content\": \"he\", \"special\": true}}}",
         NULL}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        put_model(BPE "tokenizer.model", "tokenizer.model", CASES[i].config);
        Diag *diag = diag_create();
        Tokenizer *tokenizer;
        if (!CASES[i].tokens) {
            expect_error(diag, tokenizer_read(&tokenizer, folder, diag), STATUS_FORMAT,
                         i == 4 ? "'<x>' and 'the' have the same number 3"
                                : "'he' has number 563, and another in the vocabulary");
            diag_destroy(diag);
            continue;
        }
        diag_destroy(diag);
        Bench bench = bench_open(folder);
        check_ids(&bench, "the</s>the", CASES[i].tokens);
        bench_close(&bench);
    }
    put_model(BPE "tokenizer.model", "tokenizer.model",
              "{\"tokenizer_class\": \"LlamaTokenizer\", \"added_tokens_decoder\": {"
              "\"560\": {\"content\": \"<|user|>\", \"rstrip\": true}}}");
    Bench bench = bench_open(folder);
    check_ids(&bench, "the<|user|>  the", "<s> ▁the <|user|> ▁the");
    bench_close(&bench);
}

/* Numbers of a vocab.json; pieces that it lacks are unknown. */
static void marian(void **state) {
    (void)state;
    static const char VOCAB[] =
        "{\"</s>\": 0, \"<unk>\": 1, \"▁the\": 2, \"▁\": 3, \"s\": 4, \"<pad>\": 5, "
        "\">>fra<<\": 6}";
    put_model(UNIGRAM "spiece.model", "source.spm",
              "{\"tokenizer_class\": \"MarianTokenizer\"}");
    put_in("vocab.json", VOCAB, strlen(VOCAB));
    Bench bench = bench_open(folder);
    check_ids(&bench, "the 時x", "▁the ▁ <unk> <unk> </s>");
    check_encoding(&bench, "the", "the", 0, "▁the ▁the </s>", 9);
    check_ids(&bench, ">>fra<< the", ">>fra<< ▁the </s>");
    assert_string_equal(decode(&bench, (int32_t[]){2, 3, 4, 0}, 4, true), "the s");
    bench_close(&bench);
}

/* What cuts translations is a target.spm beside the source.spm that is read. */
static void marian_target(void **state) {
    (void)state;
    static const char VOCAB[] =
        "{\"</s>\": 0, \"<unk>\": 1, \"▁\": 2, \"s\": 3, \"▁the\": 4, \"<pad>\": 5}";
    static const char *const BEFORE[] = {"spiece.model", "merges.txt", "tokenizer.json"};
    Bench bench = bench_open(NULL);
    put_model(BYTES "tokenizer.model", "source.spm",
              "{\"tokenizer_class\": \"MarianTokenizer\"}");
    put_in("vocab.json", VOCAB, strlen(VOCAB));
    assert_ok(tokenizer_read_target(&bench.tokenizer, folder, bench.diag), bench.diag);
    assert_null(bench.tokenizer);
    put_model(UNIGRAM "spiece.model", "target.spm",
              "{\"tokenizer_class\": \"MarianTokenizer\"}");
    assert_ok(tokenizer_read_target(&bench.tokenizer, folder, bench.diag), bench.diag);
    check_ids(&bench, "the 時", "▁the ▁ <unk> </s>");
    tokenizer_destroy(bench.tokenizer);
    snprintf(path, sizeof path, "%s/source.spm", folder);
    assert_ok(tokenizer_read_target(&bench.tokenizer, path, bench.diag), bench.diag);
    assert_null(bench.tokenizer);
    for (size_t i = 0; i < sizeof BEFORE / sizeof *BEFORE; i++) {
        put_in(BEFORE[i], "x", 1);
        assert_ok(tokenizer_read_target(&bench.tokenizer, folder, bench.diag),
                  bench.diag);
        assert_null(bench.tokenizer);
        snprintf(path, sizeof path, "%s/%s", folder, BEFORE[i]);
        unlink(path);
    }
    put_in("target.spm", "x", 1);
    expect_error(bench.diag, tokenizer_read_target(&bench.tokenizer, folder, bench.diag),
                 STATUS_FORMAT, "target.spm: error: expected a model of SentencePiece");
    assert_null(bench.tokenizer);
    bench_close(&bench);
}

/* --- damaged and unknown --- */

static void bad_configs(void **state) {
    (void)state;
    static const struct {
        const char *config, *message;
    } BAD[] = {
        {"{\"tokenizer_class\": \"AlbertTokenizer\"}",
         "tokenizer_class: expected T5Tokenizer, XLMRobertaTokenizer, LlamaTokenizer, "
         "GemmaTokenizer, MarianTokenizer beside a model of SentencePiece, found 'Alb"},
        {"{\"tokenizer_class\": \"BertTokenizer\"}", "found 'BertTokenizer'"},
        {"{\"tokenizer_class\": \"T5Tokenizer\", \"extra_ids\": -1}",
         "expected 0 to 10000"},
        {"{\"tokenizer_class\": \"T5Tokenizer\", \"do_lower_case\": true}",
         "do_lower_case: not supported beside a model of SentencePiece"},
        {"{\"tokenizer_class\": \"T5Tokenizer\", \"sp_model_kwargs\": {\"alpha\": 0.1}}",
         "sp_model_kwargs: not supported"},
        {"{\"tokenizer_class\": \"T5Tokenizer\", \"legacy\": 1}", "legacy: expected"},
        {"{\"tokenizer_class\": \"MarianTokenizer\"}", "vocab.json"},
        {"{\"tokenizer_class\": \"GemmaTokenizer\"}", "lacks the token at the beg"},
        {"{\"tokenizer_class\": \"T5Tokenizer\", \"added_tokens_decoder\": {\"x\": {}}}",
         "added_tokens_decoder: expected numbers from 0"},
        {"{\"tokenizer_class\": \"T5Tokenizer\", \"added_tokens_decoder\": {\"1\": {}}}",
         "added_tokens_decoder: expected a content"},
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        put_model(UNIGRAM "spiece.model", "spiece.model", BAD[i].config);
        Diag *diag = diag_create();
        Tokenizer *tokenizer = NULL;
        const Status status = tokenizer_read(&tokenizer, folder, diag);
        assert_int_not_equal(status, STATUS_OK);
        expect_error(diag, status, status, BAD[i].message);
        assert_null(tokenizer);
        diag_destroy(diag);
    }
    put_model(UNIGRAM "spiece.model", "spiece.model", "{}");
    put_in("config.json", "{\"model_type\": \"xlnet\"}", 23);
    expect_unreadable(
        folder, STATUS_FORMAT,
        "model_type: expected t5 mt5 umt5 longt5, xlm-roberta xlm-roberta-xl");
}

/* Messages by hand: a field's tag is its number times 8 and how it is written. */
static void bad_files(void **state) {
    (void)state;
#define PIECE(text)                                                                      \
    "\x0a\x0a\x0a\x01" text "\x15\0\0\x80\xbf\x18\x01" /* a score of -1                  \
                                                        */
    static const struct {
        const char *bytes;
        size_t length;
        const char *message;
    } BAD[] = {
        {"", 0, "pieces: expected 1 to"},
        {"\x0a", 1, "found a damaged message"},
        {"\x0a\x7f", 2, "found a damaged message"},
        {"\x0b\x00", 2, "found a damaged message"},
        {"\x0a\x00", 2, "piece 0: expected 1 to 1024 bytes of UTF-8"},
        {PIECE("\xff"), 12, "piece 0: expected 1 to"},
        {PIECE("a") PIECE("a"), 24, "expected pieces that differ, found 'a' again"},
        {PIECE("a") "\x12\x02\x18\x03", 16,
         "model_type: expected unigram or bpe, found word"},
        {PIECE("a") "\x12\x02\x18\x09", 16, "expected unigram or bpe, found another one"},
        {PIECE("a") "\x12\x03\xc0\x01\x01", 17,
         "treat_whitespace_as_suffix: true is not"},
        {PIECE("a") "\x1a\x02\x28\x00", 16, "escape_whitespaces: false is not"},
        {PIECE("a") "\x1a\x03\x12\x01z", 17, "precompiled_charsmap: expected a trie"},
        {PIECE("a") "\x2a\x03\x12\x01z", 17, "denormalizer_spec: a map of characters"},
        {PIECE("a") "\x1a\x02\x12\x05", 16, "normalizer_spec: expected a model"},
        {"\x0a\x0a\x0a\x01"
         "b\x15\0\0\x80\xbf\x18\x05\x12\x02\x18\x02",
         16, "unused pieces are not supported with bpe"},
        {"\x0a\x0a\x0a\x01"
         "b\x15\0\0\x80\x7f\x18\x01",
         12, "piece 0: expected 1 to"},
        {PIECE("a") "\x12\x03\x98\x02\x01\x12\x02\x18\x02", 21, "lacks the token <0x00>"},
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        put_in("tokenizer.model", BAD[i].bytes, BAD[i].length);
        expect_unreadable(folder, STATUS_FORMAT, BAD[i].message);
    }
    put_in("tokenizer.model", PIECE("a"), 12);
    Bench bench = bench_open(folder);
    bench.encoding.skip_unknown = true;
    check_plain(&bench, "ab a", "a a");
    assert_int_equal(bench.encoding.skipped, 3);
    bench_close(&bench);
    /* numbers that do not come from the pieces say nothing of two that are the same */
    static const char CONFIG[] = "{\"tokenizer_class\": \"MarianTokenizer\"}",
                      VOCAB[] = "{\"</s>\": 0, \"<unk>\": 1, \"a\": 2, \"<pad>\": 3}";
    put_in("tokenizer.model", PIECE("a") PIECE("a"), 24);
    put_in("tokenizer_config.json", CONFIG, strlen(CONFIG));
    put_in("vocab.json", VOCAB, strlen(VOCAB));
    expect_unreadable(folder, STATUS_FORMAT,
                      "pieces: expected pieces that differ, found 'a' again");
}

/* A damaged file is refused with one error, or encodes what it can and decodes. */
static bool try_mutant(Diag *diag) {
    Tokenizer *tokenizer;
    const Status status = tokenizer_read(&tokenizer, path, diag);
    if (status != STATUS_OK) {
        expect_error(diag, status, STATUS_FORMAT, "error: ");
        return false;
    }
    Encoding encoding = {.skip_unknown = true};
    Text text = {0};
    assert_ok(tokenizer_encode(tokenizer, &encoding,
                               span("The clock's <s>12\n\n 時計😀e\xcc\x81 time machine"),
                               NULL, 0, LOC_NONE, diag),
              diag);
    assert_ok(tokenizer_decode(tokenizer, &text, encoding.ids, encoding.length, false,
                               LOC_NONE, diag),
              diag);
    encoding_free(&encoding);
    text_free(&text);
    tokenizer_destroy(tokenizer);
    return true;
}

static void mutations(void **state) {
    (void)state;
    static const char *const FILES[] = {UNIGRAM "spiece.model", BYTES "tokenizer.model",
                                        BPE "tokenizer.model"};
    for (int f = 0; f < 3; f++) {
        Bench bench = bench_open(NULL);
        size_t length;
        int good = 0;
        const char *text = read_model(&bench, FILES[f], &length);
        char *mutant = malloc(length);
        for (uint64_t i = 0; i < 500; i++) {
            const uint64_t key = random_key_name(i, FILES[f]);
            size_t bytes = length;
            memcpy(mutant, text, length);
            for (uint64_t j = 0; j < 1 + random_u64(key, 0) % 4; j++) {
                const uint64_t r = random_u64(key, j + 1);
                const size_t at = (size_t)((r >> 8) % bytes);
                if (r % 3 == 0)
                    memmove(mutant + at, mutant + at + 1, --bytes - at);
                else
                    mutant[at] = (char)(r % 3 == 1 ? mutant[at] ^ 1 << (r >> 40) % 8
                                                   : mutant[(r >> 40) % bytes]);
            }
            put_in("mutant.model", mutant, bytes);
            good += try_mutant(bench.diag);
        }
        assert_in_range(good, 1, 499);
        free(mutant);
        bench_close(&bench);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded),
        cmocka_unit_test_setup_teardown(t5, enter, leave),
        cmocka_unit_test_setup_teardown(xlm_roberta, enter, leave),
        cmocka_unit_test_setup_teardown(llama, enter, leave),
        cmocka_unit_test_setup_teardown(marian, enter, leave),
        cmocka_unit_test_setup_teardown(marian_target, enter, leave),
        cmocka_unit_test_setup_teardown(bad_configs, enter, leave),
        cmocka_unit_test_setup_teardown(bad_files, enter, leave),
        cmocka_unit_test_setup_teardown(mutations, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
