/* A keeper of the states of training, in memory. */
#ifndef COMPRESS_TESTS_EXEC_KEEPER_FIXTURE_H
#define COMPRESS_TESTS_EXEC_KEEPER_FIXTURE_H

#include "exec/train/train_state.h"
#include "tests/support/check.h"

#include <string.h>

enum { STEPS_MOST = 32 };

/* Keeps the states of all steps; gives the one after step `from`, with `wrong` done to
 * it. */
typedef struct Memory {
    TrainState *states[STEPS_MOST + 1]; /* by step */
    int64_t from;                       /* 0 = none */
    int serial, saves;
    void (*wrong)(TrainState *state);
} Memory;

static inline TrainState *copy_state(const TrainState *state) {
    TrainState *copy = train_state_create();
    for (int i = 0; i < state->tensor_count; i++) {
        const TrainTensor *from = &state->tensors[i];
        Diag *none = diag_create();
        Tensor tensor;
        assert_ok(tensor_create(&tensor, from->tensor.dtype, from->tensor.rank,
                                from->tensor.dim, none),
                  none);
        memcpy((void *)(uintptr_t)tensor_data(&tensor), tensor_data(&from->tensor),
               tensor_bytes(&tensor));
        train_state_add(copy, "", from->name, tensor);
        diag_destroy(none);
    }
    copy->numbers = tree_copy(copy->arena, state->numbers);
    return copy;
}

static inline bool memory_due(void *self, int64_t done, int64_t total) {
    (void)self;
    assert_in_range(done, 1, total);
    return true;
}

static inline Status memory_save(void *self, const TrainState *state, Diag *diag) {
    Memory *memory = self;
    (void)diag;
    const int64_t step = tree_get(state->numbers, "step")->integer;
    assert_int_equal(tree_get(state->numbers, "serial")->integer, memory->serial);
    assert_in_range(step, 1, STEPS_MOST);
    train_state_destroy(memory->states[step]);
    memory->states[step] = copy_state(state);
    memory->saves++;
    return STATUS_OK;
}

static inline Status memory_load(void *self, int serial, TrainState **state, Diag *diag) {
    Memory *memory = self;
    (void)diag;
    assert_int_equal(serial, memory->serial);
    if (memory->from == 0) return STATUS_OK;
    *state = copy_state(memory->states[memory->from]);
    if (memory->wrong) memory->wrong(*state);
    return STATUS_OK;
}

static inline TrainKeeper keeper_of(Memory *memory) {
    return (TrainKeeper){memory, memory_due, memory_save, memory_load};
}

static inline void memory_close(Memory *memory) {
    for (int i = 0; i <= STEPS_MOST; i++) train_state_destroy(memory->states[i]);
}

#endif
