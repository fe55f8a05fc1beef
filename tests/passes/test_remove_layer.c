/* What removing layers must do: an identity layer leaves no trace, the others stay what
 * they were, shared weights live as long as they have a user, and the lineage is right.
 */
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VALUES = 256 };

/* Runs the pass, which must fail with a message that holds `part`. */
static void expect_failure(Model *model, const char *options, const char *part) {
    expect_pass_fails(model, "remove_layer", options, STATUS_MODEL, part);
}

/* ---- numbers ---- */

static void zero_storage(Graph *graph, const char *name) {
    Storage *storage = graph_storage(graph, name);
    Diag *diag = diag_create();
    void *data = NULL;
    assert_non_null(storage);
    assert_ok(tensor_writable(&storage->tensor, &data, diag), diag);
    memset(data, 0, tensor_bytes(&storage->tensor));
    diag_destroy(diag);
}

/* Zeroes what makes a pre-norm layer the identity. */
static void make_identity(Graph *graph, int layer) {
    static const char *const parts[] = {"attention.output.dense.weight",
                                        "attention.output.dense.bias",
                                        "output.dense.weight", "output.dense.bias"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[128];
        snprintf(name, sizeof name, "vit.encoder.layer.%d.%s", layer, parts[i]);
        zero_storage(graph, name);
    }
}

static void expect_same_outputs(Model *a, Model *b, bool exact) {
    static const char *const names[] = {"logits", "last_hidden_state", "pooler_output"};
    for (size_t o = 0; o < sizeof names / sizeof *names; o++) {
        double x[VALUES], y[VALUES];
        if (!graph_output(a->graph, names[o])) continue;
        const int64_t count = configured_run(a, names[o], 0, x, VALUES);
        assert_int_equal(configured_run(b, names[o], 0, y, VALUES), count);
        if (exact) assert_memory_equal(x, y, (size_t)count * sizeof *x);
        rounding_compare(names[o], y, x, count, PRECISION_F64,
                         configured_terms(a, names[o]), 0);
    }
}

/* Removes the layers whose bit is set, made the identity before. */
static void check_identity(int layers, unsigned removed) {
    Model *model = configured_vit(layers, 11), *before;
    char options[128];
    int length = snprintf(options, sizeof options, "{drop: [");
    for (int l = 0, some = 0; l < layers; l++) {
        if (!(removed >> l & 1)) continue;
        make_identity(model->graph, l);
        length += snprintf(options + length, sizeof options - (size_t)length, "%s%d",
                           some++ ? ", " : "", l);
    }
    snprintf(options + length, sizeof options - (size_t)length, "]}");
    before = model_copy(model);
    run_pass(model, "remove_layer", options);
    expect_same_outputs(before, model, false);
    model_destroy(before);
    model_destroy(model);
}

static void test_identity_layers(void **state) {
    (void)state;
    for (unsigned removed = 1; removed < 15; removed++) check_identity(4, removed);
}

/* Gives `to` the weights of the layers `kept` of `from`, and everything else. */
static void copy_weights(Graph *to, const Graph *from, const int *kept) {
    static const char mark[] = "encoder.layer.";
    for (int i = 0; i < to->storage_count; i++) {
        Storage *storage = to->storages[i];
        const char *at = strstr(storage->name, mark);
        char name[256];
        snprintf(name, sizeof name, "%s", storage->name);
        if (at) {
            const char *digit = at + sizeof mark - 1;
            snprintf(name, sizeof name, "%.*s%d%s", (int)(digit - storage->name),
                     storage->name, kept[*digit - '0'], digit + 1);
        }
        const Storage *source = graph_storage(from, name);
        assert_non_null(source);
        tensor_release(&storage->tensor);
        storage->tensor = tensor_retain(&source->tensor);
    }
}

/* Removing layers gives what the shallower architecture computes with their weights. */
static void check_shallow(Model *(*build)(int, uint64_t), const char *options, int left,
                          const int *kept) {
    Model *model = build(5, 3), *shallow = build(left, 4);
    copy_weights(shallow->graph, model->graph, kept);
    run_pass(model, "remove_layer", options);
    expect_same_outputs(shallow, model, true);
    assert_int_equal(graph_parameter_count(model->graph),
                     graph_parameter_count(shallow->graph));
    assert_int_equal(model->graph->storage_count, shallow->graph->storage_count);
    assert_int_equal(model->graph->node_count, shallow->graph->node_count);
    assert_int_equal(graph_layer_count(model->graph, "encoder"), left);
    model_destroy(shallow);
    model_destroy(model);
}

static void test_shallow_architecture(void **state) {
    (void)state;
    Model *(*const builds[])(int, uint64_t) = {configured_vit, configured_bert};
    for (int i = 0; i < 2; i++) {
        check_shallow(builds[i], "{keep: [0, 2, 4]}", 3, (int[]){0, 2, 4});
        check_shallow(builds[i], "{drop: [0, 1]}", 3, (int[]){2, 3, 4});
        check_shallow(builds[i], "{drop: [4]}", 4, (int[]){0, 1, 2, 3});
        check_shallow(builds[i], "{count: 1}", 1, (int[]){0});
        check_shallow(builds[i], "{count: 2}", 2, (int[]){0, 4});
    }
}

/* ---- lineage ---- */

/* Lineage of a stack as text: "0,2,4"; "" when there is none. */
static void lineage_text(const Model *model, char out[128]) {
    const Tree *list = tree_get(tree_get(model->provenance, "layers"), "encoder");
    size_t length = 0;
    out[0] = 0;
    for (const Tree *item = list ? list->first : NULL; item; item = item->next)
        length += (size_t)snprintf(out + length, 128 - length, "%s%d", length ? "," : "",
                                   (int)item->integer);
}

static void expect_lineage(const Model *model, const char *want) {
    char got[128];
    lineage_text(model, got);
    assert_string_equal(got, want);
}

static void test_lineage(void **state) {
    (void)state;
    Model *model = configured_vit(8, 1);
    expect_lineage(model, "");
    run_pass(model, "remove_layer", "{drop: [1, 6]}");
    expect_lineage(model, "0,2,3,4,5,7");
    run_pass(model, "remove_layer", "{keep: [1, 2, 5]}");
    expect_lineage(model, "2,3,7");
    run_pass(model, "remove_layer", "{count: 2}");
    expect_lineage(model, "2,7");
    assert_non_null(
        graph_storage(model->graph, "vit.encoder.layer.7.layernorm_before.weight"));
    assert_null(
        graph_storage(model->graph, "vit.encoder.layer.3.layernorm_before.weight"));
    const Tree *steps = tree_get(model->provenance, "steps");
    const Tree *record = tree_get(steps->last, "record");
    assert_int_equal(tree_get(record, "depth")->integer, 2);
    assert_int_equal(tree_get(record, "removed")->first->integer, 1);
    assert_int_equal(tree_get(record, "original_layers")->last->integer, 7);
    model_destroy(model);
}

/* A provenance that does not fit the model is no ground to stand on. */
static void test_bad_lineage(void **state) {
    (void)state;
    static const char *const bad[] = {"0,1", "0,2,1,3", "0,0,1,2"};
    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
        Model *model = configured_vit(4, 1);
        Diag *diag = diag_create();
        Tree *list = tree_new(model->arena, TREE_LIST, LOC_NONE);
        for (const char *at = bad[b]; *at; at += at[1] ? 2 : 1) {
            Tree *item = tree_new(model->arena, TREE_INT, LOC_NONE);
            item->integer = *at - '0';
            tree_append(model->arena, list, NULL, LOC_NONE, item);
        }
        assert_ok(tree_set(model->arena, model->provenance, "layers.encoder", list, diag),
                  diag);
        expect_failure(model, "{keep: [0]}", "provenance does not fit");
        diag_destroy(diag);
        model_destroy(model);
    }
}

static void test_named_tables(void **state) {
    (void)state;
    static const struct {
        int depth, count;
        const char *want;
    } tables[] = {
        {12, 1, "0"},          {12, 2, "0,6"},
        {12, 3, "0,6,11"},     {12, 4, "0,4,8,11"},
        {12, 5, "0,3,6,8,11"}, {12, 6, "0,2,4,7,9,11"},
        {16, 4, "0,5,10,15"},  {12, 9, "0,1,2,4,5,7,9,10,11"},
        {24, 2, "0,23"},       {24, 6, "0,5,9,14,18,23"},
    };
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        Model *model = configured_vit(tables[t].depth, 1);
        char options[32];
        snprintf(options, sizeof options, "{count: %d}", tables[t].count);
        run_pass(model, "remove_layer", options);
        expect_lineage(model, tables[t].want);
        model_destroy(model);
    }
}

/* ---- with shared weights ---- */

#define QUERY(l) "vit.encoder.layer." l ".attention.attention.query.weight"

static void test_shared_storages(void **state) {
    (void)state;
    Model *model = toy_vit(2);
    run_pass(model, "weight_multiplex", "{group: 2}");
    run_pass(model, "remove_layer", "{drop: [0]}"); /* named the group's weights */
    assert_non_null(graph_storage(model->graph, QUERY("0")));
    assert_null(
        graph_storage(model->graph, "vit.encoder.layer.0.layernorm_before.weight"));
    assert_null(graph_storage(model->graph, "encoder.layer.0.mix_before"));
    const Node *q = graph_find(model->graph, "encoder", 0, ROLE_Q);
    assert_string_equal(q->in[1]->storage->name, QUERY("0"));
    run_pass(model, "remove_layer", "{drop: [0]}"); /* the group's other layer */
    assert_null(graph_storage(model->graph, QUERY("0")));
    assert_non_null(graph_storage(model->graph, QUERY("2")));
    assert_int_equal(
        graph_use_count(model->graph,
                        graph_find(model->graph, "encoder", 0, ROLE_Q)->in[1]),
        2);
    expect_lineage(model, "2,3");
    model_destroy(model);
}

/* Layers that were removed from a group with identity mixing leave the others' values. */
static void test_multiplex_after(void **state) {
    (void)state;
    Model *model = toy_vit(2);
    run_pass(model, "remove_layer", "{keep: [1, 3]}");
    run_pass(model, "weight_multiplex", "{group: 2, init: first}");
    const Node *q0 = graph_find(model->graph, "encoder", 0, ROLE_Q);
    const Node *q1 = graph_find(model->graph, "encoder", 1, ROLE_Q);
    assert_ptr_equal(q0->in[1], q1->in[1]);
    assert_string_equal(q0->in[1]->storage->name, QUERY("1"));
    assert_null(graph_storage(model->graph, QUERY("3")));
    double values[VALUES];
    const int64_t count = configured_run(model, "logits", 0, values, VALUES);
    for (int64_t i = 0; i < count; i++) assert_true(isfinite(values[i]));
    expect_lineage(model, "1,3");
    model_destroy(model);
}

/* ---- layers that are no links of a chain ---- */

static void test_no_single_output(void **state) {
    (void)state;
    Model *model = configured_vit(4, 1);
    graph_set_output(model->graph, "peek",
                     graph_find(model->graph, "encoder", 1, ROLE_FFN_ACT));
    expect_failure(model, "{drop: [1]}", "expected one output, found");
    model_destroy(model);
}

static void test_no_single_input(void **state) {
    (void)state;
    Model *model = configured_vit(4, 1);
    Node *far = graph_find(model->graph, "encoder", 0, ROLE_RESIDUAL1);
    node_set_operand(model->graph, graph_find(model->graph, "encoder", 2, ROLE_FFN_IN),
                     "x", far);
    expect_failure(model, "{drop: [2]}",
                   "expected one input, found residual2 (add) and residual1 (add)");
    model_destroy(model);
}

/* A layer that is not there: its nodes stand somewhere else. */
static void test_gap(void **state) {
    (void)state;
    Model *model = configured_vit(4, 1);
    for (Node *node = model->graph->first; node; node = node->next)
        if (node->stack && strcmp(node->stack, "encoder") == 0 && node->layer == 2)
            node->layer = 1;
    expect_failure(model, "{drop: [2]}", "it has no input");
    model_destroy(model);
}

/* A layer that hands on something else than what became of its input. */
static void test_no_link(void **state) {
    (void)state;
    Model *model = configured_bert(2, 1);
    Graph *graph = model->graph;
    Node *last = graph_output(graph, "last_hidden_state");
    Node *words = graph_find(graph, NULL, -1, ROLE_EMBED);
    Node *unused = graph_insert(graph, NULL, op_find(graph->ops, "dropout"), &last, 1);
    Diag *diag = diag_create();
    assert_ok(node_infer(unused, diag), diag);
    node_place(graph, words, "encoder", 2, ROLE_NONE);
    node_place(graph, unused, "encoder", 2, ROLE_NONE);
    expect_failure(model, "{drop: [2]}", "does not depend on its input norm2");
    diag_destroy(diag);
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identity_layers),
        cmocka_unit_test(test_shallow_architecture),
        cmocka_unit_test(test_lineage),
        cmocka_unit_test(test_bad_lineage),
        cmocka_unit_test(test_named_tables),
        cmocka_unit_test(test_shared_storages),
        cmocka_unit_test(test_multiplex_after),
        cmocka_unit_test(test_no_single_output),
        cmocka_unit_test(test_no_single_input),
        cmocka_unit_test(test_gap),
        cmocka_unit_test(test_no_link),
    };
    return cmocka_run_group_tests_name("removal of layers", tests, NULL, NULL);
}
