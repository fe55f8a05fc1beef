/* Swin folders against torchvision's outputs and gradients
 * (tests/data/reference/README.md says how they were computed), and published parameter
 * counts. */
#include "exec/ops.h"
#include "io/files/yaml.h"
#include "io/formats/hf.h"
#include "tests/support/check.h"
#include "tests/support/reference.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define ROOT "tests/data/reference/"

enum { STAGES = 2, BLOCKS = 2, RESULTS_MAX = 16, NAME_BYTES = 64 };

typedef struct Case {
    Arena *arena;
    Model *model;
    Checkpoint *reference;
    Diag *diag;
} Case;

/* `overrides` is YAML in place of keys of config.json, or NULL. */
static void case_open(Case *c, const char *name, const char *overrides) {
    *c = (Case){.arena = arena_create(), .diag = diag_create()};
    Tree *tree = NULL;
    if (overrides)
        assert_ok(yaml_parse(&tree, c->arena, "overrides", overrides, strlen(overrides),
                             c->diag),
                  c->diag);
    const HfOptions options = {.overrides = tree};
    const char *folder = arena_printf(c->arena, ROOT "%s", name);
    assert_ok(hf_read_with(&c->model, folder, &options, ops_table(), c->diag), c->diag);
    const char *path = arena_printf(c->arena, "%s/reference.safetensors", folder);
    assert_ok(safetensors_read(&c->reference, path, c->diag), c->diag);
}

static void case_close(Case *c) {
    checkpoint_destroy(c->reference);
    model_destroy(c->model);
    diag_destroy(c->diag);
    arena_destroy(c->arena);
}

/* Values with the names that the reference has for them. */
typedef struct Results {
    Node *nodes[RESULTS_MAX];
    char names[RESULTS_MAX][NAME_BYTES];
    int count;
} Results;

static void result_add(Results *r, Node *node, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static void result_add(Results *r, Node *node, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(r->names[r->count], NAME_BYTES, fmt, args);
    va_end(args);
    assert_non_null(node);
    r->nodes[r->count++] = node;
}

/* Everything that the reference has, with `suffix` on the names. */
static Results all_results(const Graph *graph, const char *suffix) {
    static const char *const OUTPUTS[] = {"logits", "last_hidden_state", "pooler_output"};
    Results r = {.count = 0};
    result_add(&r, graph_find(graph, "encoder", 0, ROLE_NORM1)->in[0],
               "hidden_states.0%s", suffix);
    for (int l = 0; l < STAGES * BLOCKS; l++)
        result_add(&r, graph_find(graph, "encoder", l, ROLE_RESIDUAL2),
                   "block_outputs.%d.%d%s", l / BLOCKS, l % BLOCKS, suffix);
    result_add(&r, graph_find(graph, "encoder", -1, ROLE_MERGE_OUT), "hidden_states.1%s",
               suffix);
    result_add(&r, graph_layer_output(graph, "encoder", STAGES * BLOCKS - 1),
               "hidden_states.2%s", suffix);
    for (size_t i = 0; i < sizeof OUTPUTS / sizeof *OUTPUTS; i++)
        result_add(&r, graph_output(graph, OUTPUTS[i]), "%s%s", OUTPUTS[i], suffix);
    return r;
}

static void check_forward(const Case *c, const char *suffix) {
    char pixels[NAME_BYTES];
    snprintf(pixels, sizeof pixels, "pixel_values%s", suffix);
    const int64_t samples = checkpoint_find(c->reference, pixels)->dim[0];
    Results results = all_results(c->model->graph, suffix);
    Runner r;
    runner_open(&r, c->model->graph, samples, PRECISION_F32, NULL, results.nodes,
                results.count);
    reference_feed(r.workspace, c->reference, pixels, "pixel_values");
    runner_run(&r);
    for (int i = 0; i < results.count; i++)
        runner_compare(&r, c->reference, results.names[i], results.nodes[i]);
    runner_close(&r);
}

static void test_forward(void **state) {
    (void)state;
    Case c;
    case_open(&c, "swin", NULL);
    check_forward(&c, "");
    case_close(&c);
}

/* 13 x 13 patches in windows of 4, an odd grid to merge. */
static void test_padded(void **state) {
    (void)state;
    Case c;
    case_open(&c, "swin_padded", NULL);
    check_forward(&c, "");
    case_close(&c);
}

/* The same weights on another image size: 13 x 17 patches. */
static void test_wide(void **state) {
    (void)state;
    Case c;
    case_open(&c, "swin_padded", "image_size: [26, 34]");
    check_forward(&c, "_wide");
    case_close(&c);
}

static void test_gradients(void **state) {
    (void)state;
    Case c;
    case_open(&c, "swin_padded", NULL);
    reference_image_gradients(c.model->graph, c.reference,
                              ROOT "swin_padded/gradients.safetensors");
    case_close(&c);
}

static int64_t published(int64_t width, int middle, const char *heads) {
    char yaml[256];
    snprintf(
        yaml, sizeof yaml,
        "{model_type: swin, image_size: 224, patch_size: 4, embed_dim: %lld, depths: "
        "[2, 2, %d, 2], num_heads: %s, window_size: 7, num_labels: 1000}",
        (long long)width, middle, heads);
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Model *model = NULL;
    Tree *config = NULL;
    assert_ok(yaml_parse(&config, arena, "config", yaml, strlen(yaml), diag), diag);
    assert_ok(hf_build(&model, config, ops_table(), diag), diag);
    const int64_t count = graph_parameter_count(model->graph);
    model_destroy(model);
    diag_destroy(diag);
    arena_destroy(arena);
    return count;
}

/* Swin-T, Swin-S, Swin-B as published. */
static void test_counts(void **state) {
    (void)state;
    assert_int_equal(published(96, 6, "[3, 6, 12, 24]"), 28288354);
    assert_int_equal(published(96, 18, "[3, 6, 12, 24]"), 49606258);
    assert_int_equal(published(128, 18, "[4, 8, 16, 32]"), 87768224);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward), cmocka_unit_test(test_padded),
        cmocka_unit_test(test_wide),    cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_counts),
    };
    return cmocka_run_group_tests_name("swin reference", tests, NULL, NULL);
}
