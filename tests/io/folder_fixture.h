/* A Hugging Face folder that tests change before they load it. */
#ifndef COMPRESS_TESTS_IO_FOLDER_FIXTURE_H
#define COMPRESS_TESTS_IO_FOLDER_FIXTURE_H

#include "exec/ops.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/formats/hf.h"
#include "io/formats/load.h"
#include "io/formats/safetensors.h"
#include "io/formats/shards.h"
#include "ir/irtext.h"
#include "ir/verify.h"
#include "tests/io/io_test.h"

#define REFERENCE "tests/data/reference/"

/* A reference folder in memory that tests change before it is written. */
typedef struct Fixture {
    char folder[256], model[300], config[300];
    Arena *arena;
    Diag *diag;
    Checkpoint *checkpoint;
    NamedTensor *tensors;
    int count;
    char *text; /* config.json */
} Fixture;

/* Starts from the reference of that name. */
static inline void take(Fixture *f, const char *name) {
    size_t length;
    const char *folder = arena_printf(f->arena, REFERENCE "%s", name);
    checkpoint_destroy(f->checkpoint);
    expect_ok(f->diag, checkpoint_read(&f->checkpoint, folder, f->diag));
    expect_ok(f->diag, file_read(&f->text, &length, f->arena,
                                 arena_printf(f->arena, "%s/config.json", folder),
                                 1 << 20, f->diag));
    f->count = f->checkpoint->count;
    f->tensors = ARENA_ARRAY(f->arena, NamedTensor, (size_t)f->count + 4);
    memcpy(f->tensors, f->checkpoint->tensors, sizeof *f->tensors * (size_t)f->count);
}

static inline int fixture_make(void **state) {
    Fixture *f = calloc(1, sizeof *f);
    scratch_make(f->folder);
    snprintf(f->model, sizeof f->model, "%s/model.safetensors", f->folder);
    snprintf(f->config, sizeof f->config, "%s/config.json", f->folder);
    f->arena = arena_create();
    f->diag = diag_create();
    *state = f;
    return 0;
}

static inline int fixture_free(void **state) {
    Fixture *f = *state;
    checkpoint_destroy(f->checkpoint);
    diag_destroy(f->diag);
    arena_destroy(f->arena);
    scratch_remove(f->folder);
    free(f);
    return 0;
}

static inline Status load(Fixture *f, Model **model) {
    expect_ok(f->diag, safetensors_write(f->model, f->tensors, f->count, f->diag));
    put_text(f->config, f->text);
    return model_load(model, f->folder, ops_table(), true, f->diag);
}

static inline void expect_refused(Fixture *f, const char *part) {
    Model *model;
    char *text;
    const Status status = load(f, &model);
    text = diag_text(f->diag);
    if (status == STATUS_OK || !strstr(text, part))
        fail_msg("expected a failure with '%s', got %d: %s", part, status, text);
    free(text);
    diag_clear(f->diag);
}

/* Loads, verifies the graph and that its text is a fixed point of print and parse; checks
 * that the diagnostics hold `part` (NULL = say nothing of tensors). */
static inline Model *expect_loaded(Fixture *f, const char *part) {
    Model *model;
    Graph *back;
    Text once = {0}, twice = {0};
    expect_ok(f->diag, load(f, &model));
    char *text = diag_text(f->diag);
    if (part ? !strstr(text, part) : strstr(text, "tensor") != NULL)
        fail_msg("expected '%s', found: %s", part ? part : "nothing", text);
    free(text);
    diag_clear(f->diag);
    expect_ok(f->diag, graph_verify(model->graph, STATUS_INTERNAL, f->diag));
    graph_print(&once, model->graph);
    expect_ok(f->diag, graph_parse(&back, f->arena, ops_table(), "ir", once.data,
                                   once.length, f->diag));
    graph_print(&twice, back);
    assert_string_equal(once.data, twice.data);
    graph_release(back);
    text_free(&once);
    text_free(&twice);
    return model;
}

/* Builds the model of a configuration alone. */
static inline Status build(Fixture *f, Model **model, const char *json) {
    Tree *config;
    put_text(f->config, json);
    expect_ok(f->diag, json_read(&config, f->arena, f->config, 1 << 20, f->diag));
    return hf_build(model, config, ops_table(), f->diag);
}

/* Expects a configuration to be refused with a message that holds `part`. */
static inline void expect_not_built(Fixture *f, const char *json, const char *part) {
    Model *model;
    assert_int_equal(build(f, &model, json), STATUS_MODEL);
    char *text = diag_text(f->diag);
    if (!strstr(text, part)) fail_msg("expected '%s', found %s", part, text);
    free(text);
    diag_clear(f->diag);
}

/* config.json with the first `old` replaced. */
static inline void edit(Fixture *f, const char *old, const char *new) {
    const char *at = strstr(f->text, old);
    assert_non_null(at);
    f->text = arena_printf(f->arena, "%.*s%s%s", (int)(at - f->text), f->text, new,
                           at + strlen(old));
}

/* Removes `prefix` from the names that begin with it. */
static inline void strip(Fixture *f, const char *prefix) {
    for (int i = 0; i < f->count; i++)
        if (strncmp(f->tensors[i].name, prefix, strlen(prefix)) == 0)
            f->tensors[i].name += strlen(prefix);
}

/* Removes the tensors whose name holds `part`. */
static inline void drop(Fixture *f, const char *part) {
    int kept = 0;
    for (int i = 0; i < f->count; i++)
        if (!strstr(f->tensors[i].name, part)) f->tensors[kept++] = f->tensors[i];
    assert_true(kept < f->count);
    f->count = kept;
}

/* Adds a tensor with the values of another. */
static inline void add(Fixture *f, const char *name, const char *like) {
    const Tensor *tensor = checkpoint_find(f->checkpoint, like);
    assert_non_null(tensor);
    f->tensors[f->count++] = (NamedTensor){.name = name, .tensor = *tensor};
}

#endif
