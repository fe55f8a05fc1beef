/* Tokenizers on their way into GGUF's keys and back: texts become the numbers that other
 * encoders gave (tests/data/text). */
#include "exec/ops.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/gguf/tokens.h"
#include "io/tokenizers/tokenizer.h"
#include "tests/io/io_test.h"

#define TEXTS "tests/data/text/"

typedef struct Fixture {
    char folder[256], path[300], json[300], config[320];
    Arena *arena;
    Diag *diag;
    Model *model, *back;
} Fixture;

static int fixture_make(void **state) {
    Fixture *f = calloc(1, sizeof *f);
    scratch_make(f->folder);
    snprintf(f->path, sizeof f->path, "%s/a.gguf", f->folder);
    snprintf(f->json, sizeof f->json, "%s/tokenizer.json", f->folder);
    snprintf(f->config, sizeof f->config, "%s/tokenizer_config.json", f->folder);
    f->arena = arena_create();
    f->diag = diag_create();
    f->model = model_create(ops_table());
    f->back = model_create(ops_table());
    f->model->config = tree_new(f->model->arena, TREE_MAP, LOC_NONE);
    *state = f;
    return 0;
}

static int fixture_free(void **state) {
    Fixture *f = *state;
    model_destroy(f->model);
    model_destroy(f->back);
    scratch_remove(f->folder);
    diag_destroy(f->diag);
    arena_destroy(f->arena);
    free(f);
    return 0;
}

/* The asset `name` in a file. */
static void put_asset(const Fixture *f, const char *name, const char *path) {
    const ModelAsset *asset = model_asset(f->back, name);
    assert_non_null(asset);
    put_file(path, asset->data, asset->length);
}

static void take_asset(Fixture *f, const char *name, const char *path) {
    char *text;
    size_t length;
    expect_ok(f->diag, file_read(&text, &length, f->arena, path, 1 << 20, f->diag));
    model_put_asset(f->model, name, text, length);
}

/* Writes the model's tokens into a file and makes assets of what that says. */
static void go_round(Fixture *f, int64_t rows) {
    GgufFile *file;
    Tokens out, in;
    expect_ok(f->diag, tokens_of_model(&out, f->arena, f->model, rows, f->diag));
    GgufWriter *writer = gguf_create();
    tokens_put(writer, &out);
    expect_ok(f->diag, gguf_write(writer, f->path, NULL, f->diag));
    expect_ok(f->diag, gguf_read(&file, f->path, f->diag));
    expect_ok(f->diag, tokens_of_file(&in, f->arena, file, rows, f->diag));
    expect_ok(f->diag, tokens_to_assets(f->back, &in, f->diag));
    gguf_destroy(file);
    put_asset(f, "tokenizer.json", f->json);
    put_asset(f, "tokenizer_config.json", f->config);
}

/* Whether a text has the numbers that the case wants. */
static bool encodes(const Fixture *f, const Tokenizer *tokenizer, Encoding *encoding,
                    const Tree *item) {
    const char *text = tree_get(item, "text")->string;
    const Tree *ids = tree_get(item, "ids"), *id = ids->first;
    const TextSpan span = {text, strlen(text)};
    expect_ok(f->diag,
              tokenizer_encode(tokenizer, encoding, span, NULL, 0, LOC_NONE, f->diag));
    bool equal = encoding->length == (size_t)ids->count;
    for (size_t i = 0; equal && id; i++, id = id->next)
        equal = encoding->ids[i] == id->integer;
    return equal;
}

/* Whether a text holds one of the lines of a list; NULL = none. */
static bool holds_any(const Fixture *f, const char *text, const char *list) {
    char *rest = arena_strdup(f->arena, list);
    for (const char *part; list && (part = strsep(&rest, "\n"));)
        if (strstr(text, part)) return true;
    return false;
}

static void check_cases(Fixture *f, const char *cases, const char *left_out, int least) {
    Tree *root;
    Tokenizer *tokenizer;
    Encoding encoding = {0};
    int count = 0;
    expect_ok(f->diag, tokenizer_read(&tokenizer, f->json, f->diag));
    expect_ok(f->diag, json_read(&root, f->arena, cases, 1 << 20, f->diag));
    for (const Tree *item = root->first; item; item = item->next) {
        if (holds_any(f, tree_get(item, "text")->string, left_out)) continue;
        if (!encodes(f, tokenizer, &encoding, item))
            fail_msg("other tokens for '%s'", tree_get(item, "text")->string);
        count++;
    }
    assert_true(count >= least);
    encoding_free(&encoding);
    tokenizer_destroy(tokenizer);
}

/* How tokens beside a text are taken is not said in GGUF, so texts with such are left
 * out. */
static void byte_level(void **state) {
    Fixture *f = *state;
    take_asset(f, "tokenizer.json", TEXTS "bytes/tokenizer.json");
    go_round(f, 360);
    check_cases(f, TEXTS "bytes/cases.json", "<|user|>", 60);
}

static void byte_level_of_two_files(void **state) {
    Fixture *f = *state;
    take_asset(f, "vocab.json", TEXTS "bytes/vocab.json");
    take_asset(f, "merges.txt", TEXTS "bytes/merges.txt");
    go_round(f, 360);
    check_cases(f, TEXTS "bytes/cases.json", "<|user|>", 60);
}

static void pieces(void **state) {
    Fixture *f = *state;
    tree_put_int(f->model->arena, f->model->config, "bos_token_id", 1);
    tree_put_int(f->model->arena, f->model->config, "unk_token_id", 0);
    take_asset(f, "tokenizer.json", TEXTS "fallback/tokenizer.json");
    go_round(f, 427);
    check_cases(f, TEXTS "fallback/cases.json", NULL, 60);
}

static void check_wordpiece(Fixture *f, bool vocabulary) {
    static const char *const TEXT[] = {"The cat sat on the mat.", "cats, unhappily!", ""};
    Tokenizer *tokenizer[2];
    Encoding encoding[2] = {{0}, {0}};
    static const char config[] =
        "{\"cls_token\": \"[CLS]\", \"sep_token\": \"[SEP]\", \"unk_token\": \"[UNK]\", "
        "\"pad_token\": \"[PAD]\", \"mask_token\": {\"content\": \"[MASK]\"}}";
    model_put_asset(f->model, "tokenizer_config.json", config, strlen(config));
    if (vocabulary)
        take_asset(f, "vocab.txt", TEXTS "vocab.txt");
    else
        take_asset(f, "tokenizer.json", TEXTS "tokenizer.json");
    go_round(f, 109);
    expect_ok(f->diag, tokenizer_read(&tokenizer[0], TEXTS "tokenizer.json", f->diag));
    expect_ok(f->diag, tokenizer_read(&tokenizer[1], f->json, f->diag));
    for (int i = 0; i < 3; i++) {
        const TextSpan span = {TEXT[i], strlen(TEXT[i])}, other = {"a b", 3};
        for (int t = 0; t < 2; t++)
            expect_ok(f->diag, tokenizer_encode(tokenizer[t], &encoding[t], span, &other,
                                                0, LOC_NONE, f->diag));
        assert_int_equal(encoding[0].length, encoding[1].length);
        assert_memory_equal(encoding[0].ids, encoding[1].ids,
                            encoding[0].length * sizeof(int32_t));
        assert_memory_equal(encoding[0].types, encoding[1].types,
                            encoding[0].length * sizeof(int32_t));
    }
    for (int t = 0; t < 2; t++) {
        encoding_free(&encoding[t]);
        tokenizer_destroy(tokenizer[t]);
    }
}

static void wordpiece(void **state) {
    check_wordpiece(*state, false);
}

static void wordpiece_of_lines(void **state) {
    check_wordpiece(*state, true);
}

/* ---- what is refused ---- */

static void expect_refused(Fixture *f, const char *json, const char *part) {
    Tokens tokens;
    model_put_asset(f->model, "tokenizer.json", json, strlen(json));
    expect_error(f->diag, tokens_of_model(&tokens, f->arena, f->model, 2, f->diag),
                 STATUS_MODEL, part);
}

static void refuses_what_llama_cpp_cuts_otherwise(void **state) {
    Fixture *f = *state;
    expect_refused(f, "{\"model\": {\"type\": \"WordLevel\", \"vocab\": {}}}",
                   "model: expected BPE or WordPiece, found WordLevel");
    expect_refused(f,
                   "{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}, "
                   "\"pre_tokenizer\": {\"type\": \"Whitespace\"}}",
                   "pre_tokenizer: expected ByteLevel without a prefix, Digits, Split, "
                   "found Whitespace");
    expect_refused(f,
                   "{\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, \"vocab\": "
                   "{}, \"merges\": []}, \"normalizer\": {\"type\": \"NFKC\"}}",
                   "normalizer: expected Prepend and Replace of spaces, found NFKC");
    expect_refused(f,
                   "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 7}, \"merges\": "
                   "[]}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", "
                   "\"add_prefix_space\": false}}",
                   "expected tokens of the model's numbers, 0 to 1, found 7 for 'a'");
}

/* A folder's tokenizer.model; a run of spaces is a piece of its own there, which the
 * tokenizer.json made of the file finds among marks only. */
static void pieces_of_a_model(void **state) {
    Fixture *f = *state;
    take_asset(f, "tokenizer.model", TEXTS "spm_bpe/tokenizer.model");
    model_put_asset(f->model, "tokenizer_config.json", "{\"add_bos_token\": false}", 24);
    go_round(f, 600);
    check_cases(f, TEXTS "spm_bpe/cases.json", "   \n<x>", 45);
    take_asset(f, "tokenizer.model", TEXTS "spm_unigram/spiece.model");
    Tokens tokens;
    expect_error(f->diag, tokens_of_model(&tokens, f->arena, f->model, 600, f->diag),
                 STATUS_MODEL,
                 "tokenizer.model: expected byte-pair encoding, found a Unigram model");
    /* of several files it is the one that texts are encoded with */
    take_asset(f, "spiece.model", TEXTS "spm_unigram/spiece.model");
    take_asset(f, "tokenizer.model", TEXTS "spm_bpe/tokenizer.model");
    expect_error(f->diag, tokens_of_model(&tokens, f->arena, f->model, 600, f->diag),
                 STATUS_MODEL,
                 "spiece.model: expected byte-pair encoding, found a Unigram model");
}

static void qwen_of_two_files(void **state) {
    Fixture *f = *state;
    Tokens tokens;
    take_asset(f, "vocab.json", TEXTS "bytes/vocab.json");
    take_asset(f, "merges.txt", TEXTS "bytes/merges.txt");
    tree_put_string(f->model->arena, f->model->config, "model_type", "qwen2");
    expect_ok(f->diag, tokens_of_model(&tokens, f->arena, f->model, 360, f->diag));
    assert_string_equal(tokens.pre, "qwen2");
}

#define TEST(function)                                                                   \
    cmocka_unit_test_setup_teardown(function, fixture_make, fixture_free)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(byte_level),
        TEST(byte_level_of_two_files),
        TEST(pieces),
        TEST(pieces_of_a_model),
        TEST(qwen_of_two_files),
        TEST(wordpiece),
        TEST(wordpiece_of_lines),
        TEST(refuses_what_llama_cpp_cuts_otherwise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
