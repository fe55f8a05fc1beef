/* Support for tests of passes: see passes.h. */
#include "tests/support/passes.h"

#include "exec/ops.h"
#include "io/files/yaml.h"
#include "io/formats/hf.h"
#include "ir/random.h"
#include "ir/verify.h"
#include "tests/support/check.h"

#include <stdlib.h>
#include <string.h>

/* ---- toy data ---- */

enum { TOY_SAMPLES = 60, TOY_SIDE = 8, TOY_CLASSES = 3 };

static Status toy_fetch(const Batches *self, const Fetch *what, void *const *dst,
                        Diag *diag) {
    const int64_t *index = what->index;
    const int64_t n = what->n;
    (void)self, (void)diag;
    for (int64_t i = 0; i < n; i++) {
        const int label = (int)(index[i] % TOY_CLASSES);
        float *pixels = (float *)dst[0] + i * TOY_SIDE * TOY_SIDE;
        for (int p = 0; p < TOY_SIDE * TOY_SIDE; p++) {
            const double noise = random_normal(7, (uint64_t)(index[i] * 64 + p));
            const bool bright = p / TOY_SIDE / 3 == label;
            pixels[p] = (float)(0.3 * noise + bright);
        }
        ((int32_t *)dst[1])[i] = label;
    }
    return STATUS_OK;
}

static void toy_destroy(Batches *self) {
    free(self);
}

Batches *toy_batches(void) {
    static const Column columns[2] = {
        {"pixel_values", {.dtype = DTYPE_F32, .rank = 3, .dim = {1, TOY_SIDE, TOY_SIDE}}},
        {"labels", {.dtype = DTYPE_I32, .rank = 0}}};
    Batches *batches = memory_alloc(1, sizeof *batches);
    *batches = (Batches){.name = "toy",
                         .count = TOY_SAMPLES,
                         .columns = columns,
                         .column_count = 2,
                         .classes = TOY_CLASSES,
                         .fetch = toy_fetch,
                         .destroy = toy_destroy};
    return batches;
}

/* ---- toy model ---- */

static const char toy_config[] =
    "{model_type: vit, architectures: [ViTForImageClassification], hidden_size: 16,\n"
    " num_hidden_layers: 4, num_attention_heads: 2, intermediate_size: 32,\n"
    " hidden_act: gelu, image_size: 8, patch_size: 4, num_channels: 1, num_labels: 3,\n"
    " layer_norm_eps: 1.0e-6, initializer_range: 0.2}\n";

Model *toy_vit(uint64_t seed) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *config = NULL;
    Model *model = NULL;
    assert_ok(yaml_parse(&config, arena, "toy", toy_config, strlen(toy_config), diag),
              diag);
    assert_ok(hf_build(&model, config, ops_table(), diag), diag);
    assert_ok(model_init_weights(model, seed, diag), diag);
    diag_destroy(diag);
    arena_destroy(arena);
    return model;
}

/* ---- running ---- */

static RecipeInputs *world_of(Resources *resources) {
    return (RecipeInputs *)(void *)((char *)resources -
                                    offsetof(RecipeInputs, resources));
}

static Status inputs_data(Resources *self, const char *name, const Model *model, Loc at,
                          Batches **out, Diag *diag) {
    (void)name, (void)model, (void)at, (void)diag;
    *out = world_of(self)->data;
    return STATUS_OK;
}

static Status inputs_model(Resources *self, const char *path, bool shapes, Loc at,
                           Model **out, Diag *diag) {
    (void)path, (void)shapes, (void)at, (void)diag;
    *out = world_of(self)->model;
    return STATUS_OK;
}

Resources *inputs_resources(RecipeInputs *inputs) {
    inputs->resources = (Resources){.data = inputs_data, .model = inputs_model};
    return &inputs->resources;
}

void check_hashes(const Model *model) {
    for (int i = 0; i < model->graph->storage_count; i++) {
        const Storage *storage = model->graph->storages[i];
        char kept[HASH_TEXT_BYTES], fresh[HASH_TEXT_BYTES];
        tensor_hash(&storage->tensor, kept);
        tensor_hash_fresh(&storage->tensor, fresh);
        if (strcmp(kept, fresh)) fail_msg("the hash of %s is stale", storage->name);
    }
}

static Status run_document(Model *model, const char *file, const char *yaml,
                           const PipelineOptions *options, Diag *diag) {
    Arena *arena = arena_create();
    Tree *document = NULL;
    Recipe recipe;
    Status status = yaml_parse(&document, arena, file, yaml, strlen(yaml), diag);
    if (status == STATUS_OK)
        status = recipe_bind(&recipe, arena, document, file, ".", diag);
    if (status == STATUS_OK) status = pipeline_run(model, &recipe, options, diag);
    if (status == STATUS_OK) check_hashes(model);
    arena_destroy(arena);
    return status;
}

Status run_with_inputs(RecipeInputs *inputs, Model *model, const char *yaml, bool plan,
                       int threads, Diag *diag) {
    const PipelineOptions options = {.plan = plan,
                                     .threads = threads,
                                     .hooks = inputs->hooks,
                                     .train_keeper = inputs->train_keeper,
                                     .watch = inputs->watch,
                                     .resources = inputs_resources(inputs)};
    return run_document(model, "test", yaml, &options, diag);
}

static Status toy_data(Resources *self, const char *name, const Model *model, Loc at,
                       Batches **out, Diag *diag) {
    if (strcmp(name, "toy"))
        return diag_fail(diag, STATUS_RECIPE, at, name,
                         "the tests have data \"toy\" only");
    return inputs_data(self, name, model, at, out, diag);
}

static Status toy_model(Resources *self, const char *path, bool shapes, Loc at,
                        Model **out, Diag *diag) {
    if (path)
        return diag_fail(diag, STATUS_IO, at, path, "the tests have no model files");
    return inputs_model(self, path, shapes, at, out, diag);
}

Status test_run_recipe(Model *model, const char *file, const char *yaml, bool plan,
                       int threads, Diag *diag) {
    RecipeInputs inputs = {.data = toy_batches(),
                           .model = model_copy(model),
                           .resources = {.data = toy_data, .model = toy_model}};
    const PipelineOptions options = {
        .plan = plan, .threads = threads, .resources = &inputs.resources};
    const Status status = run_document(model, file, yaml, &options, diag);
    batches_destroy(inputs.data);
    model_destroy(inputs.model);
    return status;
}

Status test_run_pass(Model *model, const char *pass, const char *options, bool plan,
                     Diag *diag) {
    char yaml[4096];
    snprintf(yaml, sizeof yaml,
             "version: 1\nseed: 1\ndata: {toy: {format: toy}}\npasses:\n  - %s: %s\n",
             pass, options);
    return test_run_recipe(model, "test", yaml, plan, 1, diag);
}

void run_pass(Model *model, const char *pass, const char *options) {
    Diag *diag = diag_create();
    assert_ok(test_run_pass(model, pass, options, false, diag), diag);
    assert_ok(graph_verify(model->graph, STATUS_INTERNAL, diag), diag);
    diag_destroy(diag);
}

void expect_pass_fails(Model *model, const char *pass, const char *options, Status status,
                       const char *part) {
    Diag *diag = diag_create();
    assert_int_equal(test_run_pass(model, pass, options, false, diag), status);
    char *text = diag_text(diag);
    if (!strstr(text, part)) fail_msg("expected \"%s\" in:\n%s", part, text);
    free(text);
    diag_destroy(diag);
}

const Tree *last_record(const Model *model) {
    return tree_get(tree_get(model->provenance, "steps")->last, "record");
}

double number(const Tree *record, const char *key) {
    const Tree *value = tree_get(record, key);
    if (!value) fail_msg("no %s in the record", key);
    return value->kind == TREE_INT ? (double)value->integer : value->real;
}
