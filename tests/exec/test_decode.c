/* Generation against a forward run over all tokens in double precision; and that neither
 * threads, nor prompts taken at once, nor bf16 of weights that are bf16 change a byte. */
#include "tests/exec/decode_fixture.h"

typedef Model *MakeModel(void);

static MakeModel *const MODELS[] = {gpt2_model,     llama_model,  lstm_model,
                                    t2r_model,      mixed_model,  biased_model,
                                    mistral_model,  qwen3_model,  gemma2_model,
                                    hedgehog_model, window_model, talking_model};

enum { MODEL_COUNT = sizeof MODELS / sizeof *MODELS };

static void test_positions(void **state) {
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        Model *model = MODELS[m]();
        double *want = forward_logits(model, TOKENS);
        Decoder *decoder = open_decoder(model, TOKENS, 2, STEP_F32);
        assert_int_equal(decoder_vocabulary(decoder), WORDS);
        for (int64_t t = 0; t < TOKENS; t++) {
            append(decoder, t, t + 1, false);
            check_logits(model, decoder_logits(decoder), want + t * WORDS, t);
        }
        decoder_destroy(decoder);
        free(want);
        model_destroy(model);
    }
}

/* Logits of all TOKENS positions [TOKENS, WORDS], token by token; the caller frees. */
static float *stepped(Model *model, int threads, StepWeights weights) {
    Decoder *decoder = open_decoder(model, TOKENS, threads, weights);
    float *out = malloc(TOKENS * WORDS * sizeof *out);
    for (int64_t t = 0; t < TOKENS; t++) {
        append(decoder, t, t + 1, false);
        memcpy(out + t * WORDS, decoder_logits(decoder), WORDS * sizeof *out);
    }
    decoder_destroy(decoder);
    return out;
}

static void check_bytes(const float *a, const float *b, int64_t positions) {
    for (int64_t t = 0; t < positions; t++)
        if (memcmp(a + t * WORDS, b + t * WORDS, WORDS * sizeof *a) != 0)
            fail_msg("position %lld differs", (long long)t);
}

static void test_threads(void **state) {
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        Model *model = MODELS[m]();
        float *one = stepped(model, 1, STEP_F32);
        for (int threads = 2; threads <= 4; threads++) {
            float *several = stepped(model, threads, STEP_F32);
            check_bytes(several, one, TOKENS);
            free(several);
        }
        free(one);
        model_destroy(model);
    }
}

/* Prompts of many lengths, also a second one behind generated tokens. */
static void check_prompts(Model *model, int threads, const float *want) {
    static const int64_t LENGTHS[] = {1, 2, 9, 64, 65, 66, 131, TOKENS};
    Decoder *decoder = open_decoder(model, TOKENS, threads, STEP_F32);
    for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++) {
        const int64_t n = LENGTHS[i];
        decoder_reset(decoder);
        append(decoder, 0, n, true);
        check_bytes(decoder_logits(decoder), want + (n - 1) * WORDS, 1);
        if (n + 19 > TOKENS) continue;
        append(decoder, n, n + 2, false);
        append(decoder, n + 2, n + 19, true);
        check_bytes(decoder_logits(decoder), want + (n + 18) * WORDS, 1);
    }
    decoder_destroy(decoder);
}

static void test_prompts(void **state) {
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        Model *model = MODELS[m]();
        float *want = stepped(model, 2, STEP_F32);
        for (int threads = 1; threads <= 3; threads++)
            check_prompts(model, threads, want);
        free(want);
        model_destroy(model);
    }
}

/* ---- bf16 ---- */

static float to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Rounds weights of rank 2 and more; with `stored` keeps them as bf16 tensors. */
static void round_weights(Model *model, bool stored) {
    Diag *diag = diag_create();
    for (int i = 0; i < model->graph->storage_count; i++) {
        Tensor *tensor = &model->graph->storages[i]->tensor, half;
        if (tensor->rank < 2) continue;
        void *data = NULL, *codes = NULL;
        assert_ok(tensor_create(&half, DTYPE_BF16, tensor->rank, tensor->dim, diag),
                  diag);
        assert_ok(tensor_writable(tensor, &data, diag), diag);
        assert_ok(tensor_writable(&half, &codes, diag), diag);
        for (int64_t j = 0; j < tensor_count(tensor); j++) {
            float *x = (float *)data + j;
            *x = to_bf16(*x);
            memcpy((uint16_t *)codes + j, (const uint16_t *)(const void *)x + 1, 2);
        }
        if (stored) {
            tensor_release(tensor);
            *tensor = half;
        } else {
            tensor_release(&half);
        }
    }
    diag_destroy(diag);
}

/* Weights that are bf16 already, as float or as stored so: the same bytes every way. */
static void test_bf16_exact(void **state) {
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        Model *model = MODELS[m]();
        round_weights(model, false);
        float *want = stepped(model, 2, STEP_F32);
        float *half = stepped(model, 2, STEP_BF16);
        check_bytes(half, want, TOKENS);
        round_weights(model, true);
        float *stored = stepped(model, 1, STEP_BF16);
        check_bytes(stored, want, TOKENS);
        free(want);
        free(half);
        free(stored);
        model_destroy(model);
    }
}

/* Weights with 8 bits: errors of the logits over all positions, relative. */
static void test_bf16_rounding(void **state) {
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        Model *model = MODELS[m]();
        double *want = forward_logits(model, TOKENS), error = 0, total = 0;
        float *half = stepped(model, 2, STEP_BF16);
        for (int i = 0; i < TOKENS * WORDS; i++) {
            error += (half[i] - want[i]) * (half[i] - want[i]);
            total += want[i] * want[i];
        }
        if (!(error > 0 && sqrt(error / total) < 0.02))
            fail_msg("model %d: off by %g", m, sqrt(error / total));
        free(half);
        free(want);
        model_destroy(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_positions),     cmocka_unit_test(test_threads),
        cmocka_unit_test(test_prompts),       cmocka_unit_test(test_bf16_exact),
        cmocka_unit_test(test_bf16_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
