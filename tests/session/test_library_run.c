/* Models that the library runs, and texts that it writes: outputs against those of
 * PyTorch, and what was made ready against what was not, to the byte. */
#include "ir/sanitized.h"
#include "session/compress.h"
#include "tests/session/library_fixture.h"
#include "tests/support/check.h"
#include "tests/support/reference.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static CompressTensor input_of(const Checkpoint *reference, const char *name) {
    const Tensor *tensor = checkpoint_find(reference, name);
    assert_non_null(tensor);
    return (CompressTensor){.name = name,
                            .type = COMPRESS_I64,
                            .rank = 2,
                            .dim = {tensor->dim[0], tensor->dim[1]},
                            .data = tensor_data(tensor)};
}

/* ---- outputs ---- */

/* The terms of a chain through the model: see tests/support/rounding.h. Two layers or
 * three of width 32 with 64 hidden units and their functions. */
#define TERMS 4096

static void test_outputs(void **state) {
    Use use;
    Diag *diag = diag_create();
    Checkpoint *reference;
    CompressTensor *outputs;
    size_t count;
    int seen = 0;
    (void)state;
    use_open(&use);
    assert_ok(safetensors_read(&reference, BERT "/reference.safetensors", diag), diag);
    const CompressTensor inputs[] = {input_of(reference, "token_type_ids"),
                                     input_of(reference, "input_ids"),
                                     input_of(reference, "attention_mask")};
    assert_int_equal(compress_run(use.context, use.model, inputs, 3, &outputs, &count),
                     COMPRESS_OK);
    for (size_t i = 0; i < count; i++) {
        if (!checkpoint_find(reference, outputs[i].name)) continue;
        reference_compare(reference, outputs[i].name, outputs[i].data, PRECISION_F32,
                          TERMS, reference_largest(reference));
        seen += strcmp(outputs[i].name, "logits") == 0 && outputs[i].rank == 2 &&
                outputs[i].dim[0] == 2 && outputs[i].dim[1] == 3;
    }
    assert_int_equal(seen, 1);
    compress_free_tensors(outputs);
    checkpoint_destroy(reference);
    diag_destroy(diag);
    use_close(&use);
}

enum { GIVEN_MAX = 64 };

static bool ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* The inputs among a reference's tensors, by their names. */
static size_t inputs_of(const Checkpoint *reference, CompressTensor *inputs) {
    size_t count = 0;
    for (int i = 0; i < reference->count && count < GIVEN_MAX; i++) {
        const Tensor *tensor = &reference->tensors[i].tensor;
        const DType dtype = tensor->dtype;
        const char *name = reference->tensors[i].name;
        if (!ends_with(name, "_ids") && !ends_with(name, "_mask") &&
            !ends_with(name, "_values"))
            continue;
        inputs[count] = (CompressTensor){.name = name,
                                         .type = dtype == DTYPE_F32   ? COMPRESS_F32
                                                 : dtype == DTYPE_I32 ? COMPRESS_I32
                                                                      : COMPRESS_I64,
                                         .rank = tensor->rank,
                                         .data = tensor_data(tensor)};
        memcpy(inputs[count].dim, tensor->dim, sizeof tensor->dim);
        count++;
    }
    return count;
}

/* Outputs of a family's model as its reference has them, of the model as it is and made
 * ready; the number of those that were compared. */
static int check_family(const char *name) {
    char path[128];
    CompressContext *context;
    CompressModel *model;
    CompressRunner *runner;
    CompressTensor inputs[GIVEN_MAX], *outputs, *again;
    size_t count, again_count;
    int compared = 0;
    Diag *diag = diag_create();
    Checkpoint *reference;
    snprintf(path, sizeof path, "tests/data/reference/%s/reference.safetensors", name);
    assert_ok(safetensors_read(&reference, path, diag), diag);
    *strrchr(path, '/') = 0;
    const size_t given = inputs_of(reference, inputs);
    assert_int_equal(compress_open(&context, 2), COMPRESS_OK);
    assert_int_equal(compress_load(context, path, &model), COMPRESS_OK);
    if (compress_run(context, model, inputs, given, &outputs, &count) != COMPRESS_OK)
        fail_msg("%s: %s", name, compress_messages(context));
    assert_int_equal(compress_prepare(context, model, &runner), COMPRESS_OK);
    assert_int_equal(
        compress_run_prepared(context, runner, inputs, given, &again, &again_count),
        COMPRESS_OK);
    assert_int_equal(again_count, count);
    for (size_t i = 0; i < count; i++) {
        const int64_t values = value_count(&outputs[i]);
        assert_memory_equal(outputs[i].data, again[i].data,
                            (size_t)values * sizeof(float));
        const Tensor *want = checkpoint_find(reference, outputs[i].name);
        if (!want || tensor_count(want) != values) continue;
        reference_compare(reference, outputs[i].name, outputs[i].data, PRECISION_F32,
                          TERMS, reference_largest(reference));
        compared++;
    }
    compress_free_tensors(outputs);
    compress_free_tensors(again);
    compress_free_runner(runner);
    compress_free_model(model);
    compress_close(context);
    checkpoint_destroy(reference);
    diag_destroy(diag);
    return compared;
}

/* Texts, pairs of source and target, images, windows of images: what sizes there are is
 * found in the tensors. */
static void test_families(void **state) {
    static const char *const FAMILIES[] = {"gpt2",   "llama", "marian", "t5",   "bart",
                                           "dinov2", "vit",   "swin",   "deit", "mpnet"};
    (void)state;
    for (size_t i = 0; i < sizeof FAMILIES / sizeof *FAMILIES; i++)
        if (check_family(FAMILIES[i]) == 0)
            fail_msg("%s: nothing to compare", FAMILIES[i]);
}

/* A runner gives what compress_run does, for samples of any number and length, and of the
 * model as it was when it was made ready. */
static void test_runner(void **state) {
    enum { SAMPLES = 40, TOKENS = 12 };
    static const int64_t SHAPES[][2] = {{2, 8}, {2, 8}, {3, 8}, {SAMPLES, TOKENS},
                                        {1, 3}, {2, 8}};
    Use use;
    CompressRunner *runner;
    int32_t ids[SAMPLES * TOKENS];
    (void)state;
    use_open(&use);
    for (int i = 0; i < SAMPLES * TOKENS; i++) ids[i] = 1 + i * 7 % 20;
    CompressModel *kept = compress_copy(use.model);
    assert_int_equal(compress_prepare(use.context, use.model, &runner), COMPRESS_OK);
    assert_int_equal(
        compress_apply(use.context, use.model, "[remove_layer: {count: 1}]", NULL),
        COMPRESS_OK);
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
        CompressTensor *got, *want, input = {"input_ids", COMPRESS_I32, 2, {0}, ids};
        size_t got_count, want_count;
        memcpy(input.dim, SHAPES[i], sizeof SHAPES[i]);
        CompressTensor types = input;
        static const int32_t ZEROS[SAMPLES * TOKENS];
        types.name = "token_type_ids", types.data = ZEROS;
        const CompressTensor inputs[] = {input, types}; /* zeros may be left out */
        assert_int_equal(
            compress_run_prepared(use.context, runner, inputs, 2, &got, &got_count),
            COMPRESS_OK);
        assert_int_equal(
            compress_run(use.context, kept, inputs, 1 + i % 2, &want, &want_count),
            COMPRESS_OK);
        assert_int_equal(got_count, want_count);
        for (size_t k = 0; k < got_count; k++) {
            assert_string_equal(got[k].name, want[k].name);
            assert_int_equal(got[k].dim[0], SHAPES[i][0]);
            assert_memory_equal(got[k].dim, want[k].dim, sizeof want[k].dim);
            assert_memory_equal(got[k].data, want[k].data,
                                (size_t)value_count(&got[k]) * sizeof(float));
        }
        compress_free_tensors(got);
        compress_free_tensors(want);
    }
    compress_free_model(kept);
    compress_free_runner(runner);
    compress_free_runner(NULL);
    use_close(&use);
}

static void test_wrong_inputs(void **state) {
    Use use;
    CompressTensor *outputs;
    size_t count;
    const int32_t ids[] = {1, 2, 3};
    CompressTensor input = {"input_ids", COMPRESS_I32, 2, {1, 3}, ids};
    (void)state;
    use_open(&use);
    CompressTensor twice[] = {input, input};
    assert_int_equal(compress_run(use.context, use.model, twice, 2, &outputs, &count),
                     COMPRESS_USAGE);
    assert_null(outputs);
    input.rank = 1;
    assert_int_equal(compress_run(use.context, use.model, &input, 1, &outputs, &count),
                     COMPRESS_MODEL);
    assert_said(&use, "input_ids: expected");
    input.rank = COMPRESS_RANK_MAX + 1;
    assert_int_equal(compress_run(use.context, use.model, &input, 1, &outputs, &count),
                     COMPRESS_USAGE);
    input = (CompressTensor){"input_ids", COMPRESS_F32, 2, {1, 3}, NULL};
    assert_int_equal(compress_run(use.context, use.model, &input, 1, &outputs, &count),
                     COMPRESS_USAGE);
    assert_int_equal(compress_run(use.context, use.model, NULL, 0, &outputs, &count),
                     COMPRESS_MODEL);
    use_close(&use);
}

/* ---- texts ---- */

/* What is made is a text of so many tokens, the same again and on other threads, another
 * one from another seed. */
static void test_generate(void **state) {
    static const char first[] = "{" WORDS ", max_tokens: 24, temperature: 0.8, seed: 3}",
                      other[] = "{" WORDS ", max_tokens: 24, temperature: 0.8, seed: 4}",
                      longer[] = "{" WORDS ", max_tokens: 48, temperature: 0.8, seed: 3}";
    CompressModel *model;
    char *text[4];
    (void)state;
    for (int i = 0; i < 4; i++) {
        CompressContext *context;
        assert_int_equal(compress_open(&context, 1 + i % 2), COMPRESS_OK);
        assert_int_equal(compress_load(context, LLAMA, &model), COMPRESS_OK);
        if (compress_generate(context, model, "the king",
                              i < 2    ? first
                              : i == 2 ? other
                                       : longer,
                              &text[i]) != COMPRESS_OK)
            fail_msg("%s", compress_messages(context));
        compress_free_model(model);
        compress_close(context);
    }
    assert_true(strlen(text[0]) > 0);
    assert_string_equal(text[0], text[1]);
    assert_string_not_equal(text[0], text[2]);
    assert_true(strlen(text[3]) > strlen(text[0]));
    assert_memory_equal(text[0], text[3], strlen(text[0]));
    for (int i = 0; i < 4; i++) compress_free_text(text[i]);
}

static int take_piece(void *self, const char *text) {
    strcat(self, text);
    return strlen(self) > 5;
}

/* Wants no more at once. */
static int count_pieces(void *self, const char *text) {
    (void)text;
    ++*(int *)self;
    return 1;
}

/* A writer writes what compress_generate does, also where it goes on with a text that it
 * has, and piece by piece. */
static void test_writer(void **state) {
    static const char OPTIONS[] = "{max_tokens: 24, temperature: 0.8, seed: 3}",
                      GENERATE[] =
                          "{" WORDS ", max_tokens: 24, temperature: 0.8, seed: 3}";
    CompressContext *context;
    CompressModel *model;
    CompressWriter *writer;
    char prompt[512] = "the king", pieces[512] = "", *want, *got;
    (void)state;
    assert_int_equal(compress_open(&context, 2), COMPRESS_OK);
    assert_int_equal(compress_load(context, LLAMA, &model), COMPRESS_OK);
    const Use use = {context, model};
    assert_int_equal(compress_prepare_writer(context, model, NULL, &writer),
                     COMPRESS_USAGE); /* it has no tokenizer */
    assert_null(writer);
    assert_int_equal(
        compress_prepare_writer(context, model, "{" WORDS ", context: 120}", &writer),
        COMPRESS_OK);
    for (int turn = 0; turn < 4; turn++) {
        if (turn == 2) strcpy(prompt, "when he"); /* another text */
        assert_int_equal(compress_generate(context, model, prompt, GENERATE, &want),
                         COMPRESS_OK);
        if (compress_write(context, writer, prompt, OPTIONS, NULL, NULL, &got) !=
            COMPRESS_OK)
            fail_msg("%s", compress_messages(context));
        assert_string_equal(got, want);
        strcat(prompt, got);
        compress_free_text(got);
        compress_free_text(want);
    }
    assert_int_equal(
        compress_write(context, writer, "the king", OPTIONS, take_piece, pieces, &got),
        COMPRESS_OK);
    assert_string_equal(pieces, got);
    assert_true(strlen(pieces) > 5 && strlen(pieces) < 20);
    compress_free_text(got);
    int calls = 0; /* also where the end of the text was held back for a stop */
    assert_int_equal(
        compress_write(context, writer, "the king",
                       "{stop: [azz, ezz, izz, ozz, tzz, hzz, nzz, rzz, szz, ' zz']}",
                       count_pieces, &calls, NULL),
        COMPRESS_OK);
    assert_int_equal(calls, 1);
    assert_int_equal(
        compress_write(context, writer, "the king", "{stop: [\" \"]}", NULL, NULL, &got),
        COMPRESS_OK);
    assert_null(strchr(got, ' '));
    compress_free_text(got);
    assert_int_equal(compress_write(context, writer, "the king", "{max_tokens: 120}",
                                    NULL, NULL, &got),
                     COMPRESS_USAGE);
    assert_said(&use, "error: max_tokens: expected at most 120 tokens");
    assert_null(got);
    assert_int_equal(compress_write(context, NULL, "a", NULL, NULL, NULL, &got),
                     COMPRESS_USAGE);
    compress_free_writer(writer);
    compress_free_writer(NULL);
    compress_free_model(model);
    compress_close(context);
}

/* Without logits to draw from there is no text, however it is drawn. */
static void test_not_finite(void **state) {
    static const char *const OPTIONS[] = {"{" WORDS ", max_tokens: 9}",
                                          "{" WORDS ", temperature: 1, max_tokens: 9}",
                                          "{" WORDS ", top_k: 3, temperature: 1, "
                                          "max_tokens: 9}"};
    static const char SAID[] = "error: expected finite logits, found others at token 1 ";
    CompressContext *context;
    CompressModel *model;
    CompressWriter *writer;
    char *text;
    (void)state;
    assert_int_equal(compress_open(&context, 2), COMPRESS_OK);
    assert_int_equal(compress_load(context, LLAMA, &model), COMPRESS_OK);
    overflow_layer(model, "decoder", 1);
    const Use use = {context, model};
    for (size_t i = 0; i < sizeof OPTIONS / sizeof *OPTIONS; i++) {
        assert_int_equal(compress_generate(context, model, "king", OPTIONS[i], &text),
                         COMPRESS_MODEL);
        assert_null(text);
        assert_said(&use, SAID);
        assert_said(&use, "of 9");
    }
    assert_int_equal(
        compress_prepare_writer(context, model, "{" WORDS ", context: 99}", &writer),
        COMPRESS_OK);
    for (int turn = 0; turn < 2; turn++) { /* again, of what it has read */
        assert_int_equal(compress_write(context, writer, "king", NULL, NULL, NULL, &text),
                         COMPRESS_MODEL);
        assert_null(text);
        assert_said(&use, SAID);
    }
    compress_free_writer(writer);
    use_close(&(Use){context, model});
}

/* Messages name the keys of the options, not flags of the program. */
static void test_generate_keys(void **state) {
    CompressContext *context;
    CompressModel *model;
    char *text;
    (void)state;
    assert_int_equal(compress_open(&context, 1), COMPRESS_OK);
    assert_int_equal(compress_load(context, LLAMA, &model), COMPRESS_OK);
    const Use use = {context, model};
    assert_int_equal(compress_generate(context, model, "the king", NULL, &text),
                     COMPRESS_USAGE);
    assert_said(&use, "error: tokenizer: expected the path of one: the model has no");
    assert_null(text);
    assert_int_equal(compress_generate(context, model, "", "{" WORDS "}", &text),
                     COMPRESS_USAGE);
    assert_said(&use, "error: prompt: expected text");
    assert_int_equal(compress_generate(context, model, "100%", "{" WORDS "}", &text),
                     COMPRESS_FORMAT);
    assert_said(&use, "leave such characters out (skip_unknown of data sets)");
    compress_free_model(model);
    compress_close(context);
}

static void test_generate_refuses(void **state) {
    Use use;
    char *text;
    (void)state;
    use_open(&use);
    assert_int_equal(
        compress_generate(use.context, use.model, "a", "{max_tokns: 3}", &text),
        COMPRESS_USAGE);
    assert_said(&use, "max_tokens");
    assert_null(text);
    use_close(&use);
}

/* That a model writes no text is told before a tokenizer is asked for. */
static void test_no_writer(void **state) {
    static const char *const models[] = {BERT, "tests/data/reference/marian"};
    CompressContext *context;
    (void)state;
    assert_int_equal(compress_open(&context, 1), COMPRESS_OK);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        CompressModel *model;
        CompressWriter *writer;
        char *text;
        assert_int_equal(compress_load(context, models[i], &model), COMPRESS_OK);
        const Use use = {context, model};
        assert_int_equal(compress_generate(context, model, "a", NULL, &text),
                         COMPRESS_MODEL);
        assert_said(&use, "expected a model");
        assert_null(text);
        assert_int_equal(compress_prepare_writer(context, model, "", &writer),
                         COMPRESS_MODEL);
        assert_said(&use, "expected a model");
        assert_null(writer);
        compress_free_model(model);
    }
    compress_close(context);
}

/* What was made ready before is used behind it as well. */
static int use_ready(CompressContext *context, CompressRunner *runner,
                     CompressWriter *writer) {
    static const int32_t IDS[4] = {1, 2, 3, 4};
    const CompressTensor input = {"input_ids", COMPRESS_I32, 2, {1, 4}, IDS};
    CompressTensor *outputs;
    size_t count;
    char *text = NULL;
    const int status =
        compress_run_prepared(context, runner, &input, 1, &outputs, &count) +
        compress_write(context, writer, "the king", NULL, NULL, NULL, &text);
    compress_free_tensors(outputs);
    compress_free_text(text);
    compress_free_runner(runner);
    compress_free_writer(writer);
    return status;
}

static void test_fork_ready(void **state) {
    (void)state;
    CompressContext *context;
    CompressModel *model;
    CompressRunner *runner;
    CompressWriter *writer;
    if (THREAD_SANITIZED) skip();
    assert_int_equal(compress_open(&context, 2), COMPRESS_OK);
    assert_int_equal(compress_load(context, LLAMA, &model), COMPRESS_OK);
    assert_int_equal(compress_prepare(context, model, &runner), COMPRESS_OK);
    assert_int_equal(compress_prepare_writer(context, model, "{" WORDS "}", &writer),
                     COMPRESS_OK);
    if (SANITIZED) usleep(20000); /* gcc 12's allocator holds a lock as a thread starts */
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(use_ready(context, runner, writer));
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), COMPRESS_OK);
    assert_int_equal(use_ready(context, runner, writer), COMPRESS_OK);
    compress_free_model(model);
    compress_close(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outputs),       cmocka_unit_test(test_families),
        cmocka_unit_test(test_runner),        cmocka_unit_test(test_wrong_inputs),
        cmocka_unit_test(test_generate),      cmocka_unit_test(test_writer),
        cmocka_unit_test(test_generate_keys), cmocka_unit_test(test_generate_refuses),
        cmocka_unit_test(test_fork_ready),    cmocka_unit_test(test_no_writer),
        cmocka_unit_test(test_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
