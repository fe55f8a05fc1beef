/* What generation takes, keeps and refuses: bytes of state, room, ids, models that are
 * not causal language models. */
#include "tests/exec/decode_fixture.h"

/* ---- state and weights ---- */

static size_t state_after(Model *model, int64_t tokens) {
    Decoder *decoder = open_decoder(model, TOKENS, 2, STEP_F32);
    append(decoder, 0, tokens, true);
    const size_t bytes = decoder_state_bytes(decoder);
    decoder_reset(decoder);
    assert_int_equal(decoder_position(decoder), 0);
    decoder_destroy(decoder);
    return bytes;
}

static void check_state(Model *model, size_t constant, size_t of_token) {
    for (int64_t tokens = 0; tokens <= 100; tokens += 25)
        assert_int_equal(state_after(model, tokens),
                         constant + (size_t)tokens * of_token);
    model_destroy(model);
}

static void test_state_bytes(void **state) {
    (void)state;
    const size_t size = sizeof(float);
    check_state(gpt2_model(), 0, LAYERS * 2 * 40 * size);
    check_state(llama_model(), 0, LAYERS * 2 * 16 * size); /* 2 of 8 heads of 8 */
    check_state(lstm_model(), LAYERS * 2 * 28 * size, 0);  /* h and c */
    /* heads (features * width + features) of each layer */
    check_state(t2r_model(), 2 * ((5 + 8 + 16) * 8 + (5 + 8 + 16)) * size, 0);
    check_state(mixed_model(), 4 * ((12 + 7) * 10 + (12 + 7)) * size, 2 * 40 * size);
}

/* Matrices in 16 bits; rows of tables, norms and biases in 32. Rows are counted in whole
 * panels of 16, of which these widths have all but the heads' vocabulary. */
static void test_weight_bytes(void **state) {
    (void)state;
    Model *model = llama_model();
    Decoder *full = open_decoder(model, TOKENS, 1, STEP_F32);
    Decoder *half = open_decoder(model, TOKENS, 1, STEP_BF16);
    const size_t d = 64, layer = d * d * 2 + 2 * d * 16 + 3 * d * 64;
    const size_t matrices = LAYERS * layer - LAYERS * 8 * 64 + 64 * d;
    const size_t rows = LAYERS * 2 * d + d + d;
    assert_int_equal(decoder_weight_bytes(full), 4 * (matrices + rows));
    assert_int_equal(decoder_weight_bytes(half), 2 * matrices + 4 * rows);
    decoder_destroy(full);
    decoder_destroy(half);
    model_destroy(model);
}

/* A sequence after another gives what it gives alone. */
static void test_reset(void **state) {
    (void)state;
    Model *(*const models[])(void) = {gpt2_model, lstm_model, t2r_model, mixed_model};
    for (int m = 0; m < 4; m++) {
        Model *model = models[m]();
        float first[WORDS];
        Decoder *decoder = open_decoder(model, TOKENS, 2, STEP_F32);
        append(decoder, 0, 20, true);
        memcpy(first, decoder_logits(decoder), sizeof first);
        append(decoder, 20, TOKENS, true);
        decoder_reset(decoder);
        append(decoder, 0, 20, m % 2 == 0);
        assert_memory_equal(decoder_logits(decoder), first, sizeof first);
        decoder_destroy(decoder);
        model_destroy(model);
    }
}

/* ---- refusals ---- */

/* The diagnostics as text contain `expected`. */
static void check_message(Diag *diag, const char *expected) {
    char *text = diag_text(diag);
    if (!strstr(text, expected))
        fail_msg("expected a message with\n%s\nfound\n%s", expected, text);
    free(text);
    diag_clear(diag);
}

static void check_refused(Model *model, int64_t capacity, const char *expected) {
    Diag *diag = diag_create();
    Decoder *decoder = NULL;
    const DecodeOptions options = {.capacity = capacity, .threads = 2};
    assert_int_equal(decoder_create(&decoder, model->graph, &options, diag),
                     STATUS_MODEL);
    assert_null(decoder);
    check_message(diag, expected);
    diag_destroy(diag);
    model_destroy(model);
}

static void test_capacity(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = gpt2_model();
    Decoder *decoder = open_decoder(model, 5, 2, STEP_F32);
    const int32_t tokens[] = {1, 2, 3, 4, 5, 6};
    assert_int_equal(decoder_append(decoder, tokens, 6, diag), STATUS_MODEL);
    check_message(diag, "sequence of 6 tokens, there is room for 5");
    assert_int_equal(decoder_position(decoder), 0);
    assert_ok(decoder_append(decoder, tokens, 5, diag), diag);
    assert_ok(decoder_append(decoder, NULL, 0, diag), diag);
    assert_int_equal(decoder_step(decoder, 1, diag), STATUS_MODEL);
    check_message(diag, "sequence of 6 tokens, there is room for 5");
    decoder_reset(decoder);
    const int32_t wrong[] = {1, 2, WORDS}, below[] = {-1};
    assert_int_equal(decoder_append(decoder, wrong, 3, diag), STATUS_MODEL);
    check_message(diag, "token 2: expected an id from 0 to 52, found 53");
    assert_int_equal(decoder_append(decoder, below, 1, diag), STATUS_MODEL);
    check_message(diag, "token 0: expected an id from 0 to 52, found -1");
    assert_int_equal(decoder_position(decoder), 0);
    decoder_destroy(decoder);
    model_destroy(model);
    diag_destroy(diag);
    check_refused(gpt2_model(), 161,
                  "sequence of 161 tokens, the position table has 160");
    check_refused(gpt2_model(), 0, "expected room for at least 1 token, found 0");
}

/* A model with attribute or operand of its second attention changed. */
static Model *changed(const char *attrs, const char *operand, int rank,
                      const int64_t *dim) {
    Diag *diag = diag_create();
    Model *model = gpt2_model();
    Node *node = graph_find(model->graph, "decoder", 1, ROLE_ATTENTION);
    if (attrs) assert_ok(node_set(model->graph, node, diag, "%s", attrs), diag);
    if (operand)
        node_set_operand(model->graph, node, operand,
                         new_param(model, "extra", rank, dim));
    diag_destroy(diag);
    return model;
}

static void test_models(void **state) {
    (void)state;
    check_refused(changed("causal=false", NULL, 0, NULL), 10,
                  "attention: expected causal=true to generate");
    check_refused(changed(NULL, "rel_key", 2, (const int64_t[]){10, 49}), 10,
                  "attention: operand 'rel_key' cannot be used token by token");
    Model *linear = mixed_model();
    Node *node = graph_find(linear->graph, NULL, -1, ROLE_OUT)->in[0];
    ((LinearAttentionAttrs *)node->attrs)->causal = false;
    check_refused(linear, 10, "linear_attention: expected causal=true to generate");
    check_refused(configured_vit(1, 1), 10, "found none called input_ids");
    check_refused(configured_bert(1, 1), 5,
                  "expected a model whose only input is input_ids");
    Model *pooled = gpt2_model();
    Node *logits = graph_output(pooled->graph, "logits");
    graph_set_output(pooled->graph, "logits",
                     insert_before(pooled, NULL, "mean_tokens", &logits, 1, ""));
    check_refused(pooled, 10, "mean_tokens: expected an op that can run token by token");
    Model *empty = gpt2_model();
    Storage *storage = graph_storage(empty->graph, "transformer.h.1.mlp.c_fc.weight");
    tensor_release(&storage->tensor);
    storage->tensor = tensor_shape(DTYPE_F32, 2, (const int64_t[]){40, 160});
    check_refused(empty, 10, "expected weights to run the model, found a shape only");
}

/* A mask of ones, as models with padding have it. */
static void test_mask(void **state) {
    (void)state;
    Model *model = gpt2_model();
    const Type type = {.dtype = DTYPE_I32, .rank = 2, .dim = {DIM_N, DIM_T}};
    Node *mask = graph_input(model->graph, "attention_mask", &type);
    for (int layer = 0; layer < LAYERS; layer++)
        node_set_operand(model->graph,
                         graph_find(model->graph, "decoder", layer, ROLE_ATTENTION),
                         "mask", mask);
    double *want = forward_logits(model, 30);
    Decoder *decoder = open_decoder(model, 30, 1, STEP_F32);
    append(decoder, 0, 30, true);
    check_logits(model, decoder_logits(decoder), want + 29 * WORDS, 29);
    decoder_destroy(decoder);
    free(want);
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state_bytes), cmocka_unit_test(test_weight_bytes),
        cmocka_unit_test(test_reset),       cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_models),      cmocka_unit_test(test_mask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
