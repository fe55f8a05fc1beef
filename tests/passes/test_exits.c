/* Early exits: what adding them leaves alone, training in two stages, exits in models
 * that other passes change, and the stored rule for leaving. */
#include "exec/ops.h"
#include "ir/rewrite.h"
#include "passes/exits/exits.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 4, VALUES = 256 };

static const char MASKED_BERT[] =
    "{model_type: bert, architectures: [BertForMaskedLM], hidden_size: 8,\n"
    " num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 16,\n"
    " hidden_act: gelu, vocab_size: 12, max_position_embeddings: 6,\n"
    " type_vocab_size: 2, initializer_range: 0.3}\n";

/* Runs a pass that must fail with STATUS_MODEL and say `part`. */
static void expect_failure(Model *model, const char *pass, const char *options,
                           const char *part) {
    expect_pass_fails(model, pass, options, STATUS_MODEL, part);
}

static Model *exit_bert(const char *options) {
    Model *model = configured_bert(DEPTH, 5);
    run_pass(model, "add_exits", options);
    return model;
}

/* A copy of a model's graph and its exits. */
typedef struct Trial {
    Arena *arena;
    PassContext ctx;
    Diag *diag;
    Graph *graph;
    Exits exits;
} Trial;

static Trial trial_open(const Model *model) {
    Trial t = {.arena = arena_create(), .diag = diag_create()};
    t.ctx = (PassContext){.ops = ops_table(), .arena = t.arena, .source.key = "test"};
    t.graph = graph_copy(t.arena, model->graph);
    assert_ok(exits_find(&t.exits, t.arena, &t.ctx, t.graph, t.diag), t.diag);
    return t;
}

static void trial_close(Trial *t) {
    graph_release(t->graph);
    diag_destroy(t->diag);
    arena_destroy(t->arena);
}

/* ---- adding ---- */

static bool same_weights(const Graph *a, const Graph *b, const char *of_a,
                         const char *of_b) {
    const Storage *x = graph_storage(a, of_a), *y = graph_storage(b, of_b);
    if (!x || !y) fail_msg("no storage %s or %s", of_a, of_b);
    return tensor_bytes(&x->tensor) == tensor_bytes(&y->tensor) &&
           memcmp(tensor_data(&x->tensor), tensor_data(&y->tensor),
                  tensor_bytes(&x->tensor)) == 0;
}

static void expect_same_output(Model *a, Model *b, const char *of_a, const char *of_b,
                               double tolerance) {
    double x[VALUES], y[VALUES];
    const int64_t count = configured_run(a, of_a, 0, x, VALUES);
    assert_int_equal(configured_run(b, of_b, 0, y, VALUES), count);
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(x[i] - y[i]) <= tolerance))
            fail_msg("%s[%d]: %.17g, %s: %.17g", of_a, (int)i, x[i], of_b, y[i]);
}

/* An exit with the classifier's own form and weights, in a model whose last layer does
 * nothing, predicts what the model predicts. */
static void test_copied_exit_predicts_the_same(void **state) {
    (void)state;
    Model *model = configured_bert(DEPTH, 9), *vit = configured_vit(2, 9);
    run_pass(model, "add_exits", "{layers: [2], head: pooler, init: copy}");
    assert_true(same_weights(model->graph, model->graph, "exits.2.classifier.weight",
                             "classifier.weight"));
    Model *before = model_copy(model);
    run_pass(model, "remove_layer", "{keep: [0, 1]}");
    expect_same_output(model, before, "logits", "exit.2", 0);
    run_pass(vit, "add_exits", "{layers: [1], head: linear, init: copy}");
    Model *wide = model_copy(vit);
    run_pass(vit, "remove_layer", "{keep: [0]}");
    expect_same_output(vit, wide, "logits", "exit.1", 0);
    assert_null(graph_output(vit->graph, "exit.1"));
    model_destroy(wide);
    model_destroy(vit);
    model_destroy(before);
    model_destroy(model);
}

/* The mean over a sentence leaves its padding out. */
static void test_mean_of_sentences(void **state) {
    (void)state;
    Model *model = exit_bert("{layers: [1], token: mean}");
    const Node *pool = graph_find(model->graph, "exits", 0, ROLE_POOL);
    assert_string_equal(pool->op->name, "mean_tokens");
    assert_ptr_equal(pool->in[1], graph_find_input(model->graph, "attention_mask"));
    model_destroy(model);
    model = configured_bert(2, 1);
    Node *mask = graph_find_input(model->graph, "attention_mask");
    mask->type.dim[1] = 3;
    expect_failure(model, "add_exits", "{token: mean}", "an input attention_mask");
    model_destroy(model);
}

static void test_misfits(void **state) {
    (void)state;
    static const char bare[] = "{model_type: bert, architectures: [BertModel],\n"
                               " hidden_size: 8, num_hidden_layers: 2, vocab_size: 12,\n"
                               " num_attention_heads: 2, intermediate_size: 16,\n"
                               " max_position_embeddings: 6}\n";
    Model *tokens = configured_model(MASKED_BERT, 1), *none = configured_model(bare, 1);
    Model *shallow = configured_bert(1, 1), *bert = configured_bert(2, 1);
    expect_failure(tokens, "add_exits", "{}", "exits need a classifier: the model predi");
    expect_failure(none, "add_exits", "{}", "exits need a classifier: the model has no");
    expect_failure(shallow, "add_exits", "{}", "exits need at least 2 layers");
    expect_failure(bert, "finetune", "{data: toy, exits: early}", "no early exits");
    expect_failure(bert, "calibrate_exits", "{data: toy, flops: 0.5}", "no early exits");
    model_destroy(bert);
    model_destroy(shallow);
    model_destroy(none);
    model_destroy(tokens);
}

/* Outputs that call themselves exits and are none. */
static void test_false_exits(void **state) {
    (void)state;
    static const char *const names[] = {"exit.0", "exit.4", "exit.01", "exit.x",
                                        "exit.2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Model *model = exit_bert("{layers: [1]}");
        graph_set_output(model->graph, names[i], graph_output(model->graph, "exit.1"));
        expect_failure(model, "calibrate_exits", "{data: toy, flops: 0.5}", "is no exit");
        model_destroy(model);
    }
    Model *model = exit_bert("{layers: [1]}");
    Node *pool = graph_find(model->graph, "exits", 0, ROLE_POOL);
    pool->in[0] = graph_find(model->graph, "encoder", 0, ROLE_NORM1);
    expect_failure(model, "calibrate_exits", "{data: toy, flops: 0.5}",
                   "to read its layer's output alone");
    model_destroy(model);
}

/* ---- training in stages ---- */

static void expect_trained(const Model *a, const Model *b, bool trunk, bool exits) {
    for (int i = 0; i < a->graph->storage_count; i++) {
        const char *name = a->graph->storages[i]->name;
        const bool of_exit = strncmp(name, "exits.", 6) == 0;
        if (strstr(name, "key.bias")) continue; /* its gradient is 0 but for rounding */
        const bool same = same_weights(a->graph, b->graph, name, name);
        if (same == (of_exit ? exits : trunk))
            fail_msg("%s: expected %s weights", name, same ? "other" : "the same");
    }
}

static void check_stage(const char *options, bool trunk, bool exits) {
    Model *model = toy_vit(2);
    run_pass(model, "add_exits", "{}");
    Model *before = model_copy(model);
    run_pass(model, "finetune", options);
    expect_trained(before, model, trunk, exits);
    model_destroy(before);
    model_destroy(model);
}

static void test_stages(void **state) {
    (void)state;
    check_stage("{data: toy, exits: last, batch_size: 20}", true, false);
    check_stage("{data: toy, exits: early, train: exits, batch_size: 20}", false, true);
    check_stage("{data: toy, exits: early, freeze: [vit.*, classifier.*]}", false, true);
    check_stage("{data: toy, batch_size: 20}", true, true);
    check_stage("{data: toy, gradient: sum, batch_size: 20}", true, true);
}

/* ---- other passes ---- */

/* Layers that stay keep their exits; the last one's goes. */
static void test_removed_layers(void **state) {
    (void)state;
    Model *(*const builds[])(int, uint64_t) = {configured_vit, configured_bert};
    for (int i = 0; i < 2; i++) {
        Model *model = builds[i](DEPTH, 6);
        run_pass(model, "add_exits", "{}");
        Model *front = model_copy(model), *back = model_copy(model);
        run_pass(front, "remove_layer", "{keep: [0, 1, 3]}");
        expect_same_output(front, model, "exit.1", "exit.1", 0);
        expect_same_output(front, model, "exit.2", "exit.2", 0);
        assert_null(graph_output(front->graph, "exit.3"));
        assert_null(graph_storage(front->graph, "exits.3.classifier.weight"));
        run_pass(back, "remove_layer", "{keep: [2, 3]}");
        Trial t = trial_open(back);
        assert_int_equal(t.exits.count, 2);
        assert_string_equal(t.exits.items[0].output, "exit.1");
        assert_string_equal(t.exits.items[0].logits->in[1]->storage->name,
                            "exits.3.classifier.weight");
        trial_close(&t);
        run_pass(front, "remove_layer", "{count: 1}");
        assert_null(graph_output(front->graph, "exit.1"));
        model_destroy(back);
        model_destroy(front);
        model_destroy(model);
    }
}

static void expect_exits(const Model *model, int count) {
    Trial t = trial_open(model);
    assert_int_equal(t.exits.count, count);
    trial_close(&t);
}

static void test_other_passes(void **state) {
    (void)state;
    Model *bert = exit_bert("{}");
    Model *before = model_copy(bert);
    run_pass(bert, "fold_token_type", "{}");
    for (int k = 1; k < DEPTH; k++) {
        char name[24];
        snprintf(name, sizeof name, "exit.%d", k);
        /* folded weights are rounded to float */
        const double terms = configured_terms(bert, name);
        expect_same_output(bert, before, name, name,
                           rounding_tolerance(PRECISION_F32, terms, 1));
    }
    run_pass(bert, "prune_heads", "{keep: 1, score: magnitude}");
    run_pass(bert, "prune_ffn", "{keep: 5, score: magnitude}");
    run_pass(bert, "weight_multiplex", "{group: 2, mlp_transform: none, position: none}");
    expect_exits(bert, DEPTH);
    model_destroy(before);
    model_destroy(bert);
    Model *vit = configured_vit(DEPTH, 6);
    run_pass(vit, "add_exits", "{}");
    run_pass(vit, "weight_multiplex", "{group: 2, mlp_transform: none, pooling: mean}");
    expect_exits(vit, DEPTH);
    const Node *logits = graph_output(vit->graph, "logits");
    assert_string_equal(logits->stack, "head");
    for (const Node *node = vit->graph->first; node; node = node->next)
        assert_true(strcmp(node->op->name, "select_token") != 0);
    model_destroy(vit);
}

/* Importance is over all exits unless outputs are named. */
static void test_importance_of_all_exits(void **state) {
    (void)state;
    static const char *const options[] = {
        "{data: toy}", "{data: toy, outputs: [exit.2, exit.3, logits]}",
        "{data: toy, outputs: [logits]}"};
    Text scores[3] = {0};
    for (int i = 0; i < 3; i++) {
        Model *model = toy_vit(2);
        run_pass(model, "add_exits", "{layers: [2, 3]}");
        run_pass(model, "importance", options[i]);
        tree_print_json(&scores[i], tree_get(model->provenance, "importance"), 0);
        model_destroy(model);
    }
    assert_string_equal(scores[0].data, scores[1].data);
    assert_string_not_equal(scores[0].data, scores[2].data);
    for (int i = 0; i < 3; i++) text_free(&scores[i]);
}

/* ---- the stored rule ---- */

static void test_rule(void **state) {
    (void)state;
    Model *model = exit_bert("{layers: [1, 3]}");
    Trial t = trial_open(model);
    const double thresholds[3] = {0.25, 0, 0};
    ExitRule rule = {EXIT_ENTROPY, thresholds, 0}, back;
    assert_ok(exits_read_rule(&back, t.arena, &t.ctx, model, &t.exits, t.diag), t.diag);
    assert_int_equal(back.criterion, EXIT_NEVER);
    assert_ok(exits_store_rule(&rule, model, &t.exits, t.diag), t.diag);
    assert_ok(exits_read_rule(&back, t.arena, &t.ctx, model, &t.exits, t.diag), t.diag);
    assert_int_equal(back.criterion, EXIT_ENTROPY);
    assert_true(back.threshold[0] == 0.25 && back.threshold[1] == 0);
    const Exits fewer = {&t.exits.items[1], 2};
    assert_int_equal(exits_read_rule(&back, t.arena, &t.ctx, model, &fewer, t.diag),
                     STATUS_MODEL);
    rule = (ExitRule){EXIT_PATIENCE, NULL, 2};
    assert_ok(exits_store_rule(&rule, model, &t.exits, t.diag), t.diag);
    assert_ok(exits_read_rule(&back, t.arena, &t.ctx, model, &t.exits, t.diag), t.diag);
    assert_int_equal(back.criterion, EXIT_PATIENCE);
    assert_int_equal(back.patience, 2);
    run_pass(model, "remove_layer", "{drop: [1]}");
    Trial after = trial_open(model);
    assert_ok(exits_read_rule(&back, t.arena, &t.ctx, model, &after.exits, t.diag),
              t.diag);
    assert_int_equal(back.criterion, EXIT_NEVER);
    trial_close(&after);
    trial_close(&t);
    model_destroy(model);
}

static void expect_bad_rule(Model *model, const Trial *t, const char *key, Tree *value) {
    ExitRule rule;
    Diag *diag = diag_create();
    Tree *stored = tree_copy(t->arena, tree_get(model->provenance, "exits"));
    Model *bad = model_copy(model);
    assert_ok(tree_set(t->arena, stored, key, value, diag), diag);
    assert_ok(tree_set(bad->arena, bad->provenance, "exits",
                       tree_copy(bad->arena, stored), diag),
              diag);
    PassContext ctx = t->ctx;
    assert_int_equal(exits_read_rule(&rule, t->arena, &ctx, bad, &t->exits, diag),
                     STATUS_MODEL);
    model_destroy(bad);
    diag_destroy(diag);
}

static void test_damaged_rule(void **state) {
    (void)state;
    Model *model = exit_bert("{layers: [2]}");
    Trial t = trial_open(model);
    const double thresholds[2] = {0.25, 0};
    ExitRule rule = {EXIT_ENTROPY, thresholds, 0};
    assert_ok(exits_store_rule(&rule, model, &t.exits, t.diag), t.diag);
    Tree *word = tree_new(t.arena, TREE_STRING, LOC_NONE);
    Tree *below = tree_new(t.arena, TREE_INT, LOC_NONE);
    Tree *map = tree_new(t.arena, TREE_MAP, LOC_NONE);
    word->string = "sometimes";
    below->integer = -1;
    tree_put_int(t.arena, map, "exit.2", -3);
    expect_bad_rule(model, &t, "criterion", word);
    expect_bad_rule(model, &t, "criterion", below);
    expect_bad_rule(model, &t, "thresholds", below);
    expect_bad_rule(model, &t, "thresholds", map);
    rule = (ExitRule){EXIT_PATIENCE, NULL, 2};
    assert_ok(exits_store_rule(&rule, model, &t.exits, t.diag), t.diag);
    expect_bad_rule(model, &t, "patience", below);
    expect_bad_rule(model, &t, "patience", word);
    trial_close(&t);
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copied_exit_predicts_the_same),
        cmocka_unit_test(test_mean_of_sentences),
        cmocka_unit_test(test_misfits),
        cmocka_unit_test(test_false_exits),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_removed_layers),
        cmocka_unit_test(test_other_passes),
        cmocka_unit_test(test_importance_of_all_exits),
        cmocka_unit_test(test_rule),
        cmocka_unit_test(test_damaged_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
