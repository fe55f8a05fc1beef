/* Tokenizer of language models: files that are not supported, or hostile. */
#include "tokenizer_test.h"

#include "ir/random.h"

#define BYTES    TEXT_DATA "bytes/tokenizer.json"
#define FALLBACK TEXT_DATA "fallback/tokenizer.json"

/* Writes a file to the scratch folder, with the first `old`, if any, replaced. */
static void put_variant(const char *from, const char *name, const char *old,
                        const char *new) {
    char *text;
    size_t length;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    assert_ok(file_read(&text, &length, arena, from, 1 << 20, diag), diag);
    char *at = strstr(text, old);
    if (!at) fail_msg("no '%s' in %s", old, from);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    put_text(path, arena_printf(arena, "%.*s%s%s", (int)(at - text), text, new,
                                at + strlen(old)));
    diag_destroy(diag);
    arena_destroy(arena);
}

static void bad_json(void **state) {
    (void)state;
    static const struct {
        const char *from, *old, *new, *message;
    } BAD[] = {
        {BYTES, "\"dropout\": null", "\"dropout\": 0.1", "model.dropout: expected null"},
        {BYTES, "\"dropout\": null", "\"dropout\": \"x\"",
         "model.dropout: expected null"},
        {BYTES, "\"end_of_word_suffix\": \"\"", "\"end_of_word_suffix\": \"</w>\"",
         "model: end_of_word_suffix '</w>' is not supported"},
        {BYTES, "\"unk_token\": null", "\"unk_token\": \"<unk>\"",
         "model.unk_token: '<unk>' is not in the vocabulary"},
        {BYTES, "\"h e\"", "\"h hh\"", "]: 'hh' is not in the vocabulary"},
        {BYTES, "\"h e\"", "\"! !\"", "]: '!!' is not in the vocabulary"},
        {BYTES, "\"h e\"", "\"he\"", "]: expected two tokens"},
        {BYTES, "\"h e\"", "\"h e e\"", "]: expected two tokens"},
        {BYTES, "\"h e\"", "[\"t\"]", "]: expected two tokens"},
        {BYTES, "\"h e\"", "[\"t\", 1]", "]: expected two tokens"},
        {BYTES, "\"h e\"", "{}", "]: expected two tokens"},
        {BYTES, "\"merges\": [", "\"merges\": 1, \"unused\": [",
         "model.merges: expected"},
        {BYTES, "\"vocab\": {", "\"vocab\": [], \"unused\": {", "model.vocab: expected"},
        {BYTES, "\"the\": 257", "\"the\": 256", "have the same number 256"},
        {BYTES, "\"the\": 257", "\"the\": 100000", "'the' has number 100000"},
        {BYTES, "\"id\": 356", "\"id\": 99999999999", "added_tokens[1]: expected"},
        {BYTES, "\"type\": \"ByteLevel\"", "\"type\": \"Whitespace\"",
         "pre_tokenizer: expected ByteLevel, Metaspace, Digits, Split, WhitespaceSplit or "
         "BertPreTokenizer, found 'Whitespace'"},
        {BYTES, "\"type\": \"ByteLevel\"",
         "\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\w+\"}",
         "pre_tokenizer: expected behavior Isolated, Removed, Contiguous, MergedWith"},
        {BYTES, "\"type\": \"ByteLevel\"",
         "\"type\": \"Split\", \"behavior\": \"Removed\", \"pattern\": {\"Regex\": "
         "\"a(b\"}",
         "pre_tokenizer: expected a regular expression that is supported, found 'a(b': mi"},
        {BYTES, "\"type\": \"ByteLevel\"",
         "\"type\": \"Split\", \"pattern\": {\"String\": \" \"}",
         "pre_tokenizer: expected"},
        {BYTES, "\"type\": \"ByteLevel\"",
         "\"type\": \"Metaspace\", \"replacement\": \"\"",
         "pre_tokenizer: expected replacement of 1 to 1024 bytes, found 0"},
        {BYTES, "\"type\": \"ByteLevel\"",
         "\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, "
         "{\"type\": \"Digits\"}]",
         "pre_tokenizer.pretokenizers[1]: expected nothing after ByteLevel"},
        {BYTES, "\"type\": \"ByteLevel\"", "\"type\": \"Sequence\"",
         "pre_tokenizer: expected pretokenizers"},
        {BYTES, "\"type\": \"ByteLevel\"",
         "\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Sequence\"}]",
         "pretokenizers[0]: expected ByteLevel, Metaspace, Digits, Split, WhitespaceSplit or "
         "BertPreTokenizer, found 'Seq"},
        {BYTES, "\"normalizer\": null", "\"normalizer\": {\"type\": \"ByteLevel\"}",
         "normalizer: expected a normalizer that is supported, found 'ByteLevel'"},
        {BYTES, "\"normalizer\": null", "\"normalizer\": {}",
         "expected a map with a type"},
        {BYTES, "\"normalizer\": null",
         "\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \" +\"}}",
         "normalizer: expected a content of at most"},
        {BYTES, "\"normalizer\": null",
         "\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Text\": \" +\"}}",
         "normalizer: expected a pattern that is a String or a Regex"},
        {FALLBACK, "\"<0x0A>\": 13", "\"<0x0a>\": 13",
         "model.byte_fallback: the vocabulary lacks the token <0x0A>"},
        {FALLBACK, "\"type\": \"Fuse\"", "\"type\": \"CTC\"",
         "decoder.decoders[2]: expected a decoder that is supported, found 'CTC'"},
        {FALLBACK, "\"type\": \"Fuse\"", "\"type\": \"ByteFallback\"",
         "decoder.decoders[3]: expected one Strip, behind Fuse"},
        {FALLBACK, "\"stop\": 0", "\"stop\": 1", "expected a character, start 0 to"},
        {FALLBACK, "\"start\": 1", "\"start\": -1", "expected a character, start 0 to"},
        {FALLBACK, "\"id\": \"A\"", "\"id\": \"C\"", "post_processor.single: expected"},
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        put_variant(BAD[i].from, "tokenizer.json", BAD[i].old, BAD[i].new);
        expect_unreadable(folder, STATUS_FORMAT, BAD[i].message);
    }
}

/* Steps that each make the text longer end in an error, not in all memory taken. */
static void swelling(void **state) {
    (void)state;
    Text json = {0};
    char block[1001];
    memset(block, 'a', sizeof block - 1);
    block[sizeof block - 1] = 0;
    text_add(&json, "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [");
    for (int i = 0; i < 8; i++)
        text_add(&json,
                 "%s{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, "
                 "\"content\": \"%s\"}",
                 i ? "," : "", block);
    text_add(&json, "]}");
    put_variant(BYTES, "tokenizer.json", "\"normalizer\": null", json.data);
    Bench bench = bench_open(folder);
    expect_error(bench.diag,
                 tokenizer_encode_plain(bench.tokenizer, &bench.encoding, span("aa"),
                                        LOC_NONE, bench.diag),
                 STATUS_FORMAT, "expected a text of at most");
    text_free(&json);
    bench_close(&bench);
}

static void bad_merges(void **state) {
    (void)state;
    static const struct {
        const char *old, *new, *message;
    } BAD[] = {{"h e\n", "h e e\n", "merges.txt:2: error: expected two tokens"},
               {"h e\n", "he\n", "merges.txt:2: error: expected two tokens"},
               {"h e\n", "h hh\n", "merges.txt:2: error: 'hh' is not in the vocabulary"},
               {"h e\n", "t \xff\n", "merges.txt:2:3: error: invalid UTF-8"}};
    put_variant(TEXT_DATA "bytes/vocab.json", "vocab.json", "{", "{");
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        put_variant(TEXT_DATA "bytes/merges.txt", "merges.txt", BAD[i].old, BAD[i].new);
        expect_unreadable(folder, STATUS_FORMAT, BAD[i].message);
    }
    put_variant(TEXT_DATA "bytes/merges.txt", "merges.txt", "\n", "\r\n\r\n");
    Bench bench = bench_open(folder);
    check_plain(&bench, "the", "the");
    bench_close(&bench);
    put_variant(TEXT_DATA "bytes/vocab.json", "vocab.json", "{", "[");
    expect_unreadable(folder, STATUS_FORMAT, "vocab.json:");
}

static void bad_config(void **state) {
    (void)state;
    static const struct {
        const char *name, *text, *message;
    } BAD[] = {
        {"config.json", "{\"bos_token_id\": 400}",
         "config.json: error: bos_token_id: expected a token below 356"},
        {"config.json", "{\"eos_token_id\": [\"x\"]}", "eos_token_id: expected a token"},
        {"config.json", "{", "config.json:1:1: error: invalid JSON"},
        {"tokenizer_config.json", "{\"eos_token\": \"</s>\"}",
         "lacks the token at the end '</s>'"},
        {"tokenizer_config.json", "{\"tokenizer_class\": \"CLIPTokenizer\"}",
         "expected GPT2Tokenizer, RobertaTokenizer, BartTokenizer, Qwen2Tokenizer beside "
         "vocab.json and merges.txt, found 'CLIPTok"},
        {"added_tokens.json", "{}", "further tokens beside a vocab.json"}};
    put_variant(TEXT_DATA "bytes/vocab.json", "vocab.json", "{", "{");
    put_variant(TEXT_DATA "bytes/merges.txt", "merges.txt", "t", "t");
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, BAD[i].name);
        put_text(path, BAD[i].text);
        expect_unreadable(folder, STATUS_FORMAT, BAD[i].message);
        unlink(path);
    }
}

static void bad_characters(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } BAD[] = {
        {"{\"model\": {\"type\": \"Characters\", \"vocab\": [\"a\", \"a\"]}}",
         "model.vocab: tokens 0 and 1 are the same, 'a'"},
        {"{\"model\": {\"type\": \"Characters\", \"vocab\": [\"a\", 1]}}",
         "model.vocab: token 1: expected string, found integer"},
        {"{\"model\": {\"type\": \"Characters\", \"vocab\": [\"a\", \"bc\"]}}",
         "model.vocab: expected characters, found 'bc' at number 1"},
        {"{\"model\": {\"type\": \"Characters\", \"vocab\": [\"\"]}}",
         "model.vocab: expected characters, found ''"},
        {"{\"model\": {\"type\": \"Characters\", \"vocab\": []}}", "expected 1 to"},
        {"{\"model\": {\"type\": \"Characters\", \"vocab\": 3}}",
         "model.vocab: expected"},
        {"{\"model\": {\"type\": \"Characters\"}}", "model.vocab: missing"},
        {"{\"model\": {\"type\": \"Characters\", \"vocab\": {\"a\": 1}}}",
         "has number 1"},
        {"{\"model\": {\"type\": \"Characters\", \"vocab\": [\"a\"], \"lowercase\": 1}}",
         "model.lowercase: expected boolean"},
        {"{\"model\": {\"type\": \"Characters\", \"vocab\": [\"a\"], \"unk_token\": "
         "\"b\"}}",
         "model.unk_token: 'b' is not in the vocabulary"},
        {"{\"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"Characters\", "
         "\"vocab\": [\"a\"]}}",
         "decoder: expected null with the model Characters"},
    };
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        put_text(path, BAD[i].text);
        expect_unreadable(folder, STATUS_FORMAT, BAD[i].message);
    }
}

/* --- mutations --- */

static size_t mutate(char *file, size_t bytes, uint64_t key) {
    int changes = 1 + (int)(random_u64(key, 0) % 4);
    for (int i = 0; i < changes; i++) {
        uint64_t r = random_u64(key, (uint64_t)i + 1);
        size_t at = (size_t)((r >> 8) % bytes), other = (size_t)((r >> 40) % bytes);
        switch (r % 4) {
        case 0: file[at] ^= (char)(1 << (r >> 40) % 8); break;
        case 1: file[at] = file[other]; break;
        case 2: file[at] = (char)('0' + (r >> 40) % 10); break;
        default: memmove(file + at, file + at + 1, --bytes - at); break;
        }
    }
    return bytes;
}

/* Reads a mutant: it is refused with one error, or encodes what it can and decodes. */
static bool try_mutant(Diag *diag) {
    Tokenizer *tokenizer;
    Status status = tokenizer_read(&tokenizer, folder, diag);
    if (status != STATUS_OK) {
        expect_error(diag, status, STATUS_FORMAT, "error: ");
        return false;
    }
    Encoding encoding = {.skip_unknown = true};
    Text text = {0};
    assert_ok(tokenizer_encode(tokenizer, &encoding, span("The clock's <s>12\n\n 時計😀é"),
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

/* Damages the file `name` of the scratch folder. */
static void mutate_file(const char *good_file, const char *name) {
    size_t length;
    int good = 0;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    char *text;
    assert_ok(file_read(&text, &length, arena, good_file, 1 << 20, diag), diag);
    char *mutant = malloc(length);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (uint64_t i = 0; i < 600; i++) {
        memcpy(mutant, text, length);
        put_file(path, mutant, mutate(mutant, length, random_key_name(i, name)));
        good += try_mutant(diag);
    }
    assert_in_range(good, 1, 599);
    free(mutant);
    diag_destroy(diag);
    arena_destroy(arena);
}

static void mutations(void **state) {
    (void)state;
    put_variant(TEXT_DATA "bytes/vocab.json", "vocab.json", "{", "{");
    mutate_file(TEXT_DATA "bytes/merges.txt", "merges.txt");
    mutate_file(BYTES, "tokenizer.json");
    mutate_file(FALLBACK, "tokenizer.json");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bad_json, enter, leave),
        cmocka_unit_test_setup_teardown(swelling, enter, leave),
        cmocka_unit_test_setup_teardown(bad_merges, enter, leave),
        cmocka_unit_test_setup_teardown(bad_config, enter, leave),
        cmocka_unit_test_setup_teardown(bad_characters, enter, leave),
        cmocka_unit_test_setup_teardown(mutations, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
