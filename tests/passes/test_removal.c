/* The premise of Bayesian distillation, for everything that can be removed and every
 * family: where the entries that a removal takes to be zero are zero, the model computes
 * the same with and without what is removed; where they are not, it does not. And parts
 * that are removed in turn are what is removed at once. */
#include "tests/passes/removal_fixture.h"

#include "ir/irtext.h"

/* Removes with and without `entries` set, and compares. */
static void check_premise(const Family *f, const Entries *entries, const char *pass,
                          const char *options) {
    double rounding;
    for (int set = 0; set < 2; set++) {
        Model *model = draw_model(f, 5);
        if (f->place == NORM_POST) set_norms(model);
        if (set) set_entries(model, entries);
        Model *before = model_copy(model);
        run_pass(model, pass, options);
        const double d = difference(before, model, &rounding);
        if (f->place == NORM_POST) rounding += NORMS_DIFFER;
        if (set ? !(d <= rounding) : !(d > 1e-4))
            fail_msg("%s, %s %s, entries %s: outputs differ by %g", f->name, pass,
                     options, set ? "set" : "not set", d);
        model_destroy(before);
        model_destroy(model);
    }
}

static void check_layer(const Family *f, int layer) {
    char options[128];
    Entries entries = {.count = 0};
    Model *model = draw_model(f, 5);
    add_layer(&entries, model, f, layer);
    snprintf(options, sizeof options, "{drop: [%d], stack: %s}", layer, f->stack);
    check_premise(f, &entries, "remove_layer", options);
    model_destroy(model);
}

static void check_block(const Family *f, int layer, BlockKind kind) {
    char options[128];
    Entries entries = {.count = 0};
    Model *model = draw_model(f, 5);
    add_block(&entries, model, f, layer, kind);
    snprintf(options, sizeof options, "{block: %s, drop: [%d], stack: %s}",
             block_name(kind), layer, f->stack);
    check_premise(f, &entries, "remove_block", options);
    model_destroy(model);
}

static void test_layers(void **state) {
    (void)state;
    for (int i = 0; i < FAMILY_COUNT; i++)
        for (int layer = 0; layer < LAYERS; layer++) check_layer(&FAMILIES[i], layer);
}

static void test_blocks(void **state) {
    (void)state;
    for (int i = 0; i < FAMILY_COUNT; i++)
        for (int layer = 0; layer < LAYERS; layer++)
            for (int kind = 0; kind < BLOCK_OTHER; kind++)
                if (kind != BLOCK_CROSS_ATTENTION || FAMILIES[i].cross)
                    check_block(&FAMILIES[i], layer, (BlockKind)kind);
}

/* ---- heads ---- */

/* A head does nothing where either its values or its columns of the projection are zero.
 */
static void check_heads(const Family *f, bool value) {
    Entries entries = {.count = 0};
    Model *model = draw_model(f, 5);
    for (int layer = 0; layer < LAYERS; layer++)
        add_head(&entries, model, f, layer, 1, value);
    shrink_head(model, f, 1, 0.1F);
    set_entries(model, &entries);
    Model *before = model_copy(model);
    char options[128];
    snprintf(options, sizeof options, "{keep: 1, score: magnitude, stack: %s}", f->stack);
    run_pass(model, "prune_heads", options);
    double rounding;
    const double d = difference(before, model, &rounding);
    if (!(d <= rounding)) fail_msg("%s: outputs differ by %g", f->name, d);
    model_destroy(before);
    model_destroy(model);
}

static void test_heads(void **state) {
    (void)state;
    for (int i = 0; i < FAMILY_COUNT; i++) {
        check_heads(&FAMILIES[i], false);
        check_heads(&FAMILIES[i], true);
    }
}

/* ---- additive attention ---- */

/* Theorems 2, 3 and 4: with any of them the context is the mean of the states. */
static void test_additive_attention(void **state) {
    (void)state;
    for (int i = 0; i < RECURRENT_COUNT; i++)
        for (int zero = 0; zero < ZERO_COUNT; zero++) {
            Entries entries = {.count = 0};
            Model *model = draw_model(&RECURRENTS[i], 5);
            add_alignment(&entries, model, zero);
            check_premise(&RECURRENTS[i], &entries, "remove_attention", "{}");
            model_destroy(model);
        }
}

/* What is left is the model that is built without attention. */
static void test_mean_model(void **state) {
    (void)state;
    Model *model = draw_model(&RECURRENTS[0], 5);
    Model *mean = configured_model(
        "{model_type: rnn_attention, source_vocab_size: 12, target_vocab_size: 12,\n"
        " embedding_size: 5, encoder_size: 6, decoder_size: 7, context: mean}\n",
        5);
    run_pass(model, "remove_attention", "{}");
    assert_int_equal(graph_parameter_count(model->graph),
                     graph_parameter_count(mean->graph));
    for (int i = 0; i < mean->graph->storage_count; i++) {
        Storage *storage = mean->graph->storages[i];
        const Storage *from = graph_storage(model->graph, storage->name);
        assert_non_null(from);
        tensor_release(&storage->tensor);
        storage->tensor = tensor_retain(&from->tensor);
    }
    assert_true(difference(model, mean, NULL) == 0);
    expect_pass_fails(model, "remove_attention", "{}", STATUS_MODEL,
                      "no additive attention");
    expect_pass_fails(model, "remove_layer", "{drop: [0]}", STATUS_MODEL,
                      "at least one layer to remain");
    expect_pass_fails(model, "remove_layer", "{drop: [0], stack: encoder}", STATUS_MODEL,
                      "at least one layer to remain");
    model_destroy(model);
    model_destroy(mean);
}

/* ---- in turn and at once ---- */

static void expect_same_graph(Model *a, Model *b) {
    Text x = {0}, y = {0};
    graph_print(&x, a->graph);
    graph_print(&y, b->graph);
    assert_string_equal(x.data, y.data);
    text_free(&x);
    text_free(&y);
}

/* The blocks of a layer removed in turn, in the given order, are the layer removed. */
static void check_in_turn(const Family *f, int layer, bool backwards) {
    Model *at_once = draw_model(f, 5), *in_turn = model_copy(at_once);
    char options[128];
    snprintf(options, sizeof options, "{drop: [%d], stack: %s}", layer, f->stack);
    run_pass(at_once, "remove_layer", options);
    for (int i = 0; i < BLOCK_OTHER; i++) {
        const BlockKind kind = (BlockKind)(backwards ? BLOCK_OTHER - 1 - i : i);
        if (kind == BLOCK_CROSS_ATTENTION && !f->cross) continue;
        snprintf(options, sizeof options, "{block: %s, drop: [%d], stack: %s}",
                 block_name(kind), layer, f->stack);
        run_pass(in_turn, "remove_block", options);
    }
    expect_same_graph(at_once, in_turn);
    assert_true(difference(at_once, in_turn, NULL) == 0);
    const Tree *layers = tree_get(tree_get(in_turn->provenance, "layers"), f->stack);
    assert_int_equal(layers->count, LAYERS - 1);
    model_destroy(at_once);
    model_destroy(in_turn);
}

static void test_in_turn(void **state) {
    (void)state;
    for (int i = 0; i < FAMILY_COUNT; i++)
        for (int layer = 0; layer < LAYERS; layer++) {
            check_in_turn(&FAMILIES[i], layer, false);
            check_in_turn(&FAMILIES[i], layer, true);
        }
}

/* All heads of a layer pruned, and the bias that is left set to zero, are its attention
 * removed. */
static void test_heads_are_the_block(void **state) {
    (void)state;
    const Family *f = &FAMILIES[0];
    Model *heads = draw_model(f, 5);
    Storage *bias = storage_at(heads, f->stack, 1, ROLE_OUT, "bias");
    memset(writable(bias), 0, tensor_bytes(&bias->tensor));
    scale_units(heads, f, 1, ROLE_OUT, true, 0, 2 * HEAD_WIDTH, 1e-3F);
    Model *block = model_copy(heads);
    run_pass(heads, "prune_heads",
             "{ranking: global, keep_total: 4, allow_empty: true, score: magnitude}");
    run_pass(block, "remove_block", "{block: attention, drop: [1]}");
    double rounding;
    const double d = difference(heads, block, &rounding);
    assert_within(d, 0, rounding);
    run_pass(heads, "remove_block", "{block: attention, drop: [1]}");
    expect_same_graph(heads, block);
    model_destroy(heads);
    model_destroy(block);
}

/* Attention of two neighbours goes, of which the first has nothing else. */
static void test_neighbours(void **state) {
    (void)state;
    const Family *f = &FAMILIES[0];
    Model *model = draw_model(f, 5), *other = model_copy(model);
    run_pass(model, "remove_block", "{block: ffn, drop: [0]}");
    run_pass(model, "remove_block", "{block: attention, drop: [1, 0]}");
    run_pass(other, "remove_layer", "{drop: [0]}");
    run_pass(other, "remove_block", "{block: attention, drop: [0]}");
    expect_same_graph(model, other);
    assert_true(difference(model, other, NULL) == 0);
    model_destroy(model);
    model_destroy(other);
}

/* The transform that weight_multiplex puts in front of a feed-forward block goes with it,
 * and other passes find what the layer hands on. */
static void test_transforms(void **state) {
    (void)state;
    Model *model = draw_model(&FAMILIES[0], 5), *other = model_copy(model);
    static const char multiplex[] =
        "{group: 1, mixing: none, position: none, mlp_transform: norm_conv}";
    run_pass(model, "weight_multiplex", multiplex);
    run_pass(model, "remove_block", "{block: ffn, drop: [1]}");
    assert_null(graph_find(model->graph, "encoder", 1, ROLE_LOCAL_CONV));
    assert_null(graph_find(model->graph, "encoder", 1, ROLE_LOCAL_NORM));
    assert_non_null(graph_find(model->graph, "encoder", 2, ROLE_LOCAL_NORM));
    run_pass(model, "add_exits", "{}");
    run_pass(other, "weight_multiplex", multiplex);
    run_pass(other, "remove_layer", "{drop: [1]}");
    run_pass(model, "remove_block", "{block: attention, drop: [1]}");
    assert_true(difference(model, other, NULL) == 0);
    model_destroy(model);
    model_destroy(other);
}

/* ---- which ---- */

static void expect_layers(const Model *model, const char *key, const int *want,
                          int count) {
    const Tree *list = tree_get(last_record(model), key);
    assert_int_equal(list->count, count);
    const Tree *item = list->first;
    for (int i = 0; i < count; i++, item = item->next)
        assert_int_equal(item->integer, want[i]);
}

static void test_counts(void **state) {
    (void)state;
    const Family *f = &FAMILIES[0];
    Model *model = draw_model(f, 5);
    run_pass(model, "remove_block", "{block: ffn, drop_count: 1}");
    expect_layers(model, "layers", (int[]){1}, 1);
    run_pass(model, "remove_block", "{block: attention, drop_count: 3}");
    expect_layers(model, "layers", (int[]){0, 1, 2}, 3);
    assert_int_equal(graph_layer_count(model->graph, "encoder"), 2);
    model_destroy(model);
    model = draw_model(f, 5);
    run_pass(model, "remove_layer", "{drop_count: 1}");
    expect_layers(model, "removed", (int[]){1}, 1);
    model_destroy(model);
}

/* Random ones: the same by seed, and every one sooner or later. */
static void test_random_order(void **state) {
    (void)state;
    static const char recipe[] = "version: 1\nseed: %d\npasses:\n"
                                 "  - remove_layer: {drop_count: 1, order: random}\n";
    bool seen[LAYERS] = {false};
    for (int seed = 0; seed < 24; seed++) {
        int64_t first = -1;
        for (int again = 0; again < 2; again++) {
            char yaml[256];
            Model *model = draw_model(&FAMILIES[0], 5);
            Diag *diag = diag_create();
            snprintf(yaml, sizeof yaml, recipe, seed);
            assert_ok(test_run_recipe(model, "recipe", yaml, false, 1, diag), diag);
            const int64_t layer = tree_get(last_record(model), "removed")->first->integer;
            if (again) assert_int_equal(layer, first);
            first = layer;
            seen[layer] = true;
            diag_destroy(diag);
            model_destroy(model);
        }
    }
    for (int l = 0; l < LAYERS; l++) assert_true(seen[l]);
}

/* ---- errors ---- */

static void test_errors(void **state) {
    (void)state;
    Model *model = draw_model(&FAMILIES[0], 5);
    const char *const pass = "remove_block";
    expect_pass_fails(model, pass, "{block: cross_attention, drop: [0]}", STATUS_MODEL,
                      "drop: encoder.0 has no block cross_attention");
    expect_pass_fails(model, pass, "{block: ffn, drop: [3]}", STATUS_MODEL,
                      "expected layers from 0 to 2");
    expect_pass_fails(model, pass, "{block: ffn, drop_count: 4}", STATUS_MODEL,
                      "at most the 3 layers");
    expect_pass_fails(model, pass, "{block: ffn, drop: [0], stack: decoder}",
                      STATUS_MODEL, "no layers in stack \"decoder\"");
    expect_pass_fails(model, pass, "{drop: [0]}", STATUS_RECIPE, "block");
    expect_pass_fails(model, pass, "{block: ffn}", STATUS_RECIPE, "found none");
    expect_pass_fails(model, pass, "{block: ffn, drop: [0], drop_count: 1}",
                      STATUS_RECIPE, "found both");
    expect_pass_fails(model, pass, "{block: ffn, drop: [1, 1]}", STATUS_RECIPE, "twice");
    expect_pass_fails(model, pass, "{block: ffn, drop: [0], order: random}",
                      STATUS_RECIPE, "order: expected drop_count");
    expect_pass_fails(model, "remove_layer", "{drop: [0], order: random}", STATUS_RECIPE,
                      "order: expected count, drop_count or a budget");
    expect_pass_fails(model, "remove_layer", "{drop_count: 3}", STATUS_MODEL,
                      "expected at least one of the 3 layers");
    expect_pass_fails(model, "remove_attention", "{}", STATUS_MODEL,
                      "no additive attention");
    model_destroy(model);
}

/* Neither the only layer goes, nor the last block of it. */
static void test_only_layer(void **state) {
    (void)state;
    Model *model = configured_vit(1, 3);
    expect_pass_fails(model, "remove_layer", "{drop: [0]}", STATUS_MODEL,
                      "at least one layer to remain");
    run_pass(model, "remove_block", "{block: attention, drop: [0]}");
    expect_pass_fails(model, "remove_block", "{block: ffn, drop: [0]}", STATUS_MODEL,
                      "at least one block to remain");
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_additive_attention),
        cmocka_unit_test(test_mean_model),
        cmocka_unit_test(test_in_turn),
        cmocka_unit_test(test_heads_are_the_block),
        cmocka_unit_test(test_neighbours),
        cmocka_unit_test(test_transforms),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_random_order),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_only_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
