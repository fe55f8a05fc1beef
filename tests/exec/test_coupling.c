/* Losses that compare samples with each other: the same value and gradient however a
 * mini-batch is cut, at any number of threads, also where dropout draws. */
#include "tests/exec/train_fixture.h"

/* Rows of x through a layer with dropout into both kinds of losses; the "teacher" is x.
 */
static void coupled_open(Fixture *f, double dropout) {
    model_open(f, dropout);
    Node *x = graph_find_input(f->graph, "x");
    f->parts[0] = make(f, "contrastive", &f->logits, 1, "scale=2.0 symmetric=true");
    f->parts[1] = make(f, "similarity_mse", (Node *[]){f->logits, x}, 2, NULL);
    f->loss = make(f, "weighted_sum", f->parts, 2, "weights=[1.0, 3.0]");
}

static TrainOptions plain_options(void) {
    TrainOptions options = train_defaults;
    options.optimizer = 1; /* sgd */
    options.schedule = 2;  /* constant */
    options.momentum = options.weight_decay = options.warmup = options.clip = 0;
    options.lr = 0.1;
    options.steps = 3; /* the last mini-batch of an epoch is smaller */
    options.batch_size = 40;
    return options;
}

static const int64_t CUTS[][2] = {/* shards, micro_batch */
                                  {1, 40}, {1, 6}, {2, 0}, {3, 2}, {7, 4}, {20, 2}};
enum { CUT_COUNT = sizeof CUTS / sizeof CUTS[0] };

/* What came of a run; nothing of it lies in the fixture. */
typedef struct Outcome {
    float weights[WEIGHTS];
    double first_loss, part_loss[2], norm, tolerance;
} Outcome;

static void train_cut(Outcome *out, int cut, int threads, double dropout) {
    Fixture f;
    TrainReport report;
    TrainOptions options = plain_options();
    options.shards = CUTS[cut][0];
    options.micro_batch = CUTS[cut][1];
    coupled_open(&f, dropout);
    assert_ok(run_training(&f, &options, 3, threads, &report), f.diag);
    *out = (Outcome){.first_loss = report.first_loss,
                     .part_loss = {report.part_loss[0], report.part_loss[1]},
                     .norm = report.largest_norm};
    copy_weights(f.graph, out->weights);
    out->tolerance = weight_tolerance(&f, &options, 3, 4, report.largest_norm);
    model_close(&f);
}

static void check_cuts(double dropout) {
    Outcome whole, cut, again;
    train_cut(&whole, 0, 1, dropout);
    assert_true(whole.norm > 0.05);
    for (int i = 1; i < CUT_COUNT; i++) {
        train_cut(&cut, i, 1, dropout);
        for (int k = 0; k < WEIGHTS; k++)
            assert_within(cut.weights[k], whole.weights[k], cut.tolerance);
        assert_within(cut.first_loss, whole.first_loss, cut.tolerance);
        for (int part = 0; part < 2; part++)
            assert_within(cut.part_loss[part], whole.part_loss[part], cut.tolerance);
        train_cut(&again, i, 3, dropout);
        assert_memory_equal(again.weights, cut.weights, sizeof cut.weights);
    }
}

static void test_cuts(void **state) {
    (void)state;
    check_cuts(0);
}

static void test_dropout(void **state) {
    (void)state;
    check_cuts(0.3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_dropout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
