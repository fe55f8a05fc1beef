/* Training state: see exec/train/train_state.h. */
#include "exec/train/train_state.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

TrainState *train_state_create(void) {
    Arena *arena = arena_create();
    TrainState *state = ARENA_NEW(arena, TrainState);
    state->arena = arena;
    state->numbers = tree_new(arena, TREE_MAP, LOC_NONE);
    return state;
}

void train_state_destroy(TrainState *state) {
    if (!state) return;
    for (int i = 0; i < state->tensor_count; i++)
        tensor_release(&state->tensors[i].tensor);
    arena_destroy(state->arena);
}

void train_state_add(TrainState *state, const char *prefix, const char *name,
                     Tensor tensor) {
    if (state->tensor_count == state->tensor_room) {
        const int room = state->tensor_room ? 2 * state->tensor_room : 64;
        TrainTensor *more = ARENA_ARRAY(state->arena, TrainTensor, (size_t)room);
        if (state->tensor_count > 0)
            memcpy(more, state->tensors, (size_t)state->tensor_count * sizeof *more);
        state->tensors = more;
        state->tensor_room = room;
    }
    state->tensors[state->tensor_count++] = (TrainTensor){
        .name = arena_printf(state->arena, "%s%s", prefix, name), .tensor = tensor};
}

void train_state_view(TrainState *state, const char *prefix, const char *name,
                      DType dtype, int rank, const int64_t *dim, const void *data) {
    Tensor tensor = tensor_shape(dtype, rank, dim);
    tensor.buf = buf_wrap(data, tensor_bytes(&tensor), NULL);
    train_state_add(state, prefix, name, tensor);
}

/* ---- reading ---- */

/* States are read in the order they are written in, so that looking on from the last one
 * finds the next at once. */
static TrainTensor *find_named(TrainState *state, const char *prefix, const char *name) {
    const size_t length = strlen(prefix);
    for (int i = 0; i < state->tensor_count; i++) {
        const int at = (state->next + i) % state->tensor_count;
        TrainTensor *found = &state->tensors[at];
        if (strncmp(found->name, prefix, length) != 0 ||
            strcmp(found->name + length, name) != 0)
            continue;
        state->next = at + 1;
        return found;
    }
    return NULL;
}

/* Whether a tensor has its bytes: dimensions that multiply out, and data behind them. */
static bool has_data(const Tensor *tensor) {
    size_t bytes = 0;
    return tensor->buf && tensor->rank >= 0 && tensor->rank <= RANK_MAX &&
           shape_size(tensor->dtype, tensor->rank, tensor->dim, NULL, &bytes) &&
           tensor->offset <= buf_bytes(tensor->buf) &&
           bytes <= buf_bytes(tensor->buf) - tensor->offset;
}

Status train_state_find(const Tensor **out, TrainState *state, const char *prefix,
                        const char *name, DType dtype, int rank, const int64_t *dim,
                        Diag *diag) {
    TrainTensor *found = find_named(state, prefix, name);
    char wanted[SHAPE_TEXT_BYTES], there[SHAPE_TEXT_BYTES];
    if (!found)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "the state of the training has no \"%s%s\"", prefix, name);
    const Tensor shape = tensor_shape(dtype, rank, dim);
    const Tensor *tensor = &found->tensor;
    if (!has_data(tensor))
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "the state of the training lacks the data of \"%s\"",
                         found->name);
    if (tensor->dtype != dtype || !tensor_same_shape(tensor, &shape))
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "\"%s\" in the state of the training: expected %s%s, found %s%s",
                         found->name, dtype_name(dtype), shape_text(wanted, rank, dim),
                         dtype_name(tensor->dtype),
                         shape_text(there, tensor->rank, tensor->dim));
    const int64_t at = tensor_find_nonfinite(tensor);
    if (at >= 0)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "\"%s\" in the state of the training: element %" PRId64
                         " is not finite",
                         found->name, at);
    found->taken = true;
    *out = tensor;
    return STATUS_OK;
}

Status train_state_int(int64_t *out, const TrainState *state, const char *name,
                       int64_t least, int64_t most, Diag *diag) {
    const Tree *number = tree_get(state->numbers, name);
    if (!number || number->kind != TREE_INT)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "the state of the training has no whole number \"%s\"", name);
    if (number->integer < least || number->integer > most)
        return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                         "\"%s\" in the state of the training: expected %" PRId64
                         " to %" PRId64 ", found %" PRId64,
                         name, least, most, number->integer);
    *out = number->integer;
    return STATUS_OK;
}

Status train_state_real(double *out, const TrainState *state, const char *name,
                        Diag *diag) {
    if (tree_number(tree_get(state->numbers, name), out) && isfinite(*out))
        return STATUS_OK;
    return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                     "the state of the training has no finite number \"%s\"", name);
}

Status train_state_all_found(const TrainState *state, Diag *diag) {
    for (int i = 0; i < state->tensor_count; i++)
        if (!state->tensors[i].taken)
            return diag_fail(diag, STATUS_MODEL, LOC_NONE, NULL,
                             "the state of the training has \"%s\", which this one has "
                             "not",
                             state->tensors[i].name);
    return STATUS_OK;
}
