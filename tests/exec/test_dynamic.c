/* Dynamic inference of models against what the logits of all exits say: who leaves where,
 * with which logits, at what cost. */
#include "tests/exec/dynamic_fixture.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"

static void open_bert(Case *c) {
    Model *model = configured_bert(5, 3);
    exits_add(model, 1.2, 4);
    case_open(c, model, sentence_batches());
}

static void open_vit(Case *c) {
    Model *model = toy_vit(3);
    exits_add(model, 1, 4);
    case_open(c, model, toy_batches());
}

/* The first and the last exit of a model: two of the three workspaces are there. */
static void open_pair(Case *c) {
    open_vit(c);
    c->exits[1] = c->exits[c->count - 1];
    c->tolerance[1] = c->tolerance[c->count - 1];
    c->count = 2;
    assert_ok(dynamic_flops(c->model->graph, c->exits, 2, 0, c->flops, c->diag), c->diag);
}

/* One rule at several batch sizes and numbers of threads. */
static void check_rule(const Case *c, const All *all, const ExitRule *rule, int least) {
    static const int64_t batches[] = {1, 3, 32, 1000};
    Taken *taken = malloc(sizeof *taken);
    for (int b = 0; b < 4; b++)
        for (int threads = 1; threads <= 3; threads++) {
            run_dynamic(taken, c, rule, batches[b], threads);
            const int used = check_taken(taken, all, rule);
            if (used < least) fail_msg("%d exits taken, expected %d", used, least);
        }
    free(taken);
}

static void check_model(void (*open)(Case *)) {
    Case c;
    double threshold[EXITS_MOST];
    open(&c);
    All *all = run_all(&c, 1);
    choose_thresholds(&c, all, threshold);
    const ExitRule entropy = {.criterion = EXIT_ENTROPY, .threshold = threshold};
    check_rule(&c, all, &entropy, c.count);
    const ExitRule one = {.criterion = EXIT_PATIENCE, .patience = 1};
    check_rule(&c, all, &one, 2);
    const ExitRule two = {.criterion = EXIT_PATIENCE, .patience = 2};
    check_rule(&c, all, &two, 2);
    free(all);
    case_close(&c);
}

static void test_bert(void **state) {
    (void)state;
    check_model(open_bert);
}

static void test_vit(void **state) {
    (void)state;
    check_model(open_vit);
}

static void test_pair(void **state) {
    (void)state;
    Case c;
    double threshold[EXITS_MOST];
    open_pair(&c);
    All *all = run_all(&c, 1);
    choose_thresholds(&c, all, threshold);
    const ExitRule entropy = {.criterion = EXIT_ENTROPY, .threshold = threshold};
    check_rule(&c, all, &entropy, 2);
    free(all);
    case_close(&c);
}

/* Nobody leaves: the same bytes as from forward_batches. */
static void test_never(void **state) {
    (void)state;
    Case c;
    open_bert(&c);
    All *all = run_all(&c, 7);
    Taken *taken = malloc(sizeof *taken);
    run_dynamic(taken, &c, &(ExitRule){EXIT_NEVER}, 7, 2);
    for (int64_t s = 0; s < c.data->count; s++) {
        assert_int_equal(taken->exit[s], c.count - 1);
        assert_memory_equal(taken->logits[s], all->logits[c.count - 1][s],
                            sizeof taken->logits[s]);
    }
    free(taken);
    free(all);
    case_close(&c);
}

/* Everybody leaves at the first exit: nothing behind it is run. */
static void test_first(void **state) {
    (void)state;
    Case c;
    const double threshold[EXITS_MOST] = {100, 100, 100, 100, 100, 100};
    const ExitRule rule = {.criterion = EXIT_ENTROPY, .threshold = threshold};
    open_bert(&c);
    All *all = run_all(&c, 7);
    Taken *taken = malloc(sizeof *taken);
    run_dynamic(taken, &c, &rule, 7, 1);
    assert_int_equal(check_taken(taken, all, &rule), 1);
    assert_memory_equal(taken->logits, all->logits[0],
                        sizeof *taken->logits * SENTENCE_SAMPLES);
    assert_true(taken->report.flops < 0.3 * SENTENCE_SAMPLES * c.flops[c.count - 1]);
    free(taken);
    free(all);
    case_close(&c);
}

/* The last exit alone costs what the model without early exits does. */
static void test_flops(void **state) {
    (void)state;
    Case c;
    double alone;
    Plan *plan = NULL;
    open_bert(&c);
    Node *last = c.exits[c.count - 1];
    assert_ok(dynamic_flops(c.model->graph, &last, 1, 6, &alone, c.diag), c.diag);
    const PlanOptions options = {.sizes = {1, 6}, .results = &last, .result_count = 1};
    assert_ok(plan_create(&plan, c.model->graph, &options, c.diag), c.diag);
    assert_true(alone == plan_flops(plan));
    plan_destroy(plan);
    /* per exit and early head: dense 8 x 8 and out 3 x 8, a multiply-add is 2 */
    const double heads = (c.count - 1) * 2.0 * (8 * 8 + 3 * 8);
    assert_true(c.flops[c.count - 1] - alone >= heads);
    assert_true(c.flops[c.count - 1] - alone <= heads * 1.5);
    for (int e = 1; e < c.count; e++) assert_true(c.flops[e] > c.flops[e - 1]);
    check_sum(&c);
    /* positions end at 6: an open length is what the table takes */
    double open[EXITS_MOST];
    assert_ok(dynamic_flops(c.model->graph, c.exits, c.count, 0, open, c.diag), c.diag);
    assert_true(open[0] > 0 && open[0] <= c.flops[0]);
    case_close(&c);
}

static void test_limit(void **state) {
    (void)state;
    Case c;
    Taken taken = {.of = &c};
    open_vit(&c);
    for (int64_t limit = 1; limit < 6; limit += 4) {
        taken.samples = 0;
        assert_ok(dynamic_batches(c.model->graph, c.exits, c.count,
                                  &(ExitRule){EXIT_NEVER}, c.data, limit, 2, 2, NULL,
                                  take, &taken, &taken.report, c.diag),
                  c.diag);
        assert_int_equal(taken.samples, limit);
    }
    case_close(&c);
}

/* ---- what may stop a run ---- */

static bool always(void *self) {
    (void)self;
    return true;
}

static Status refuse(void *self, const Fetch *what, const int *exit, const float *logits,
                     const void *const *columns, Diag *diag) {
    (void)self, (void)what, (void)exit, (void)logits, (void)columns;
    return diag_fail(diag, STATUS_GATE, LOC_NONE, NULL, "enough");
}

static void test_stops(void **state) {
    (void)state;
    Case c;
    DynamicReport report;
    const Watch watch = {.cancelled = always};
    const ExitRule never = {EXIT_NEVER};
    open_vit(&c);
    assert_int_equal(dynamic_batches(c.model->graph, c.exits, c.count, &never, c.data, 0,
                                     8, 2, &watch, take, NULL, &report, c.diag),
                     STATUS_INTERRUPTED);
    assert_int_equal(dynamic_batches(c.model->graph, c.exits, c.count, &never, c.data, 0,
                                     8, 2, NULL, refuse, NULL, &report, c.diag),
                     STATUS_GATE);
    case_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bert),  cmocka_unit_test(test_vit),
        cmocka_unit_test(test_never), cmocka_unit_test(test_first),
        cmocka_unit_test(test_flops), cmocka_unit_test(test_limit),
        cmocka_unit_test(test_stops), cmocka_unit_test(test_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
