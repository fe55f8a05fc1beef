/* Generation behind contexts of several blocks of a prompt and several stretches of the
 * cache: against a forward run in double precision, and the same bytes however a prompt
 * is cut. */
#include "tests/exec/decode_fixture.h"

enum { LONG = 1160 };

/* A window longer than a stretch, and no multiple of anything. */
static Model *far_model(void) {
    Model *model = llama_model();
    Diag *diag = diag_create();
    for (int layer = 0; layer < LAYERS; layer++) {
        Node *node = graph_find(model->graph, "decoder", layer, ROLE_ATTENTION);
        assert_ok(node_set(model->graph, node, diag,
                           "heads=8 kv_heads=2 causal=true reach=613 cap=2.5"),
                  diag);
    }
    diag_destroy(diag);
    return model;
}

typedef Model *MakeModel(void);
static MakeModel *const MODELS[] = {llama_model, far_model, mistral_model, biased_model,
                                    t2r_model};
enum { MODEL_COUNT = sizeof MODELS / sizeof *MODELS };

/* Logits of all positions [LONG, WORDS], token by token. */
static float *stepped(Model *model) {
    Decoder *decoder = open_decoder(model, LONG, 2, STEP_F32);
    float *out = malloc(LONG * WORDS * sizeof *out);
    for (int64_t t = 0; t < LONG; t++) {
        append(decoder, t, t + 1, false);
        memcpy(out + t * WORDS, decoder_logits(decoder), WORDS * sizeof *out);
    }
    decoder_destroy(decoder);
    return out;
}

/* Prompts of lengths about those of blocks and stretches, a second one behind each. */
static void check_prompts(Model *model, int threads, const float *want) {
    static const int64_t ends[] = {255, 257, 258, 511, 512, 513, 514, 769, 1025, LONG};
    Decoder *decoder = open_decoder(model, LONG, threads, STEP_F32);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        decoder_reset(decoder);
        append(decoder, 0, ends[i] - 100, true);
        append(decoder, ends[i] - 100, ends[i] - 98, false);
        append(decoder, ends[i] - 98, ends[i], true);
        const float *logits = want + (ends[i] - 1) * WORDS;
        if (memcmp(decoder_logits(decoder), logits, WORDS * sizeof *logits) != 0)
            fail_msg("a prompt of %lld tokens differs", (long long)ends[i]);
    }
    decoder_destroy(decoder);
}

static void test_long_prompts(void **state) {
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        Model *model = MODELS[m]();
        float *got = stepped(model);
        for (int threads = 1; threads <= 3; threads += 2)
            check_prompts(model, threads, got);
        double *want = forward_logits(model, LONG);
        for (int64_t t = 0; t < LONG; t += t < 1022 ? 73 : 23)
            check_logits(model, got + t * WORDS, want + t * WORDS, t);
        free(want);
        free(got);
        model_destroy(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_long_prompts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
