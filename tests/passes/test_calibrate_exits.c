/* calibrate_exits against brute force: every threshold that tells samples apart is tried
 * with the rule itself, sample by sample, and nothing does better than what was chosen.
 */
#include "exec/ops.h"
#include "passes/exits/calibration.h"
#include "passes/exits/exits.h"
#include "tests/support/check.h"
#include "tests/support/passes.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EXITS = 4, CLASSES = 3, SAMPLES = 60 };

/* Logits of all exits for all samples, and what each exit costs. */
typedef struct Known {
    float logits[SAMPLES][EXITS][CLASSES];
    int32_t labels[SAMPLES];
    double flops[EXITS];
} Known;

static Status keep_logits(void *self, const Fetch *what, const float *const *values,
                          const void *const *columns, Diag *diag) {
    Known *known = self;
    (void)diag;
    for (int64_t i = 0; i < what->n; i++) {
        const int64_t at = what->index[i];
        known->labels[at] = ((const int32_t *)columns[1])[i];
        for (int e = 0; e < EXITS; e++)
            memcpy(known->logits[at][e], values[e] + i * CLASSES,
                   sizeof known->logits[at][e]);
    }
    return STATUS_OK;
}

/* A model with exits, trained a little: its exits are neither useless nor perfect. */
static Model *trained(Known *known) {
    static const char *const names[EXITS] = {"exit.1", "exit.2", "exit.3", "logits"};
    Model *model = toy_vit(3);
    Diag *diag = diag_create();
    Batches *toy = toy_batches();
    Node *exits[EXITS];
    assert_ok(test_run_pass(model, "add_exits", "{}", false, diag), diag);
    assert_ok(test_run_pass(model, "finetune",
                            "{data: toy, epochs: 4, batch_size: 10, lr: 0.002}", false,
                            diag),
              diag);
    for (int e = 0; e < EXITS; e++) exits[e] = graph_output(model->graph, names[e]);
    assert_ok(forward_batches(model->graph, exits, EXITS, toy, 0, 32, 1, NULL,
                              keep_logits, known, diag),
              diag);
    assert_ok(dynamic_flops(model->graph, exits, EXITS, 0, known->flops, diag), diag);
    batches_destroy(toy);
    diag_destroy(diag);
    return model;
}

static int best_class(const float *logits) {
    int best = 0;
    for (int c = 1; c < CLASSES; c++)
        if (logits[c] > logits[best]) best = c;
    return best;
}

/* Of means over the samples of shares of 1 and of percents, in double. */
#define SHARE_ROUNDING rounding_tolerance(PRECISION_F64, SAMPLES, 100)

/* Runs the rule over every sample. */
static CalibrationPoint play(const Known *known, const ExitRule *rule) {
    CalibrationPoint out = {0};
    for (int i = 0; i < SAMPLES; i++) {
        ExitState state = {0};
        int e = 0;
        while (e < EXITS - 1 &&
               !exit_leaves(rule, &state, e, known->logits[i][e], CLASSES))
            e++;
        out.accuracy += best_class(known->logits[i][e]) == known->labels[i];
        out.depth += e + 1;
        out.flops += known->flops[e] / known->flops[EXITS - 1];
    }
    out.accuracy *= 100.0 / SAMPLES;
    out.depth /= SAMPLES;
    out.flops /= SAMPLES;
    return out;
}

static CalibrationPoint play_threshold(const Known *known, bool patience,
                                       double threshold) {
    const double thresholds[EXITS] = {threshold, threshold, threshold, 0};
    const ExitRule rule = {patience ? EXIT_PATIENCE : EXIT_ENTROPY, thresholds,
                           (int64_t)threshold};
    CalibrationPoint out = play(known, &rule);
    out.threshold = threshold;
    return out;
}

/* Every threshold that can matter. */
static int all_points(const Known *known, bool patience, CalibrationPoint *out) {
    int count = 0;
    for (int p = 1; p <= EXITS && patience; p++)
        out[count++] = play_threshold(known, true, p);
    if (patience) return count;
    out[count++] = play_threshold(known, false, 0);
    out[count++] = play_threshold(known, false, 2);
    for (int i = 0; i < SAMPLES; i++)
        for (int e = 0; e < EXITS - 1; e++)
            out[count++] =
                play_threshold(known, false, exit_entropy(known->logits[i][e], CLASSES));
    return count;
}

/* What the pass says its choice gives, which is what the rule it stored gives. */
static CalibrationPoint chosen(Model *model, const Known *known, const char *options) {
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    PassContext ctx = {.ops = ops_table(), .arena = arena, .source.key = "test"};
    Exits exits;
    ExitRule rule;
    assert_ok(test_run_pass(model, "calibrate_exits", options, false, diag), diag);
    assert_ok(exits_find(&exits, arena, &ctx, model->graph, diag), diag);
    assert_ok(exits_read_rule(&rule, arena, &ctx, model, &exits, diag), diag);
    const CalibrationPoint played = play(known, &rule);
    const Tree *record = last_record(model);
    assert_within(played.accuracy, number(record, "accuracy"), SHARE_ROUNDING);
    assert_within(played.depth, number(record, "depth"), SHARE_ROUNDING);
    assert_within(played.flops, number(record, "flops"), SHARE_ROUNDING);
    arena_destroy(arena);
    diag_destroy(diag);
    return played;
}

static void check_flops(Model *model, const Known *known, bool patience, double most) {
    char options[200];
    snprintf(options, sizeof options,
             "{data: toy, criterion: %s, flops: %g, candidates: 1000, batch_size: 7}",
             patience ? "patience" : "entropy", most);
    static CalibrationPoint points[SAMPLES * EXITS];
    const int count = all_points(known, patience, points);
    const CalibrationPoint got = chosen(model, known, options);
    assert_true(got.flops <= most + SHARE_ROUNDING);
    for (int i = 0; i < count; i++)
        if (points[i].flops <= most) {
            assert_true(points[i].accuracy <= got.accuracy + SHARE_ROUNDING);
            if (points[i].accuracy > got.accuracy - SHARE_ROUNDING)
                assert_true(points[i].flops >= got.flops - SHARE_ROUNDING);
        }
}

static void check_accuracy(Model *model, const Known *known, bool patience,
                           const char *target, double least) {
    char options[200];
    snprintf(options, sizeof options,
             "{data: toy, criterion: %s, %s, candidates: 1000, batch_size: 7}",
             patience ? "patience" : "entropy", target);
    static CalibrationPoint points[SAMPLES * EXITS];
    const int count = all_points(known, patience, points);
    const CalibrationPoint got = chosen(model, known, options);
    assert_true(got.accuracy >= least - SHARE_ROUNDING);
    for (int i = 0; i < count; i++)
        if (points[i].accuracy >= least)
            assert_true(points[i].flops >= got.flops - SHARE_ROUNDING);
}

static void test_brute_force(void **state) {
    (void)state;
    Known *known = calloc(1, sizeof *known);
    Model *model = trained(known);
    const CalibrationPoint full = play_threshold(known, false, 0);
    const CalibrationPoint first = play_threshold(known, false, 2);
    assert_true(full.flops == 1 && full.depth == EXITS && first.depth == 1);
    assert_true(full.accuracy > first.accuracy); /* else there is nothing to choose */
    for (double most = 1; most > first.flops; most -= 0.05)
        check_flops(model, known, false, most);
    check_flops(model, known, true, 1);
    check_flops(model, known, true, 0.8);
    char target[40];
    for (double drop = 0; drop < full.accuracy; drop += 7) {
        snprintf(target, sizeof target, "drop: %g", drop);
        check_accuracy(model, known, false, target, full.accuracy - drop);
        check_accuracy(model, known, true, target, full.accuracy - drop);
    }
    snprintf(target, sizeof target, "accuracy: %.3f", full.accuracy - 10);
    check_accuracy(model, known, false, target, full.accuracy - 10);
    free(known);
    model_destroy(model);
}

/* Few candidates: still the ends, and none that the data does not tell apart. */
static void test_candidates(void **state) {
    (void)state;
    double score[8] = {0.5, 0.2, 0.2, 0.9, 0.4, 0.3, 0.6, 0.5}, *out;
    Arena *arena = arena_create();
    const Calibration c = {
        .criterion = EXIT_ENTROPY, .exits = 3, .samples = 4, .score = score};
    assert_int_equal(calibration_candidates(&out, arena, &c, 100, 4), 8);
    assert_true(out[0] == 0 && out[1] == 0.2 && out[6] == 0.9);
    assert_true(out[7] > log(4));
    assert_int_equal(calibration_candidates(&out, arena, &c, 3, 4), 5);
    assert_true(out[1] == 0.2 && out[2] == 0.4 && out[3] == 0.9);
    arena_destroy(arena);
}

static void expect_failure(Model *model, const char *options, const char *part) {
    expect_pass_fails(model, "calibrate_exits", options, STATUS_MODEL, part);
}

static void test_out_of_reach(void **state) {
    (void)state;
    Model *model = toy_vit(3);
    Diag *diag = diag_create();
    assert_ok(test_run_pass(model, "add_exits", "{}", false, diag), diag);
    expect_failure(model, "{data: toy, flops: 0.1}", "the least is 0.2669");
    expect_failure(model, "{data: toy, accuracy: 99}", "the best is ");
    assert_null(tree_get(model->provenance, "exits"));
    diag_destroy(diag);
    model_destroy(model);
}

/* What evaluate's record says of the rule's age. */
static bool is_stale(Model *model) {
    Diag *diag = diag_create();
    assert_ok(test_run_pass(model, "evaluate", "{data: toy}", false, diag), diag);
    const Tree *record = last_record(model);
    assert_non_null(tree_get(record, "thresholds"));
    diag_destroy(diag);
    return tree_get(record, "stale_rule") != NULL;
}

/* A rule is for the weights that it was calibrated on; steps that measure keep it. */
static void test_age(void **state) {
    (void)state;
    Model *model = toy_vit(3);
    Diag *diag = diag_create();
    const char *calibrate = "{data: toy, drop: 100}";
    assert_ok(test_run_pass(model, "add_exits", "{}", false, diag), diag);
    assert_ok(test_run_pass(model, "calibrate_exits", calibrate, false, diag), diag);
    assert_false(is_stale(model));
    assert_ok(test_run_pass(model, "importance", "{score: magnitude}", false, diag),
              diag);
    assert_false(is_stale(model));
    assert_ok(test_run_pass(model, "prune_heads", "{keep: 1}", false, diag), diag);
    assert_true(is_stale(model));
    assert_ok(test_run_pass(model, "calibrate_exits", calibrate, false, diag), diag);
    assert_false(is_stale(model));
    model_destroy(model);
    diag_destroy(diag);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_age),
        cmocka_unit_test(test_brute_force),
        cmocka_unit_test(test_candidates),
        cmocka_unit_test(test_out_of_reach),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
