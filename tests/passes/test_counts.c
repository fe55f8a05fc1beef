/* Parameter counts of Mini-DeiT-Ti/S/B and Mini-Swin-T/S/B, from configuration and pass
 * alone, against the counts of the published reference implementation. */
#include "exec/ops.h"
#include "io/files/yaml.h"
#include "io/formats/hf.h"
#include "passes/measure.h"
#include "tests/support/check.h"
#include "tests/support/passes.h"

#include <string.h>

/* A DeiT folder's config.json at the published sizes. */
static Tree *deit_config(Arena *arena, int64_t width, int64_t heads) {
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    Tree *list = tree_new(arena, TREE_LIST, LOC_NONE);
    Tree *name = tree_new(arena, TREE_STRING, LOC_NONE);
    name->string = "DeiTForImageClassificationWithTeacher";
    tree_append(arena, list, NULL, LOC_NONE, name);
    tree_append(arena, map, "architectures", LOC_NONE, list);
    tree_put_string(arena, map, "model_type", "deit");
    tree_put_int(arena, map, "hidden_size", width);
    tree_put_int(arena, map, "num_hidden_layers", 12);
    tree_put_int(arena, map, "num_attention_heads", heads);
    tree_put_int(arena, map, "intermediate_size", 4 * width);
    tree_put_string(arena, map, "hidden_act", "gelu");
    tree_put_int(arena, map, "image_size", 224);
    tree_put_int(arena, map, "patch_size", 16);
    tree_put_int(arena, map, "num_channels", 3);
    tree_put_int(arena, map, "num_labels", 1000);
    tree_put_real(arena, map, "layer_norm_eps", 1e-6);
    return map;
}

/* Parameters of a model after one weight_multiplex with `options`; frees the arena. */
static int64_t count_config(Arena *arena, const Tree *config, const char *options) {
    Diag *diag = diag_create();
    Model *model = NULL;
    assert_ok(hf_build(&model, config, ops_table(), diag), diag);
    assert_ok(test_run_pass(model, "weight_multiplex", options, true, diag), diag);
    const int64_t count = graph_parameter_count(model->graph);
    Measure measure;
    assert_ok(model_measure(&measure, model, diag), diag);
    assert_int_equal(measure.parameters, count);
    assert_int_equal(measure.bytes, 4 * count);
    model_destroy(model);
    diag_destroy(diag);
    arena_destroy(arena);
    return count;
}

static int64_t count_after(int64_t width, int64_t heads, const char *options) {
    Arena *arena = arena_create();
    return count_config(arena, deit_config(arena, width, heads), options);
}

static void test_mini_deit(void **state) {
    (void)state;
    const char *options = "{group: 2, pooling: mean}";
    assert_int_equal(count_after(192, 3, options), 3090304);
    assert_int_equal(count_after(384, 6, options), 11450824);
    assert_int_equal(count_after(768, 12, options), 44098408);
}

/* One group of all 12 layers is the paper's 9M model: one set of block weights, twelve
 * sets of norms, mixing and position tables. */
static void test_one_group(void **state) {
    (void)state;
    const int64_t d = 768, h = 12, l = 12;
    const int64_t expected = (768 * d + d) + 196 * d + (12 * d * d + 9 * d) +
                             l * (4 * d + 2 * h * h + 49 * d / h) + 2 * d +
                             (1000 * d + 1000);
    assert_int_equal(count_after(768, 12, "{group: 12, pooling: mean}"), expected);
    assert_true(expected < 9000000);
}

/* Swin of 224 x 224 pixels: width and heads of the first stage, layers of the third. */
static int64_t count_swin(int width, int heads, int third, const char *options) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *config = NULL;
    const char *yaml = arena_printf(
        arena,
        "{model_type: swin, architectures: [SwinForImageClassification], embed_dim: %d,\n"
        " depths: [2, 2, %d, 2], num_heads: [%d, %d, %d, %d], window_size: 7,\n"
        " image_size: 224, patch_size: 4, num_channels: 3, num_labels: 1000}\n",
        width, third, heads, 2 * heads, 4 * heads, 8 * heads);
    assert_ok(yaml_parse(&config, arena, "swin", yaml, strlen(yaml), diag), diag);
    diag_destroy(diag);
    return count_config(arena, config, options);
}

#define SWIN_FORM                                                                        \
    "mixing_bias: true, position: none, mlp_transform: norm_conv, kernel: 7}"

static void test_mini_swin(void **state) {
    (void)state;
    const char *tiny = "{layers_left: [1, 1, 1, 1], " SWIN_FORM;
    const char *larger = "{layers_left: [1, 1, 9, 1], " SWIN_FORM;
    assert_int_equal(count_swin(96, 3, 6, tiny), 12001765);
    assert_int_equal(count_swin(96, 3, 18, larger), 26463205);
    assert_int_equal(count_swin(128, 4, 18, larger), 46444852);
    assert_int_equal(count_swin(128, 4, 18, "{group: 2, " SWIN_FORM), 46444852);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mini_deit),
        cmocka_unit_test(test_one_group),
        cmocka_unit_test(test_mini_swin),
    };
    return cmocka_run_group_tests_name("parameter counts", tests, NULL, NULL);
}
