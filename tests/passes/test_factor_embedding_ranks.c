/* Which ranks and models factor_embedding takes, and what it hands on: break-even, plans,
 * lineage, names, other passes, refusals. */
#include "io/files/yaml.h"
#include "io/formats/hf.h"
#include "ir/storage.h"
#include "passes/nodes.h"
#include "tests/passes/factor_fixture.h"

/* ---- ranks ---- */

/* A model of shapes alone with so many words, width 768. */
static Model *shapes(int words) {
    char yaml[512];
    snprintf(yaml, sizeof yaml,
             "{model_type: bert, architectures: [BertModel], hidden_size: 768,\n"
             " num_hidden_layers: 1, num_attention_heads: 12, intermediate_size: 3072,\n"
             " vocab_size: %d, max_position_embeddings: 512}\n",
             words);
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Tree *config = NULL;
    Model *model = NULL;
    assert_ok(yaml_parse(&config, arena, "config", yaml, strlen(yaml), diag), diag);
    assert_ok(hf_build(&model, config, ops_table(), diag), diag);
    diag_destroy(diag);
    arena_destroy(arena);
    return model;
}

/* Runs or plans the pass, which gives `want` and says `part`. Frees the model. */
static void expect(Model *model, const char *options, bool plan, Status want,
                   const char *part) {
    Diag *diag = diag_create();
    const Status status = test_run_pass(model, "factor_embedding", options, plan, diag);
    char *text = diag_text(diag);
    if (status != want || (part ? !strstr(text, part) : *text))
        fail_msg("%s: expected \"%s\", found exit code %d and:\n%s", options,
                 part ? part : "", status_exit_code(status), text);
    free(text);
    model_destroy(model);
    diag_destroy(diag);
}

static void test_break_even(void **state) {
    (void)state;
    expect(shapes(30522), "{rank: 749}", true, STATUS_OK, NULL);
    expect(shapes(30522), "{rank: 750}", true, STATUS_MODEL,
           "break-even rank 749.15 of an embedding of 30522 x 768: the factors have "
           "23467500 parameters, the table 23440896");
    expect(shapes(30522), "{rank: 750}", true, STATUS_MODEL,
           "choose a rank of at most 749, or add `allow_growth: true`");
    expect(shapes(30522), "{rank: 768, allow_growth: true}", true, STATUS_OK,
           "warning: passes[0].factor_embedding.rank: rank 768 is above");
    expect(shapes(30522), "{rank: 769, allow_growth: true}", true, STATUS_MODEL,
           "expected at most 768");
    expect(shapes(500), "{rank: 501, allow_growth: true}", true, STATUS_MODEL,
           "expected at most 500");
    expect(shapes(768), "{rank: 384}", true, STATUS_OK, NULL); /* as many parameters */
    expect(shapes(768), "{rank: 385}", true, STATUS_MODEL, "break-even rank 384.00");
    expect(classifier(), "{rank: 8, allow_growth: true}", false, STATUS_OK, NULL);
    expect(classifier(), "{energy: 1, allow_growth: true}", false, STATUS_OK,
           "warning: passes[0].factor_embedding.energy: rank 8 is above");
    expect(classifier(), "{energy: 1}", false, STATUS_MODEL, "rank 8 is above");
}

static void test_plan(void **state) {
    (void)state;
    Model *model = shapes(30522);
    Diag *diag = diag_create();
    assert_ok(test_run_pass(model, "factor_embedding", "{energy: 0.9}", true, diag),
              diag);
    const char *name = "embeddings.word_embeddings_projection.weight";
    assert_int_equal(storage(model, name)->tensor.dim[1], 749);
    assert_ok(test_run_pass(model, "factor_embedding", "{rank: 128}", true, diag), diag);
    assert_int_equal(storage(model, name)->tensor.dim[1], 128);
    model_destroy(model);
    diag_destroy(diag);
    expect(shapes(30522), "{energy: 0.9}", true, STATUS_OK,
           "are upper bounds, and the run is refused where the energy wants a larger");
    expect(shapes(1), "{energy: 0.9}", true, STATUS_MODEL, "break-even rank 1.00");
}

/* ---- lineage, names ---- */

static void test_lineage(void **state) {
    (void)state;
    static const IndexRange rows[] = {{0, 9}, {20, 69}}, columns[] = {{1, 8}};
    Model *model = classifier();
    Storage *table = storage(model, TABLE);
    table->kept[0] = (Lineage){rows, 2};
    table->kept[1] = (Lineage){columns, 1};
    for (int rank = 6; rank > 2; rank -= 3) {
        factor_to(model, rank);
        assert_int_equal(lineage_index(&table->kept[0], 10), 20);
        assert_int_equal(table->kept[1].count, 0);
        assert_int_equal(storage(model, PROJECTION)->kept[0].ranges[0].first, 1);
        assert_int_equal(storage(model, PROJECTION)->kept[1].count, 0);
    }
    model_destroy(model);
}

static void test_fresh_name(void **state) {
    (void)state;
    Model *model = classifier();
    storage(model, "bert.embeddings.token_type_embeddings.weight")->name = PROJECTION;
    factor(model, "{rank: 3}");
    assert_int_equal(storage(model, PROJECTION ".2")->tensor.dim[1], 3);
    model_destroy(model);
}

/* ---- other passes ---- */

static void test_with_others(void **state) {
    (void)state;
    Model *model = classifier();
    Diag *diag = diag_create();
    double values[VALUES];
    assert_ok(test_run_recipe(model, "test",
                              "version: 1\npasses:\n"
                              "  - factor_embedding: {rank: 5}\n"
                              "  - fold_token_type\n"
                              "  - importance: {score: magnitude}\n"
                              "  - prune_heads: {keep: 1}\n"
                              "  - prune_ffn: {keep: 8}\n"
                              "  - factor_embedding: {rank: 2}\n"
                              "  - remove_layer: {count: 1}\n",
                              false, 1, diag),
              diag);
    assert_rank(model, 2);
    assert_null(graph_find(model->graph, NULL, -1, ROLE_TOKEN_TYPE));
    assert_int_equal(configured_run(model, "logits", 0, values, VALUES), 6);
    model_destroy(model);
    diag_destroy(diag);
}

/* ---- refusals ---- */

static void refused(Model *model, const char *part) {
    expect(model, "{rank: 3}", false, STATUS_MODEL, part);
}

static Node *embed(const Model *model) {
    return graph_find(model->graph, NULL, -1, ROLE_EMBED);
}

static void test_other_models(void **state) {
    (void)state;
    Model *model = classifier();
    embed(model)->role = ROLE_NONE;
    refused(model, "expected a model with a word embedding");
    refused(configured_vit(2, 1), "embeds by op linear");
    model = classifier();
    Node *types = graph_find(model->graph, NULL, -1, ROLE_TOKEN_TYPE)->in[1];
    types->role = ROLE_EMBED;
    refused(model, "expected one word embedding, found \"" TABLE "\" and "
                   "\"bert.embeddings.token_type_embeddings.weight\"");
}

static void test_other_users(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = classifier();
    graph_set_output(model->graph, "table", embed(model)->in[1]);
    refused(model, "it is output \"table\"");
    model = classifier();
    Node *sum = NULL, *table = embed(model)->in[1];
    assert_ok(node_add(&sum, model->graph, NULL, &op_scale, &table, 1, diag, "by=2"),
              diag);
    node_place(model->graph, sum, "encoder", 1, ROLE_FFN_ACT);
    graph_set_output(model->graph, "twice", sum);
    refused(model, "it is read by op scale (encoder.1, role ffn_act), not only by "
                   "embeddings and tied heads");
    diag_destroy(diag);
}

/* Factors that fit where their product does not. */
static void test_product_too_large(void **state) {
    (void)state;
    Model *model = shapes(500);
    Diag *diag = diag_create();
    assert_ok(test_run_pass(model, "factor_embedding", "{rank: 1}", true, diag), diag);
    Node *table = embed(model)->in[1];
    table->type.dim[0] = table->storage->tensor.dim[0] = (int64_t)1 << 58;
    expect(model, "{rank: 1}", true, STATUS_MODEL, "that fits in memory, found 28823");
    diag_destroy(diag);
}

static void test_ranks_refused(void **state) {
    (void)state;
    Model *model = classifier();
    factor(model, "{rank: 3}");
    expect(model, "{rank: 4}", false, STATUS_MODEL,
           "expected at most 3 for an embedding of 60 x 8 that is factored already");
    model = classifier();
    Diag *diag = diag_create();
    void *data = NULL;
    assert_ok(tensor_writable(&storage(model, TABLE)->tensor, &data, diag), diag);
    ((float *)data)[WIDTH * 7 + 2] = NAN;
    refused(model, "in row 7, column 2 of the matrix");
    diag_destroy(diag);
    expect(classifier(), "{rank: 3, energy: 0.5}", false, STATUS_RECIPE, "found several");
    expect(classifier(), "{}", false, STATUS_RECIPE, "found none");
    expect(classifier(), "{rank: 0}", false, STATUS_RECIPE, "between 1 and");
    expect(classifier(), "{energy: 1.1}", false, STATUS_RECIPE, "energy");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_break_even),    cmocka_unit_test(test_plan),
        cmocka_unit_test(test_lineage),       cmocka_unit_test(test_fresh_name),
        cmocka_unit_test(test_with_others),   cmocka_unit_test(test_other_models),
        cmocka_unit_test(test_other_users),   cmocka_unit_test(test_product_too_large),
        cmocka_unit_test(test_ranks_refused),
    };
    return cmocka_run_group_tests_name("ranks of factored embeddings", tests, NULL, NULL);
}
