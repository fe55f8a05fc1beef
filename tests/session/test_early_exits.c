/* compress run --leave-early: every sample gets the logits of the exit that the stored
 * rule lets it leave at, as if it had been run alone, and the layer of that exit. */
#include "passes/exits/exits.h"
#include "session/early_exits.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/exits.h"
#include "tests/support/passes.h"
#include "tests/support/rounding.h"

#include <stdlib.h>
#include <string.h>

enum { CLASSES = 3, DEPTH = 4 };

static Model *model_with_exits(uint64_t seed) {
    Model *model = configured_model(
        "{model_type: bert, architectures: [BertForSequenceClassification],\n"
        " hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2,\n"
        " intermediate_size: 16, vocab_size: 12, max_position_embeddings: 8,\n"
        " num_labels: 3, initializer_range: 0.5}\n",
        seed);
    exits_add(model, 0.7, seed);
    return model;
}

static Exits find_exits(Arena *arena, const Model *model, Diag *diag) {
    PassContext ctx = {.arena = arena};
    Exits exits;
    assert_ok(exits_find(&exits, arena, &ctx, model->graph, diag), diag);
    assert_int_equal(exits.count, DEPTH);
    return exits;
}

/* Logits of all exits of all samples, [exit][sample][class]. */
typedef struct All {
    float logits[DEPTH][SENTENCE_SAMPLES][CLASSES];
} All;

static Status keep_all(void *self, const Fetch *what, const float *const *values,
                       const void *const *columns, Diag *diag) {
    All *all = self;
    (void)columns, (void)diag;
    for (int e = 0; e < DEPTH; e++)
        for (int64_t i = 0; i < what->n; i++)
            memcpy(all->logits[e][what->index[i]], values[e] + i * CLASSES,
                   sizeof all->logits[e][0]);
    return STATUS_OK;
}

/* The exit that a sample leaves at, by the rule alone. */
static int plain_exit(const All *all, const ExitRule *rule, int sample) {
    ExitState state = {0};
    for (int e = 0; e < DEPTH - 1; e++)
        if (exit_leaves(rule, &state, e, all->logits[e][sample], CLASSES)) return e;
    return DEPTH - 1;
}

/* What is ready gives the same bytes once more. */
static void expect_again(EarlyRun *again, const EarlyRun *run, Dynamic *ready,
                         const Batches *data, int threads, Diag *diag) {
    assert_ok(early_run(again, ready, data, threads, NULL, diag), diag);
    for (int i = 0; i < 2; i++) {
        const Tensor *tensor = &run->results[i].tensor;
        assert_memory_equal(tensor_data(&again->results[i].tensor), tensor_data(tensor),
                            tensor_bytes(tensor));
    }
    assert_float_equal(again->report.flops, run->report.flops, 0);
    assert_int_equal(again->report.samples, SENTENCE_SAMPLES);
    early_release(again);
}

static void expect_rule(const ExitRule *rule, int threads) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Model *model = model_with_exits(7);
    Batches *data = sentence_batches();
    const Exits exits = find_exits(arena, model, diag);
    Node *results[DEPTH];
    static All all;
    EarlyRun run;
    int seen[DEPTH] = {0};
    double depth = 0;
    for (int e = 0; e < DEPTH; e++) results[e] = exits.items[e].logits;
    assert_ok(forward_batches(model->graph, results, DEPTH, data, 0, 1, 1, NULL, keep_all,
                              &all, diag),
              diag);
    assert_ok(exits_store_rule(rule, model, &exits, diag), diag);
    Dynamic *ready;
    assert_ok(early_find(&run, arena, model, "model.h5", "--leave-early", diag), diag);
    assert_ok(early_open(&ready, &run, model->graph, 1, diag), diag);
    EarlyRun again = run;
    assert_ok(early_run(&run, ready, data, threads, NULL, diag), diag);
    const float *logits = tensor_data(&run.results[0].tensor);
    const int32_t *layer = tensor_data(&run.results[1].tensor);
    for (int i = 0; i < SENTENCE_SAMPLES; i++) {
        const int e = plain_exit(&all, rule, i);
        assert_int_equal(layer[i], exits.items[e].layer);
        for (int c = 0; c < CLASSES; c++)
            assert_within(logits[i * CLASSES + c], all.logits[e][i][c],
                          loss_tolerance(model->graph, 1));
        seen[e]++;
        depth += layer[i];
    }
    assert_true(seen[0] > 0 || seen[1] > 0); /* some leave early */
    assert_true(seen[DEPTH - 1] < SENTENCE_SAMPLES);
    assert_within(early_mean_depth(&run), depth / SENTENCE_SAMPLES,
                  rounding_tolerance(PRECISION_F64, SENTENCE_SAMPLES, DEPTH));
    expect_again(&again, &run, ready, data, 4 - threads, diag);
    assert_int_equal(diag_errors(diag), 0);
    early_release(&run);
    dynamic_close(ready);
    batches_destroy(data);
    model_destroy(model);
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_rules(void **state) {
    (void)state;
    const double threshold[DEPTH] = {0.8, 0.9, 1.0, 0};
    const ExitRule entropy = {.criterion = EXIT_ENTROPY, .threshold = threshold};
    const ExitRule patience = {.criterion = EXIT_PATIENCE, .patience = 1};
    for (int threads = 1; threads <= 3; threads += 2) {
        expect_rule(&entropy, threads);
        expect_rule(&patience, threads);
    }
}

static void expect_refused(Model *model, const char *part) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    EarlyRun run;
    assert_int_equal(early_find(&run, arena, model, "model.h5", "--leave-early", diag),
                     STATUS_MODEL);
    char *text = diag_text(diag);
    if (!strstr(text, part)) fail_msg("expected '%s' in: %s", part, text);
    free(text);
    diag_destroy(diag);
    arena_destroy(arena);
    model_destroy(model);
}

static void test_refused(void **state) {
    (void)state;
    expect_refused(model_with_exits(7), "no stored rule");
    expect_refused(toy_vit(1), "no early exits");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
