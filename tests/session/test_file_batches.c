/* Inputs of `compress run`: masks that are left out are all ones; a tensor that is an
 * input of another model, or named like a mask, is no input to leave alone. */
#include "exec/ops.h"
#include "exec/run/forward.h"
#include "io/formats/load.h"
#include "ir/model_parts.h"
#include "ir/rewrite.h"
#include "session/file_batches.h"
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

#define REFERENCE "tests/data/reference/"

typedef struct Fixture {
    Arena *arena;
    Diag *diag;
    Model *model;
    Checkpoint *inputs;
    float *logits;
    int64_t count;
} Fixture;

static int setup(void **state) {
    Fixture *f = calloc(1, sizeof *f);
    f->arena = arena_create();
    f->diag = diag_create();
    *state = f;
    return 0;
}

static int teardown(void **state) {
    Fixture *f = *state;
    model_destroy(f->model);
    checkpoint_destroy(f->inputs);
    diag_destroy(f->diag);
    arena_destroy(f->arena);
    free(f->logits);
    free(f);
    return 0;
}

static void expect_ok(const Fixture *f, Status status) {
    char *text = diag_text(f->diag);
    if (status != STATUS_OK) fail_msg("%s", text);
    free(text);
}

/* A model, and the inputs of its reference alone. */
static void take(Fixture *f, const char *name) {
    static const char *const KEPT[] = {INPUT_IDS, INPUT_TYPES, INPUT_TARGET_IDS};
    const char *folder = arena_printf(f->arena, REFERENCE "%s", name);
    int count = 0;
    model_destroy(f->model);
    checkpoint_destroy(f->inputs);
    expect_ok(f, model_load(&f->model, folder, ops_table(), true, f->diag));
    expect_ok(f,
              safetensors_read(&f->inputs,
                               arena_printf(f->arena, "%s/reference.safetensors", folder),
                               f->diag));
    for (int i = 0; i < f->inputs->count; i++) {
        NamedTensor *tensor = &f->inputs->tensors[i];
        bool kept = false;
        for (size_t k = 0; k < sizeof KEPT / sizeof *KEPT; k++)
            kept = kept || strcmp(tensor->name, KEPT[k]) == 0;
        if (kept)
            f->inputs->tensors[count++] = *tensor;
        else
            tensor_release(&tensor->tensor);
    }
    f->inputs->count = count; /* there is room for what was dropped */
}

/* Adds a mask of a value under a name, as long as the ids of another. */
static void add_mask(Fixture *f, const char *name, const char *like, int value) {
    void *data;
    const Tensor *ids = checkpoint_find(f->inputs, like);
    NamedTensor *mask = &f->inputs->tensors[f->inputs->count++];
    assert_non_null(ids);
    mask->name = name;
    expect_ok(f, tensor_create(&mask->tensor, DTYPE_I32, ids->rank, ids->dim, f->diag));
    expect_ok(f, tensor_writable(&mask->tensor, &data, f->diag));
    for (int64_t i = 0; i < tensor_count(ids); i++) ((int32_t *)data)[i] = value;
    if (value == 0) ((int32_t *)data)[0] = 1;
    checkpoint_sort(f->inputs);
}

static Status collect(void *self, const Fetch *what, const float *const *values,
                      const void *const *columns, Diag *diag) {
    Fixture *f = self;
    (void)columns, (void)diag;
    free(f->logits);
    f->logits = malloc((size_t)f->count * sizeof(float));
    assert_non_null(f->logits);
    memcpy(f->logits, values[0], (size_t)f->count * sizeof(float));
    assert_int_equal(what->index[0], 0);
    return STATUS_OK;
}

/* Runs the model; f->logits is what it gives. */
static void run(Fixture *f) {
    Batches *data;
    int64_t sizes[DIM_SYMBOLS];
    Type type;
    Model *model = model_copy(f->model);
    Graph *graph = model->graph;
    expect_ok(
        f, file_batches_create(&data, f->arena, graph, f->inputs, false, sizes, f->diag));
    for (Node *node = graph->first; node; node = node->next)
        for (int d = 1; node->name && d < node->type.rank; d++)
            if (node->type.dim[d] < 0)
                node->type.dim[d] = sizes[DIM_INDEX(node->type.dim[d])];
    expect_ok(f, graph_infer(graph, f->diag));
    Node *logits = graph_output(graph, OUTPUT_LOGITS);
    assert_true(type_bind(&logits->type, sizes, &type));
    f->count = type_count(&type);
    expect_ok(
        f, forward_batches(graph, &logits, 1, data, 0, 64, 1, NULL, collect, f, f->diag));
    batches_destroy(data);
    model_destroy(model);
}

/* Checks that inputs without the masks give what masks of ones give, and that a mask that
 * hides tokens gives something else. */
static void expect_ones(Fixture *f, const char *name, const char *const masks[][2]) {
    take(f, name);
    run(f);
    float *without = f->logits;
    f->logits = NULL;
    for (int i = 0; i < 2 && masks[i][0]; i++) add_mask(f, masks[i][0], masks[i][1], 1);
    run(f);
    assert_memory_equal(without, f->logits, (size_t)f->count * sizeof(float));
    take(f, name);
    add_mask(f, masks[0][0], masks[0][1], 0);
    run(f);
    assert_true(memcmp(without, f->logits, (size_t)f->count * sizeof(float)) != 0);
    free(without);
}

static void masks_left_out(void **state) {
    Fixture *f = *state;
    static const char *const ONE[2][2] = {{INPUT_MASK, INPUT_IDS}, {NULL, NULL}};
    static const char *const TWO[2][2] = {{INPUT_MASK, INPUT_IDS},
                                          {INPUT_TARGET_MASK, INPUT_TARGET_IDS}};
    expect_ones(f, "bert", ONE);
    expect_ones(f, "distilbert", ONE);
    expect_ones(f, "marian", TWO);
}

/* Expects the inputs to be refused with a message that holds `part`. */
static void expect_refused_if(Fixture *f, bool strict, const char *part) {
    Batches *data;
    int64_t sizes[DIM_SYMBOLS];
    assert_int_equal(file_batches_create(&data, f->arena, f->model->graph, f->inputs,
                                         strict, sizes, f->diag),
                     STATUS_MODEL);
    char *text = diag_text(f->diag);
    if (!strstr(text, part)) fail_msg("expected '%s', found %s", part, text);
    free(text);
    diag_clear(f->diag);
}

static void expect_refused(Fixture *f, const char *part) {
    expect_refused_if(f, false, part);
}

/* A misspelt name is refused, any other one that is no input's where it is asked for. */
static void other_names(void **state) {
    Fixture *f = *state;
    static const char *const UNKNOWN = "the model has no input of this name; its inputs";
    take(f, "bert");
    add_mask(f, "attention_maks", INPUT_IDS, 0);
    expect_refused(f, UNKNOWN);
    take(f, "bert");
    add_mask(f, "scores", INPUT_IDS, 0);
    expect_refused_if(f, true, UNKNOWN);
    run(f); /* left alone */
    take(f, "bert");
    add_mask(f, INPUT_MASK, INPUT_IDS, 1);
    add_mask(f, "attention_maks", INPUT_IDS, 0);
    run(f); /* the mask itself is there */
}

static void inputs_of_others(void **state) {
    Fixture *f = *state;
    take(f, "gpt2");
    add_mask(f, INPUT_MASK, INPUT_IDS, 1);
    expect_refused(f,
                   "attention_mask: the model has no input of this name; its inputs are "
                   "input_ids");
    take(f, "distilbert");
    add_mask(f, INPUT_TYPES, INPUT_IDS, 1);
    expect_refused(f,
                   "token_type_ids: the model has no input of this name; its inputs are "
                   "input_ids, attention_mask");
    take(f, "bert");
    add_mask(f, "atention_mask", INPUT_IDS, 0);
    expect_refused(f, "atention_mask: the model has no input of this name");
    take(f, "bert");
    add_mask(f, "position_ids", INPUT_IDS, 0);
    expect_refused(f, "position_ids: the model has no input of this name");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(masks_left_out, setup, teardown),
        cmocka_unit_test_setup_teardown(inputs_of_others, setup, teardown),
        cmocka_unit_test_setup_teardown(other_names, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
