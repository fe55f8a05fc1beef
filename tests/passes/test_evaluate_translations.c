/* evaluate with BLEU: against greedy search over forward runs and BLEU by hand, as a
 * gate, of a model that has learnt to reverse sentences, and what is refused. */
#include "exec/generate/translate.h"
#include "ir/random.h"
#include "passes/evaluate/bleu.h"
#include "tests/passes/language_fixture.h"

/* Sentences of 4 to 7 words out of 2 to 7, their translations the same backwards. */
enum { PAIRS = 60, WORDS_MOST = 7, VOCABULARY = 8, END = 0, START = 1, ROOM = 10 };

static const char MARIAN[] =
    "{model_type: marian, vocab_size: 8, d_model: 24, encoder_layers: 1,\n"
    " decoder_layers: 1, encoder_attention_heads: 2, decoder_attention_heads: 2,\n"
    " encoder_ffn_dim: 32, decoder_ffn_dim: 32, dropout: 0, init_std: 0.3,\n"
    " normalize_before: true, decoder_start_token_id: 1, eos_token_id: 0}";
static const char RECURRENT[] =
    "{model_type: rnn_attention, source_vocab_size: 8, target_vocab_size: 8,\n"
    " embedding_size: 16, encoder_size: 32, decoder_size: 32}";

/* ---- data ---- */

static int pair_words(int64_t i) {
    return 4 + (int)(i % 4);
}

static int32_t pair_word(int64_t i, int s) {
    return 2 + (int32_t)(random_u64(5, (uint64_t)(i * 16 + s)) % 6);
}

static int64_t pair_length(const Batches *self, int64_t i) {
    (void)self;
    return pair_words(i) + 1;
}

static int32_t pair_label(int64_t i, int t) {
    const int words = pair_words(i);
    return t < words ? pair_word(i, words - 1 - t) : t == words ? END : INDEX_SKIP;
}

static int32_t pair_value(int column, int64_t i, int k) {
    const int words = pair_words(i);
    switch (column) {
    case 0: return k < words ? pair_word(i, k) : END;
    case 1: return k <= words;
    case 2: return k == 0 ? START : k <= words ? pair_label(i, k - 1) : END;
    case 3: return k <= words;
    default: return pair_label(i, k);
    }
}

static Status pair_fetch(const Batches *self, const Fetch *what, void *const *dst,
                         Diag *diag) {
    (void)self, (void)diag;
    for (int c = 0; c < 5; c++) {
        const int64_t each = c < 2 ? what->source : what->tokens;
        for (int64_t k = 0; dst[c] && k < what->n * each; k++)
            ((int32_t *)dst[c])[k] =
                pair_value(c, what->index[k / each], (int)(k % each));
    }
    return STATUS_OK;
}

/* Words are spelt "a" to "f", tokens beyond a sentence's own "-". */
static void spell(char *out, const int32_t *tokens, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        out[2 * i] = tokens[i] >= 2 ? (char)('a' + tokens[i] - 2) : '-';
        out[2 * i + 1] = ' ';
    }
    out[count ? 2 * count - 1 : 0] = 0;
}

static Status pair_spell(const Batches *self, Text *out, const int32_t *tokens,
                         int64_t count, Diag *diag) {
    char text[256];
    (void)self, (void)diag;
    spell(text, tokens, count);
    text_bytes(out, text, strlen(text));
    return STATUS_OK;
}

static const char *pair_reference(const Batches *self, int64_t i) {
    static _Thread_local char text[64];
    int32_t tokens[WORDS_MOST];
    (void)self;
    for (int t = 0; t < pair_words(i); t++) tokens[t] = pair_label(i, t);
    spell(text, tokens, pair_words(i));
    return text;
}

static const Column PAIR_COLUMNS[] = {{"input_ids", {DTYPE_I32, 1, {DIM_S}}},
                                      {"attention_mask", {DTYPE_I32, 1, {DIM_S}}},
                                      {"decoder_input_ids", {DTYPE_I32, 1, {DIM_T}}},
                                      {"decoder_attention_mask", {DTYPE_I32, 1, {DIM_T}}},
                                      {"labels", {DTYPE_I32, 1, {DIM_T}}}};

static const Translations TRANSLATIONS = {
    .start = START, .end = END, .reference = pair_reference, .spell = pair_spell};

static Batches pairs(void) {
    return (Batches){.name = "pairs",
                     .count = PAIRS,
                     .columns = PAIR_COLUMNS,
                     .column_count = 5,
                     .classes = VOCABULARY,
                     .length = pair_length,
                     .max_tokens = WORDS_MOST + 1,
                     .source_length = pair_length,
                     .max_source = WORDS_MOST + 1,
                     .translations = &TRANSLATIONS,
                     .partial = true,
                     .fetch = pair_fetch};
}

/* ---- greedy search by hand ---- */

/* The likeliest next token, by a run of the whole graph in double. */
static int32_t next_token(Model *model, int64_t i, const int32_t *prefix, int length) {
    Runner r;
    Node *logits = graph_output(model->graph, "logits");
    const int64_t S = pair_length(NULL, i);
    const int64_t sizes[DIM_SYMBOLS] = {
        [DIM_INDEX(DIM_N)] = 1, [DIM_INDEX(DIM_T)] = length + 1, [DIM_INDEX(DIM_S)] = S};
    runner_open_sizes(&r, model->graph, sizes, PRECISION_F64, NULL, &logits, 1);
    for (int c = 0; c < 4; c++) {
        int32_t *input = workspace_input(r.workspace, PAIR_COLUMNS[c].name);
        const int64_t each = c < 2 ? S : length + 1;
        for (int64_t k = 0; input && k < each; k++)
            input[k] = c == 2   ? (k ? prefix[k - 1] : START)
                       : c == 3 ? 1
                                : pair_value(c, i, (int)k);
    }
    runner_run(&r);
    const double *row =
        (const double *)workspace_value(r.workspace, logits) + length * VOCABULARY;
    int32_t best = END;
    for (int32_t w = 0; w < VOCABULARY; w++)
        if (w != START && row[w] > row[best]) best = w;
    runner_close(&r);
    return best;
}

static double naive_bleu(Model *model, int count, BleuSmooth smooth) {
    Bleu bleu = {0};
    for (int64_t i = 0; i < count; i++) {
        int32_t tokens[ROOM];
        char text[64];
        int length = 0;
        while (length < ROOM &&
               (tokens[length] = next_token(model, i, tokens, length)) != END)
            length++;
        spell(text, tokens, length);
        bleu_add(&bleu, BLEU_13A, text, pair_reference(NULL, i));
    }
    return bleu_score(&bleu, smooth).score;
}

/* ---- tests ---- */

static void test_greedy(void **state) {
    (void)state;
    Batches data = pairs();
    RecipeInputs inputs = {&data, NULL};
    const char *const models[] = {MARIAN, RECURRENT};
    for (int m = 0; m < 2; m++) {
        for (int threads = 1; threads <= 3; threads += 2) {
            Diag *diag = diag_create();
            const Tree *record;
            Model *model = configured_model(models[m], 9);
            const double wanted = naive_bleu(model, 20, BLEU_FLOOR);
            assert_ok(
                run_steps(model, &inputs,
                          "  - evaluate: {data: some, limit: 20, batch_size: 6,\n"
                          "      decode: {beam: 1, max_length: 10, smooth: floor}}\n",
                          threads, &record, diag),
                diag);
            assert_true(wanted > 0);
            assert_close(number(record, "bleu"), wanted);
            assert_true(number(record, "perplexity") > 1);
            assert_int_equal(tree_get(record, "bleu_precisions")->count, 4);
            assert_string_equal(tree_get(record, "bleu_signature")->string,
                                "nrefs:1|case:mixed|eff:no|tok:13a|smooth:floor");
            model_destroy(model);
            diag_destroy(diag);
        }
    }
}

/* Linear attention to the source: its state is made once; maps apart, then merged. */
static void test_t2r(void **state) {
    (void)state;
    Batches data = pairs();
    RecipeInputs inputs = {&data, NULL};
    Diag *diag = diag_create();
    const Tree *record;
    Model *model = configured_model(MARIAN, 9);
    static const char *const STEPS[] = {"  - attention_to_t2r: {feature_size: 6}\n",
                                        "  - merge_t2r: {}\n"};
    for (int i = 0; i < 2; i++) {
        assert_ok(run_steps(model, &inputs, STEPS[i], 1, NULL, diag), diag);
        const double wanted = naive_bleu(model, 12, BLEU_FLOOR);
        assert_ok(run_steps(model, &inputs,
                            "  - evaluate: {data: some, limit: 12, batch_size: 5,\n"
                            "      decode: {beam: 1, max_length: 10, smooth: floor}}\n",
                            1, &record, diag),
                  diag);
        assert_true(wanted > 0);
        assert_close(number(record, "bleu"), wanted);
    }
    model_destroy(model);
    diag_destroy(diag);
}

/* A recurrent model learns to reverse; beam search and lookahead find what it learnt. */
static void test_learnt(void **state) {
    (void)state;
    Batches data = pairs();
    RecipeInputs inputs = {&data, NULL};
    Diag *diag = diag_create();
    const Tree *record;
    Model *model = configured_model(RECURRENT, 9);
    assert_ok(
        run_steps(model, &inputs,
                  "  - finetune: {data: some, steps: 250, batch_size: 20, lr: 0.02}\n"
                  "  - evaluate: {data: some, metric: bleu, min: 90,\n"
                  "      decode: {search: lookahead, beam: 3, max_length: 10}}\n"
                  "  - evaluate: {data: some, metric: bleu, min: 90,\n"
                  "      decode: {max_length: 10, early_stopping: true}}\n",
                  2, &record, diag),
        diag);
    assert_int_equal(number(record, "unfinished_translations"), 0);
    model_destroy(model);
    diag_destroy(diag);
}

static void test_refused(void **state) {
    (void)state;
    Batches data = pairs();
    RecipeInputs inputs = {&data, NULL};
    expect_refusal(configured_model(RECURRENT, 9), &inputs,
                   "  - evaluate: {data: some, metric: bleu, min: 101}\n", STATUS_GATE,
                   "gate: expected bleu at least 101");
    expect_refusal(configured_model(RECURRENT, 9), &inputs,
                   "  - evaluate: {data: some, decode: {beams: 2}}\n", STATUS_RECIPE,
                   "did you mean \"beam\"");
    expect_refusal(configured_model(RECURRENT, 9), &inputs,
                   "  - evaluate: {data: some, decode: {beam: 0}}\n", STATUS_RECIPE,
                   "beam");
    expect_refusal(configured_model(RECURRENT, 9), &inputs,
                   "  - evaluate: {data: some, metric: bleu, entropy: 0.5}\n",
                   STATUS_RECIPE, "bleu is for models that predict tokens");
    data.translations = NULL;
    expect_refusal(configured_model(RECURRENT, 9), &inputs,
                   "  - evaluate: {data: some, metric: bleu}\n", STATUS_MODEL,
                   "data set \"some\" has no translations");
    Translations other = TRANSLATIONS;
    other.start = 2;
    data.translations = &other;
    expect_refusal(configured_model(MARIAN, 9), &inputs,
                   "  - evaluate: {data: some, metric: bleu}\n", STATUS_MODEL,
                   "expected token 1, the model's decoder_start_token_id, found 2");
    Batches language = sequences();
    inputs.data = &language;
    expect_refusal(toy_gpt2(1, 8, 1), &inputs,
                   "  - evaluate: {data: some, metric: bleu}\n", STATUS_MODEL,
                   "the model translates nothing");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_t2r),
        cmocka_unit_test(test_learnt),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
