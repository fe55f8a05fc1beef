/* Many sequences side by side against one after the other: not a byte of the logits
 * depends on what is beside a sequence, on threads, or on whether its beginning was
 * copied. */
#include "exec/generate/sequences.h"
#include "tests/exec/decode_fixture.h"

typedef Model *MakeModel(void);

static MakeModel *const MODELS[] = {
    gpt2_model,    llama_model, lstm_model,   t2r_model,      mixed_model, biased_model,
    mistral_model, qwen3_model, gemma2_model, hedgehog_model, window_model};

enum { MODEL_COUNT = sizeof MODELS / sizeof *MODELS, STREAMS = 5, LONG = 90, STEPS = 30 };

/* Tokens of different texts. */
static int32_t stream_token(int stream, int64_t t) {
    return token_at(1000 * stream + t);
}

/* Logits [STREAMS, LONG, WORDS] of a decoder; the caller frees. */
static float *decode_streams(Model *model, StepWeights weights) {
    float *out = malloc((size_t)STREAMS * LONG * WORDS * sizeof *out);
    Diag *diag = diag_create();
    Decoder *decoder = open_decoder(model, LONG, 1, weights);
    for (int s = 0; s < STREAMS; s++) {
        decoder_reset(decoder);
        for (int64_t t = 0; t < LONG; t++) {
            assert_ok(decoder_step(decoder, stream_token(s, t), diag), diag);
            memcpy(out + (s * LONG + t) * WORDS, decoder_logits(decoder),
                   WORDS * sizeof *out);
        }
    }
    decoder_destroy(decoder);
    diag_destroy(diag);
    return out;
}

static Sequences *open_sequences(Model *model, int64_t slots, int threads,
                                 StepWeights weights) {
    Diag *diag = diag_create();
    Sequences *sequences = NULL;
    const SequencesOptions options = {LONG, slots, threads, weights};
    assert_ok(sequences_create(&sequences, model->graph, &options, diag), diag);
    assert_int_equal(sequences_vocabulary(sequences), WORDS);
    diag_destroy(diag);
    return sequences;
}

static void begin(Sequences *sequences, int64_t slot, int stream, int64_t count) {
    Diag *diag = diag_create();
    int32_t tokens[LONG];
    for (int64_t t = 0; t < count; t++) tokens[t] = stream_token(stream, t);
    assert_ok(sequences_begin(sequences, slot, tokens, count, diag), diag);
    assert_int_equal(sequences_position(sequences, slot), count);
    diag_destroy(diag);
}

/* One token more of most slots, in an order that changes; slots that are full begin with
 * another text, every second one as a copy of the spare slot. */
static void play_step(Sequences *sequences, int64_t slots, int *stream, int step,
                      const float *want) {
    Diag *diag = diag_create();
    int64_t slot_of[64], row;
    int64_t rows = 0;
    sequences_clear(sequences);
    for (int64_t slot = 0; slot < slots; slot++)
        if (sequences_position(sequences, slot) == LONG) {
            stream[slot] = (int)(slot + step) % STREAMS;
            if (slot % 2) {
                begin(sequences, slots, stream[slot], 40);
                sequences_copy(sequences, slots, slot);
            } else {
                begin(sequences, slot, stream[slot], step % 3);
            }
        }
    for (int64_t i = 0; i < slots; i++) {
        const int64_t slot = step % 2 ? slots - 1 - i : i;
        if ((slot + step) % 7 == 0) continue;
        const int32_t token =
            stream_token(stream[slot], sequences_position(sequences, slot));
        assert_ok(sequences_add(sequences, &row, slot, token, diag), diag);
        assert_int_equal(row, rows);
        slot_of[rows++] = slot;
    }
    sequences_step(sequences);
    for (row = 0; row < rows; row++) {
        const int64_t slot = slot_of[row], t = sequences_position(sequences, slot) - 1;
        const float *logits = want + (stream[slot] * LONG + t) * WORDS;
        if (memcmp(sequences_logits(sequences, row), logits, WORDS * sizeof *logits) != 0)
            fail_msg("step %d, row %lld of %lld: position %lld differs", step,
                     (long long)row, (long long)rows, (long long)t);
    }
    diag_destroy(diag);
}

static void play(Model *model, int64_t slots, int threads, StepWeights weights,
                 const float *want) {
    int stream[64];
    Sequences *sequences = open_sequences(model, slots + 1, threads, weights);
    for (int64_t slot = 0; slot < slots; slot++) {
        stream[slot] = (int)(slot % STREAMS);
        begin(sequences, slot, stream[slot], slot * 13 % 80);
    }
    for (int step = 0; step < STEPS; step++)
        play_step(sequences, slots, stream, step, want);
    sequences_destroy(sequences);
}

static void test_same_bytes(void **state) {
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        Model *model = MODELS[m]();
        float *want = decode_streams(model, STEP_F32);
        play(model, 1, 1, STEP_F32, want);
        play(model, 5, 2, STEP_F32, want);
        play(model, 11, 3, STEP_F32, want);
        play(model, 40, 2, STEP_F32, want); /* threads go apart */
        free(want);
        model_destroy(model);
    }
}

static void test_bf16(void **state) {
    (void)state;
    Model *model = llama_model();
    float *want = decode_streams(model, STEP_BF16);
    play(model, 9, 2, STEP_BF16, want);
    free(want);
    model_destroy(model);
}

/* Every row is visited once, whatever the number of rows and threads. */
static void count_row(void *self, int64_t row) {
    ((int *)self)[row]++;
}

static void test_each(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = llama_model();
    Sequences *sequences = open_sequences(model, 8, 3, STEP_F32);
    for (int64_t rows = 1; rows <= 8; rows++) {
        int visits[8] = {0};
        int64_t row;
        sequences_clear(sequences);
        for (int64_t slot = 0; slot < rows; slot++)
            assert_ok(sequences_add(sequences, &row, slot, 1, diag), diag);
        sequences_step(sequences);
        sequences_each(sequences, count_row, visits);
        for (int64_t i = 0; i < 8; i++) assert_int_equal(visits[i], i < rows);
    }
    sequences_destroy(sequences);
    model_destroy(model);
    diag_destroy(diag);
}

static void test_limits(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = llama_model();
    Sequences *sequences = open_sequences(model, 2, 1, STEP_F32);
    const int32_t wrong[] = {1, WORDS}, right[LONG] = {0};
    int64_t row;
    assert_int_equal(sequences_begin(sequences, 0, wrong, 2, diag), STATUS_MODEL);
    char *text = diag_text(diag);
    assert_string_equal(text, "error: token 1: expected an id from 0 to 52, found 53\n");
    free(text);
    diag_clear(diag);
    assert_ok(sequences_begin(sequences, 1, right, LONG, diag), diag);
    assert_int_equal(sequences_add(sequences, &row, 1, 0, diag), STATUS_MODEL);
    text = diag_text(diag);
    assert_string_equal(
        text, "error: sequence of more than 90 tokens, for which there is room\n");
    free(text);
    sequences_destroy(sequences);
    model_destroy(model);
    diag_destroy(diag);
}

/* Prompts that wait for others are computed when they are asked for: as copies, when
 * their slot begins anew, and where they are cut by the end of a block. */
static void test_prompts_together(void **state) {
    (void)state;
    Model *model = llama_model();
    float *want = decode_streams(model, STEP_F32);
    for (int threads = 1; threads <= 3; threads++) {
        Sequences *sequences = open_sequences(model, 6, threads, STEP_F32);
        for (int slot = 0; slot < 5; slot++) begin(sequences, slot, slot, 89 - slot);
        begin(sequences, 2, 4, 7); /* anew, before it was computed */
        sequences_copy(sequences, 2, 5);
        static const int STREAM[] = {0, 1, 4, 3, 4, 4};
        Diag *diag = diag_create();
        sequences_clear(sequences);
        for (int64_t slot = 5, row; slot >= 0; slot--) {
            const int64_t t = sequences_position(sequences, slot);
            assert_ok(
                sequences_add(sequences, &row, slot, stream_token(STREAM[slot], t), diag),
                diag);
        }
        sequences_step(sequences);
        for (int64_t slot = 0; slot < 6; slot++) {
            const int64_t t = sequences_position(sequences, slot) - 1;
            assert_memory_equal(sequences_logits(sequences, 5 - slot),
                                want + (STREAM[slot] * LONG + t) * WORDS,
                                WORDS * sizeof *want);
        }
        diag_destroy(diag);
        sequences_destroy(sequences);
    }
    free(want);
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bytes), cmocka_unit_test(test_prompts_together),
        cmocka_unit_test(test_bf16),       cmocka_unit_test(test_each),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
