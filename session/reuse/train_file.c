/* Training states as files. */
#include "session/reuse/train_file.h"

#include "io/files/json.h"
#include "io/formats/safetensors.h"

#include <stdlib.h>
#include <string.h>

static const char NUMBERS[] = "numbers", HASH[] = "hash";

static int name_order(const void *a, const void *b) {
    return strcmp(((const NamedTensor *)a)->name, ((const NamedTensor *)b)->name);
}

/* Hash over the numbers and all tensors, which are sorted by name. Their bytes are read:
 * the optimiser writes to them without saying so. */
static void state_hash(const char *numbers, const NamedTensor *tensors, int count,
                       char out[HASH_TEXT_BYTES]) {
    Text text = {0};
    text_add(&text, "%s\n", numbers);
    for (int i = 0; i < count; i++) {
        char hash[HASH_TEXT_BYTES];
        tensor_hash_fresh(&tensors[i].tensor, hash);
        text_add(&text, "%s %s\n", hash, tensors[i].name);
    }
    bytes_hash(text.data, text.length, out);
    text_free(&text);
}

Status train_file_write(const char *path, const TrainState *state, Diag *diag) {
    Arena *arena = arena_create();
    const int count = state->tensor_count;
    NamedTensor *tensors = ARENA_ARRAY(arena, NamedTensor, (size_t)count + 1);
    for (int i = 0; i < count; i++)
        tensors[i] = (NamedTensor){state->tensors[i].name, state->tensors[i].tensor};
    qsort(tensors, (size_t)count, sizeof *tensors, name_order);
    Text numbers = {0};
    char hash[HASH_TEXT_BYTES];
    tree_print_json(&numbers, state->numbers, 0);
    state_hash(numbers.data, tensors, count, hash);
    Tree *metadata = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, metadata, NUMBERS, numbers.data);
    tree_put_string(arena, metadata, HASH, hash);
    const Status status = safetensors_write_with(path, tensors, count, metadata, diag);
    text_free(&numbers);
    arena_destroy(arena);
    return status;
}

/* A string of the metadata, "" where there is none. */
static const char *metadata_text(const Checkpoint *file, const char *key) {
    const Tree *value = tree_get(file->metadata, key);
    return value && value->kind == TREE_STRING ? value->string : "";
}

static Status fill_state(TrainState *state, const Checkpoint *file, Diag *diag) {
    const char *numbers = metadata_text(file, NUMBERS);
    char hash[HASH_TEXT_BYTES];
    state_hash(numbers, file->tensors, file->count, hash);
    if (strcmp(hash, metadata_text(file, HASH)) != 0)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(file->path), NULL,
                         "the hash is that of other content");
    TRY(json_parse(&state->numbers, state->arena, file->path, numbers, strlen(numbers),
                   diag));
    for (int i = 0; i < file->count; i++)
        train_state_add(state, "", file->tensors[i].name,
                        tensor_retain(&file->tensors[i].tensor));
    return STATUS_OK;
}

Status train_file_read(TrainState **out, const char *path, Diag *diag) {
    Checkpoint *file = NULL;
    *out = NULL;
    TRY(safetensors_read(&file, path, diag));
    TrainState *state = train_state_create();
    const Status status = fill_state(state, file, diag);
    if (status == STATUS_OK)
        *out = state;
    else
        train_state_destroy(state);
    checkpoint_destroy(file);
    return status;
}
