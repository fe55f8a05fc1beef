/* Tokenizer: what a tokenizer_config.json beside a tokenizer.json changes, and what it
 * may not contradict; classes beside plain vocabularies. */
#include "tokenizer_test.h"

#include "io/files/json.h"

#define BYTES    TEXT_DATA "bytes/tokenizer.json"
#define FALLBACK TEXT_DATA "fallback/tokenizer.json"
#define WORDS    TEXT_DATA "tokenizer.json"

static void put_in(const char *name, const char *text) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    put_text(path, text);
}

static void copy_in(const char *from, const char *name) {
    Bench bench = bench_open(NULL);
    char *text;
    size_t length;
    assert_ok(file_read(&text, &length, bench.arena, from, 1 << 20, bench.diag),
              bench.diag);
    put_in(name, text);
    bench_close(&bench);
}

static void expect_tokens(const char *text, const char *tokens) {
    Bench bench = bench_open(folder);
    assert_ok(tokenizer_encode(bench.tokenizer, &bench.encoding, span(text), NULL, 0,
                               LOC_NONE, bench.diag),
              bench.diag);
    assert_string_equal(tokens_text(&bench), tokens);
    bench_close(&bench);
}

#define LLAMA "\"tokenizer_class\": \"LlamaTokenizerFast\""

static void configurations(void **state) {
    (void)state;
    static const struct {
        const char *from, *config, *text, *tokens, *refusal;
    } CASES[] = {
        {FALLBACK, "{}", "the", "<s> ▁the", NULL},
        {FALLBACK, "{\"model_max_length\": 1000000000000000019884624838656}", "the",
         "<s> ▁the", NULL},
        {FALLBACK, "{\"add_bos_token\": true, \"add_eos_token\": false}", "the",
         "<s> ▁the", NULL},
        {FALLBACK, "{" LLAMA ", \"add_bos_token\": false}", "the", "▁the", NULL},
        {FALLBACK, "{" LLAMA ", \"add_eos_token\": true}", "the", "<s> ▁the </s>", NULL},
        {FALLBACK, "{" LLAMA ", \"add_bos_token\": 1}", NULL, NULL,
         "add_bos_token: expected boolean"},
        {FALLBACK, "{\"add_bos_token\": false}", NULL, NULL,
         "add_bos_token: the template of tokenizer.json says otherwise"},
        {FALLBACK, "{\"tokenizer_class\": \"GPT2Tokenizer\", \"add_eos_token\": true}",
         NULL, NULL, "add_eos_token: the template of tokenizer.json says otherwise"},
        {FALLBACK, "{\"add_prefix_space\": true}", "the", "<s> ▁the", NULL},
        {FALLBACK, "{\"add_prefix_space\": false}", NULL, NULL,
         "add_prefix_space: the tokenizer.json says otherwise"},
        {FALLBACK, "{\"split_special_tokens\": true}", NULL, NULL,
         "split_special_tokens: true is not supported"},
        {BYTES, "{\"add_prefix_space\": null}", "the", "the", NULL},
        {BYTES, "{\"add_prefix_space\": true}", "the", "Ġthe", NULL},
        {BYTES,
         "{\"added_tokens_decoder\": {\"355\": {\"content\": \"<|endoftext|>\", "
         "\"special\": true}, \"357\": {\"content\": \"<|tool|>\"}}}",
         "the<|tool|>the", "the <|tool|> the", NULL},
        {BYTES, "{\"added_tokens_decoder\": {\"359\": {\"content\": \"<|tool|>\"}}}",
         NULL, NULL, "'<|tool|>' has number 359"},
        {BYTES, "{\"added_tokens_decoder\": {\"3\": {\"content\": \"<|tool|>\"}}}", NULL,
         NULL, "and '<|tool|>' have the same number 3"},
        {BYTES, "{\"additional_special_tokens\": [\"<|user|>\", {\"content\": \"the\"}]}",
         "the", "the", NULL},
        {BYTES, "{\"additional_special_tokens\": [\"<|user|>\", \"<|tool|>\"]}", NULL,
         NULL,
         "additional_special_tokens: expected tokens of the vocabulary, found '<|tool|>'"},
        {WORDS, "{\"do_lower_case\": true}", "The CAT", "[CLS] the cat [SEP]", NULL},
        {WORDS, "{\"do_lower_case\": false}", "the CAT", "[CLS] the [UNK] [SEP]", NULL},
        {WORDS,
         "{\"do_lower_case\": false, \"tokenizer_class\": \"PreTrainedTokenizerFast\"}",
         "The CAT", "[CLS] the cat [SEP]", NULL},
        {WORDS, "{\"strip_accents\": false}", "cát", "[CLS] [UNK] [SEP]", NULL},
        {WORDS, "{\"tokenize_chinese_chars\": 0}", NULL, NULL,
         "tokenize_chinese_chars: expected boolean"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        copy_in(CASES[i].from, "tokenizer.json");
        put_in("tokenizer_config.json", CASES[i].config);
        if (CASES[i].refusal)
            expect_unreadable(folder, STATUS_FORMAT, CASES[i].refusal);
        else
            expect_tokens(CASES[i].text, CASES[i].tokens);
    }
}

/* vocab.json and merges.txt of RoBERTa and Qwen 2. */
static void merges(void **state) {
    (void)state;
    copy_in(TEXT_DATA "bytes/vocab.json", "vocab.json");
    copy_in(TEXT_DATA "bytes/merges.txt", "merges.txt");
    put_in("config.json", "{\"model_type\": \"roberta\"}");
    expect_unreadable(folder, STATUS_FORMAT, "lacks the padding token '<pad>'");
    put_in("tokenizer_config.json",
           "{\"pad_token\": \"!\", \"cls_token\": \"the\", \"sep_token\": \"he\", "
           "\"unk_token\": \"!\", \"mask_token\": \"x\", \"bos_token\": \"the\", "
           "\"eos_token\": \"he\"}");
    expect_tokens("a xa", "the a x a he"); /* the mask takes the space before it */
    put_in("config.json", "{\"model_type\": \"qwen2\"}");
    put_in("tokenizer_config.json", "{}");
    expect_tokens("12 the\r\n\ne\xcc\x81", "1 2 Ġthe č Ċ Ċ Ã©");
    put_in("tokenizer_config.json",
           "{\"added_tokens_decoder\": {\"356\": {\"content\": \"<|im_end|>\", "
           "\"special\": true}}, \"eos_token\": \"<|im_end|>\"}");
    expect_tokens("the<|im_end|>", "the <|im_end|>");
    put_in("config.json", "{\"model_type\": \"gpt_neox\"}");
    expect_tokens("e\xcc\x81", "e Ì ģ"); /* GPT-2's, which composes nothing */
}

static void mpnet(void **state) {
    (void)state;
    static const char VOCAB[] = "<s>\n<pad>\n</s>\n[UNK]\nthe\n##s\n<mask>\n";
    put_in("vocab.txt", VOCAB);
    put_in("config.json", "{\"model_type\": \"mpnet\"}");
    Bench bench = bench_open(folder);
    check_encoding(&bench, "Thes <mask> x", NULL, 0, "<s> the ##s <mask> [UNK] </s>", 99);
    check_encoding(&bench, "the", "the", 0, "<s> the </s> </s> the </s>", 99);
    bench_close(&bench);
}

/* Integers beyond 64 bits, as transformers writes them. */
static void wide_integers(void **state) {
    (void)state;
    static const char TEXT[] = "{\"a\": 99999999999999999999, \"99999999999999999999\": "
                               "[9223372036854775807,9223372036854775808, "
                               "-99999999999999999999,1.99999999999999999999e2, 12]}";
    Bench bench = bench_open(NULL);
    Tree *tree;
    assert_ok(
        json_parse_wide(&tree, bench.arena, "x.json", TEXT, strlen(TEXT), bench.diag),
        bench.diag);
    assert_int_equal(tree_get(tree, "a")->kind, TREE_FLOAT);
    assert_true(tree_get(tree, "a")->real == 1e20);
    const Tree *item = tree_get(tree, "99999999999999999999")->first;
    assert_true(item->kind == TREE_INT && item->integer == INT64_MAX);
    item = item->next;
    assert_true(item->kind == TREE_FLOAT && item->real == 9223372036854775808.0);
    item = item->next;
    assert_true(item->kind == TREE_FLOAT && item->real == -1e20);
    item = item->next;
    assert_true(item->kind == TREE_FLOAT && item->real == 200);
    item = item->next;
    assert_true(item->kind == TREE_INT && item->integer == 12);
    static const char *const BAD[] = {"99999999999999999999", "[99999999999999999999",
                                      "\"99999999999999999999"};
    assert_ok(
        json_parse_wide(&tree, bench.arena, "x.json", BAD[0], strlen(BAD[0]), bench.diag),
        bench.diag);
    for (int i = 1; i < 3; i++)
        expect_error(bench.diag,
                     json_parse_wide(&tree, bench.arena, "x.json", BAD[i], strlen(BAD[i]),
                                     bench.diag),
                     STATUS_FORMAT, "invalid JSON");
    bench_close(&bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(configurations, enter, leave),
        cmocka_unit_test_setup_teardown(merges, enter, leave),
        cmocka_unit_test_setup_teardown(mpnet, enter, leave),
        cmocka_unit_test(wide_integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
