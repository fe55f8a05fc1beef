/* Passes that train: a step that goes on from any state of any of its trainings leaves
 * the model, its Gaussians and the records of one that was never stopped. */
#include "exec/train/train_state.h"
#include "tests/support/check.h"
#include "tests/support/passes.h"

#include <stdlib.h>
#include <string.h>

enum { SERIALS = 3, STEPS = 12 };

/* Keeps the states of all steps of all trainings. When it gives them, the step was killed
 * in training `serial` after `step` steps: those before have come to their end. */
typedef struct Memory {
    TrainState *states[SERIALS][STEPS + 1];
    int64_t last[SERIALS]; /* step of the last state */
    bool gives;
    int serial;
    int64_t step;
} Memory;

static bool always_due(void *self, int64_t done, int64_t total) {
    (void)self, (void)done, (void)total;
    return true;
}

static TrainState *copy_state(const TrainState *state) {
    TrainState *copy = train_state_create();
    Diag *none = diag_create();
    for (int i = 0; i < state->tensor_count; i++) {
        const Tensor *from = &state->tensors[i].tensor;
        Tensor tensor;
        assert_ok(tensor_create(&tensor, from->dtype, from->rank, from->dim, none), none);
        memcpy((void *)(uintptr_t)tensor_data(&tensor), tensor_data(from),
               tensor_bytes(from));
        train_state_add(copy, "", state->tensors[i].name, tensor);
    }
    copy->numbers = tree_copy(copy->arena, state->numbers);
    diag_destroy(none);
    return copy;
}

static Status memory_save(void *self, const TrainState *state, Diag *diag) {
    Memory *memory = self;
    (void)diag;
    if (memory->gives) return STATUS_OK;
    const int64_t serial = tree_get(state->numbers, "serial")->integer;
    const int64_t step = tree_get(state->numbers, "step")->integer;
    assert_in_range(serial, 0, SERIALS - 1);
    assert_in_range(step, 1, STEPS);
    assert_null(memory->states[serial][step]);
    memory->states[serial][step] = copy_state(state);
    memory->last[serial] = step;
    return STATUS_OK;
}

static Status memory_load(void *self, int serial, TrainState **state, Diag *diag) {
    Memory *memory = self;
    (void)diag;
    if (!memory->gives || serial > memory->serial) return STATUS_OK;
    const int64_t step = serial < memory->serial ? memory->last[serial] : memory->step;
    *state = copy_state(memory->states[serial][step]);
    return STATUS_OK;
}

/* What a step leaves: hash of the model with its Gaussians, and the provenance. */
typedef struct Left {
    char hash[HASH_TEXT_BYTES];
    Text provenance;
} Left;

static void run_step(Left *left, Memory *memory, const char *step, int threads) {
    const TrainKeeper keeper = {memory, always_due, memory_save, memory_load};
    Diag *diag = diag_create();
    Model *model = toy_vit(1), *teacher = toy_vit(2);
    RecipeInputs inputs = {
        .data = toy_batches(), .model = teacher, .train_keeper = memory ? &keeper : NULL};
    char yaml[1024];
    snprintf(yaml, sizeof yaml,
             "version: 1\nseed: 1\ndata: {toy: {format: toy}}\npasses:\n  - %s\n", step);
    assert_ok(run_with_inputs(&inputs, model, yaml, false, threads, diag), diag);
    model_hash(model, left->hash);
    left->provenance = (Text){0};
    tree_print_json(&left->provenance, model->provenance, 1);
    batches_destroy(inputs.data);
    model_destroy(model);
    model_destroy(teacher);
    diag_destroy(diag);
}

static void check_step(const char *step) {
    Left whole, rest;
    Memory memory = {0};
    run_step(&whole, NULL, step, 1);
    run_step(&rest, &memory, step, 2);
    assert_string_equal(whole.provenance.data, rest.provenance.data);
    text_free(&rest.provenance);
    assert_true(memory.last[0] > 0);
    memory.gives = true;
    for (memory.serial = 0; memory.serial < SERIALS; memory.serial++)
        for (memory.step = 1; memory.step <= STEPS; memory.step++) {
            if (!memory.states[memory.serial][memory.step]) continue;
            run_step(&rest, &memory, step, 1 + (int)memory.step % 2);
            if (strcmp(whole.hash, rest.hash) != 0)
                fail_msg("%s: other weights from training %d, step %d", step,
                         memory.serial, (int)memory.step);
            assert_string_equal(whole.provenance.data, rest.provenance.data);
            text_free(&rest.provenance);
        }
    for (int i = 0; i < SERIALS * (STEPS + 1); i++)
        train_state_destroy(memory.states[i / (STEPS + 1)][i % (STEPS + 1)]);
    text_free(&whole.provenance);
}

#define SHORT "data: toy, batch_size: 20, lr: 0.02"

static void test_finetune(void **state) {
    (void)state;
    check_step("finetune: {" SHORT ", epochs: 2, ema: 0.5}");
}

/* A and B are kept, and drawn and merged as if nothing had happened. */
static void test_low_rank(void **state) {
    (void)state;
    check_step("finetune: {" SHORT ", epochs: 2, ema: 0.5, low_rank: 2, "
               "low_rank_whole: [classifier.*], dev: toy, dev_every: 2, keep: best}");
}

static void test_development(void **state) {
    (void)state;
    check_step("finetune: {" SHORT ", epochs: 2, dev: toy, dev_every: 2, keep: best, "
               "dev_metric: loss}");
    check_step("distill: {" SHORT ", steps: 12, dev: toy, dev_every: 1, keep: best, "
               "patience: 2}");
}

/* The teacher is asked once, again when the step goes on; its losses have projections of
 * their own. */
static void test_distill(void **state) {
    (void)state;
    check_step("distill: {" SHORT ", epochs: 3, preset: none, prediction: 1}");
    check_step("distill: {" SHORT ", epochs: 2, preset: tinybert}");
}

static void test_iterates(void **state) {
    (void)state;
    static const char *const FORMS[] = {"diagonal", "low_rank", "kron"};
    for (int i = 0; i < 3; i++) {
        char step[256];
        snprintf(step, sizeof step,
                 "estimate_posterior: {" SHORT ", steps: 7, samples: 3, every: 2, "
                 "covariance: %s}",
                 FORMS[i]);
        check_step(step);
    }
}

/* Three trainings in a step. */
static void test_runs(void **state) {
    (void)state;
    check_step("estimate_posterior: {" SHORT ", steps: 3, from: runs, samples: 3}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finetune),    cmocka_unit_test(test_low_rank),
        cmocka_unit_test(test_development), cmocka_unit_test(test_distill),
        cmocka_unit_test(test_iterates),    cmocka_unit_test(test_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
