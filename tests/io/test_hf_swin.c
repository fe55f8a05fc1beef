/* Hugging Face folders of Swin: names, saved indices, the bare model, and configurations
 * that do not fit. */
#include "tests/io/folder_fixture.h"

static void roles(void **state) {
    Fixture *f = *state;
    static const Role LAYER[] = {
        ROLE_NORM1,  ROLE_WINDOWS,   ROLE_Q,       ROLE_K,         ROLE_V,
        ROLE_OUT,    ROLE_ATTENTION, ROLE_GRID,    ROLE_RESIDUAL1, ROLE_NORM2,
        ROLE_FFN_IN, ROLE_FFN_ACT,   ROLE_FFN_OUT, ROLE_RESIDUAL2};
    take(f, "swin");
    Model *model = expect_loaded(f, NULL);
    const Graph *graph = model->graph;
    assert_int_equal(graph_layer_count(graph, "encoder"), 4);
    for (int l = 0; l < 4; l++)
        for (size_t r = 0; r < sizeof LAYER / sizeof *LAYER; r++)
            assert_non_null(graph_find(graph, "encoder", l, LAYER[r]));
    assert_non_null(graph_find(graph, "encoder", -1, ROLE_MERGE_OUT));
    assert_ptr_equal(graph_output(graph, "pooler_output"),
                     graph_find(graph, "head", -1, ROLE_POOL));
    model_destroy(model);
}

/* Tables of indices that checkpoints carry are not read. */
static void indices(void **state) {
    Fixture *f = *state;
    const char *name =
        "swin.encoder.layers.0.blocks.0.attention.self.relative_position_index";
    take(f, "swin");
    assert_non_null(checkpoint_find(f->checkpoint, name));
    add(f, "swin.embeddings.mask_token", "classifier.bias");
    model_destroy(expect_loaded(f, NULL));
}

/* Names with and without the prefix; a classifier that the bare model does not use. */
static void bare(void **state) {
    Fixture *f = *state;
    take(f, "swin");
    edit(f, "SwinForImageClassification", "SwinModel");
    Model *model = expect_loaded(f, "classifier.");
    assert_null(graph_output(model->graph, "logits"));
    assert_non_null(graph_output(model->graph, "pooler_output"));
    model_destroy(model);
    take(f, "swin");
    strip(f, "swin.");
    model_destroy(expect_loaded(f, NULL));
}

/* The table of absolute positions, and projections without biases. */
static void variants(void **state) {
    Fixture *f = *state;
    take(f, "swin");
    edit(f, "\"use_absolute_embeddings\": false", "\"use_absolute_embeddings\": true");
    expect_refused(f, "swin.embeddings.position_embeddings");
    take(f, "swin");
    edit(f, "\"qkv_bias\": true", "\"qkv_bias\": false");
    drop(f, "query.bias");
    drop(f, "key.bias");
    drop(f, "value.bias");
    model_destroy(expect_loaded(f, NULL));
}

static void unfit(void **state) {
    Fixture *f = *state;
    static const char *const CASES[][3] = {
        {"\"window_size\": 4", "\"window_size\": 9",
         "expected windows no larger than the 8 x 8 tokens of stage 1, found 9"},
        {"\"image_size\": 32", "\"image_size\": [32, 6]",
         "expected windows no larger than the 16 x 3 tokens of stage 0, found 4"},
        {"\"image_size\": 32", "\"image_size\": 33", "patch_size"},
        {"\"num_layers\": 2", "\"num_layers\": 3",
         "expected the number of entries of depths, 2, found 3"},
        {"\"depths\": [\n    2,\n    2\n  ]", "\"depths\": 2",
         "expected a list of 1 to 16 integers from 1 to 512"},
        {"\"depths\": [\n    2,\n    2\n  ]", "\"depths\": [2, 0]", "depths"},
        {"\"depths\": [\n    2,\n    2\n  ]", "\"depths\": [2, 2, 2]",
         "expected a list of 3 integers from 1 to 1048576, one for each entry of depths"},
        {"\"num_heads\": [\n    3,\n    6\n  ]", "\"num_heads\": [3, 5]",
         "expected a divisor of width 48 in stage 1, found 5"},
        {"\"num_heads\": [\n    3,\n    6\n  ]", "\"num_heads\": null", "num_heads"},
        {"\"mlp_ratio\": 2.0", "\"mlp_ratio\": 0.01", "0 feed-forward units in stage 0"},
        {"\"embed_dim\": 24", "\"embed_dim\": 0", "embed_dim"},
        {"SwinForImageClassification", "SwinForMaskedImageModeling", "architectures"},
        {"\"hidden_act\": \"gelu\"", "\"hidden_act\": \"mish\"", "hidden_act"},
        {"\"window_size\": 4", "\"window_size\": 5",
         "relative_position_bias_table"}, /* of another shape */
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        take(f, "swin");
        edit(f, CASES[i][0], CASES[i][1]);
        expect_refused(f, CASES[i][2]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(roles, fixture_make, fixture_free),
        cmocka_unit_test_setup_teardown(indices, fixture_make, fixture_free),
        cmocka_unit_test_setup_teardown(bare, fixture_make, fixture_free),
        cmocka_unit_test_setup_teardown(variants, fixture_make, fixture_free),
        cmocka_unit_test_setup_teardown(unfit, fixture_make, fixture_free),
    };
    return cmocka_run_group_tests_name("swin folders", tests, NULL, NULL);
}
