/* Training on losses over tokens and masked positions: against naive loops in double
 * precision, whatever the shards and micro-batches; the same bytes at any number of
 * threads; forward runs with masked positions. */
#include "tests/exec/token_fixture.h"

enum { PARAMS = VOCAB * WIDTH + CLASSES * WIDTH + CLASSES };

static TrainOptions plain_options(void) {
    TrainOptions options = train_defaults;
    options.optimizer = 1; /* sgd */
    options.schedule = 2;  /* constant */
    options.momentum = options.weight_decay = options.warmup = options.clip = 0;
    options.lr = 0.5;
    options.steps = 3;
    options.batch_size = SENTENCES;
    return options;
}

static void model_train(Model *m, const TrainOptions *options, int threads, float *out,
                        TrainReport *report) {
    Fixture *f = &m->f;
    assert_ok(train(f->graph, f->loss, f->parts, 2, &m->data.batches, options, 1, threads,
                    NULL, f->arena, report, f->diag),
              f->diag);
    copy_weights(f->graph, out);
}

/* ---- the same, naively ---- */

typedef struct Naive {
    const Tokens *data;
    double w[PARAMS], g[PARAMS];
} Naive;

/* Position t of sample s in part 0 (tokens) or 1 (masked positions). */
static int32_t naive_label(const Naive *n, int part, int64_t s, int64_t t) {
    return part == 0 ? token_label(n->data, s, t) : masked_label(s, t);
}

static double naive_logit(const Naive *n, int part, int64_t s, int64_t t, int c,
                          double h[WIDTH]) {
    const int id = part == 0 ? token_id(s, t) : masked_id(s, t);
    const double *w = n->w + (VOCAB + c) * WIDTH;
    double z = n->w[(VOCAB + CLASSES) * WIDTH + c];
    for (int d = 0; d < WIDTH; d++) {
        h[d] = n->w[id * WIDTH + d] + (part == 0 ? (double)token_feature(s, t, d) : 0);
        z += w[d] * h[d];
    }
    return z;
}

/* Cross-entropy of one position; its gradient times `factor` is added. */
static double naive_row(Naive *n, int part, int64_t s, int64_t t, double factor) {
    const double smoothing = part == 0 ? 0 : 0.1;
    const int id = part == 0 ? token_id(s, t) : masked_id(s, t);
    double z[CLASSES], h[WIDTH], sum = 0, loss = 0;
    for (int c = 0; c < CLASSES; c++) sum += exp(z[c] = naive_logit(n, part, s, t, c, h));
    for (int c = 0; c < CLASSES; c++) {
        const double target =
            smoothing / CLASSES + (1 - smoothing) * (c == naive_label(n, part, s, t));
        const double dz = factor * (exp(z[c]) / sum - target);
        loss += target * (log(sum) - z[c]);
        n->g[(VOCAB + CLASSES) * WIDTH + c] += dz;
        for (int d = 0; d < WIDTH; d++) {
            n->g[(VOCAB + c) * WIDTH + d] += dz * h[d];
            n->g[id * WIDTH + d] += dz * n->w[(VOCAB + c) * WIDTH + d];
        }
    }
    return loss;
}

/* Mean over the labelled positions of samples [first, first + count). */
static double naive_part(Naive *n, int part, int64_t first, int64_t count,
                         double factor) {
    int64_t rows = 0;
    double sum = 0;
    for (int64_t i = 0; i < count * LONGEST; i++)
        rows += naive_label(n, part, first + i / LONGEST, i % LONGEST) != INDEX_SKIP;
    for (int64_t i = 0; i < count * LONGEST; i++) {
        const int64_t s = first + i / LONGEST, t = i % LONGEST;
        if (naive_label(n, part, s, t) != INDEX_SKIP)
            sum += naive_row(n, part, s, t, factor / (double)rows) / (double)rows;
    }
    return sum;
}

/* One step on all samples. With `single`, part 0 is the mean of the samples' means. */
static void naive_step(Naive *n, bool single, double rate, double loss[2]) {
    memset(n->g, 0, sizeof n->g);
    loss[0] = single ? 0 : naive_part(n, 0, 0, SENTENCES, 0.75);
    for (int64_t s = 0; single && s < SENTENCES; s++)
        loss[0] += naive_part(n, 0, s, 1, 0.75 / SENTENCES) / SENTENCES;
    loss[1] = naive_part(n, 1, 0, SENTENCES, 0.5);
    for (int i = 0; i < PARAMS; i++) n->w[i] -= rate * n->g[i];
}

static void naive_open(Naive *n, const Model *m) {
    float w[PARAMS];
    *n = (Naive){.data = &m->data};
    copy_weights(m->f.graph, w);
    for (int i = 0; i < PARAMS; i++) n->w[i] = (double)w[i];
}

/* Of weights after so many steps of plain gradient descent by gradients of a size, and of
 * losses, whose slopes those are. */
static double tokens_tolerance(const Model *m, const TrainOptions *options, int steps,
                               double gradient) {
    const int64_t sizes[DIM_SYMBOLS] = {SENTENCES, LONGEST, 0, 1 + LONGEST / 4};
    const double terms = rounding_gradient_terms(m->f.graph, m->f.loss, NULL, sizes);
    return training_tolerance(steps, options->lr, 1,
                              rounding_tolerance(PRECISION_F32, terms, gradient), 1);
}

/* Trains, and compares losses and weights with the naive steps. */
static void check_naive(Model *m, const TrainOptions *options, bool single) {
    Naive naive;
    TrainReport report;
    float weights[PARAMS];
    double loss[3][2];
    naive_open(&naive, m);
    for (int step = 0; step < 3; step++)
        naive_step(&naive, single, options->lr, loss[step]);
    model_train(m, options, 2, weights, &report);
    const double tolerance = tokens_tolerance(m, options, 3, report.largest_norm);
    for (int i = 0; i < PARAMS; i++) assert_within(weights[i], naive.w[i], tolerance);
    const double first = 0.75 * loss[0][0] + 0.5 * loss[0][1];
    assert_within(report.first_loss, first, tolerance);
    for (int part = 0; part < 2; part++)
        assert_within(report.part_loss[part], loss[2][part], tolerance);
}

/* ---- tests of training ---- */

static const int64_t CUTS[][2] = {/* shards, micro_batch */
                                  {1, 0}, {1, 1}, {1, 2}, {2, 0}, {2, 1},
                                  {2, 2}, {3, 0}, {3, 1}, {3, 2}, {13, 1}};
enum { CUT_COUNT = sizeof CUTS / sizeof CUTS[0] };

/* With micro-batches of one sample some have no row that counts in one of the parts. */
static void test_naive(void **state) {
    (void)state;
    for (int i = 0; i < 2 * CUT_COUNT; i++) {
        Model m;
        TrainOptions options = plain_options();
        options.shards = CUTS[i / 2][0];
        options.micro_batch = CUTS[i / 2][1];
        tokens_model(&m, false);
        m.data.batches.partial = i % 2;
        check_naive(&m, &options, false);
        model_close(&m.f);
    }
}

/* A loss for which no row of the mini-batch counts is 0 and moves nothing. */
static void test_no_rows(void **state) {
    (void)state;
    Model m;
    TrainOptions options = plain_options();
    options.micro_batch = 2;
    tokens_model(&m, false);
    m.data.no_labels = true;
    check_naive(&m, &options, false);
    model_close(&m.f);
}

/* Rows that are not known ahead: the mean of the micro-batches' means. */
static void test_computed(void **state) {
    (void)state;
    for (int single = 0; single < 2; single++) {
        Model m;
        TrainOptions options = plain_options();
        options.shards = single ? 3 : 1;
        options.micro_batch = single ? 1 : SENTENCES;
        tokens_model(&m, true);
        check_naive(&m, &options, single);
        model_close(&m.f);
    }
}

static void train_batches(const int64_t cut[2], int threads, float *out,
                          TrainReport *report) {
    Model m;
    TrainOptions options = plain_options();
    options.shards = cut[0];
    options.micro_batch = cut[1];
    options.batch_size = 5; /* the last batch of an epoch has 3 */
    options.epochs = 4;
    options.steps = 0;
    tokens_model(&m, false);
    model_train(&m, &options, threads, out, report);
    model_close(&m.f);
}

static void test_batches(void **state) {
    (void)state;
    float first[PARAMS], other[PARAMS];
    TrainReport report, again;
    Model m;
    TrainOptions options = plain_options();
    tokens_model(&m, false);
    train_batches(CUTS[0], 2, first, &report);
    const double tolerance = tokens_tolerance(&m, &options, 4 * 3, report.largest_norm);
    model_close(&m.f);
    for (int c = 1; c < CUT_COUNT; c++) {
        train_batches(CUTS[c], 2, other, &again);
        for (int i = 0; i < PARAMS; i++) assert_within(first[i], other[i], tolerance);
        assert_within(report.last_loss, again.last_loss, tolerance);
    }
}

static void test_threads(void **state) {
    (void)state;
    float first[PARAMS], other[PARAMS];
    TrainReport report, again;
    train_batches((const int64_t[]){4, 1}, 1, first, &report);
    for (int threads = 2; threads <= 4; threads++) {
        train_batches((const int64_t[]){4, 1}, threads, other, &again);
        assert_memory_equal(first, other, sizeof first);
        assert_true(report.last_loss == again.last_loss);
    }
}

/* What is fetched for a step of 13 samples, 2 at a time. */
static void count_fetches(bool partial, Node *loss, Model *m, int fetches,
                          int sentences) {
    TrainOptions options = plain_options();
    TrainReport report;
    options.steps = 1;
    options.shards = 1;
    options.micro_batch = 2;
    m->data.batches.partial = partial;
    atomic_store(&m->data.fetches, 0);
    atomic_store(&m->data.sentences, 0);
    assert_ok(train(m->f.graph, loss, NULL, 0, &m->data.batches, &options, 1, 1, NULL,
                    m->f.arena, &report, m->f.diag),
              m->f.diag);
    assert_int_equal(atomic_load(&m->data.fetches), fetches);
    assert_int_equal(atomic_load(&m->data.sentences), sentences);
}

static void test_fetches(void **state) {
    (void)state;
    Model m;
    tokens_model(&m, false);
    count_fetches(true, m.f.loss, &m, 14, SENTENCES);
    count_fetches(false, m.f.loss, &m, 14, 2 * SENTENCES);
    const Type features = {DTYPE_F32, 3, {DIM_N, DIM_T, WIDTH}};
    Node *in[] = {m.hidden, graph_find_input(m.f.graph, "features")};
    assert_true(type_equal(&in[1]->type, &features));
    count_fetches(false, make(&m.f, "gram_mse", in, 2, NULL), &m, 7, SENTENCES);
    model_close(&m.f);
}

static void test_bad_label(void **state) {
    (void)state;
    for (int partial = 0; partial < 2; partial++) {
        Model m;
        TrainReport report;
        const TrainOptions options = plain_options();
        tokens_model(&m, false);
        m.data.bad = 6;
        m.data.batches.partial = partial;
        assert_int_equal(train(m.f.graph, m.f.loss, NULL, 0, &m.data.batches, &options, 1,
                               2, NULL, m.f.arena, &report, m.f.diag),
                         STATUS_MODEL);
        char *text = diag_text(m.f.diag);
        assert_non_null(strstr(text, "sample 6: expected labels from 0 to 2, found 9"));
        free(text);
        model_close(&m.f);
    }
}

/* ---- forward runs ---- */

typedef struct Sink {
    Naive naive;
    int seen;
    bool masked; /* logits of masked positions, else of tokens */
} Sink;

static void check_logits(const Sink *sink, int64_t s, int64_t t, const float *logits) {
    double h[WIDTH];
    for (int c = 0; c < CLASSES; c++) {
        const double want = naive_logit(&sink->naive, sink->masked, s, t, c, h);
        const double *w = sink->naive.w + (VOCAB + c) * WIDTH;
        double size = fabs(sink->naive.w[(VOCAB + CLASSES) * WIDTH + c]);
        for (int d = 0; d < WIDTH; d++) size += fabs(w[d] * h[d]);
        assert_within(logits[c], want,
                      rounding_tolerance(PRECISION_F32, WIDTH + 2, size));
    }
}

static Status sink_take(void *self, const Fetch *what, const float *const *values,
                        const void *const *columns, Diag *diag) {
    Sink *sink = self;
    const Batches *data = &sink->naive.data->batches;
    const int64_t masked = batches_masked(data, what->tokens);
    const int64_t positions = sink->masked ? masked : what->tokens;
    (void)diag;
    for (int64_t i = 0; i < what->n; i++, sink->seen++) {
        const int64_t s = what->index[i];
        for (int64_t t = 0; t < positions; t++)
            check_logits(sink, s, t, values[0] + (i * positions + t) * CLASSES);
        for (int64_t t = 0; t < masked; t++)
            assert_int_equal(((const int32_t *)columns[MASKED_LABELS])[i * masked + t],
                             masked_label(s, t));
        assert_int_equal(((const int32_t *)columns[IDS])[i * what->tokens],
                         token_id(s, 0));
    }
    return STATUS_OK;
}

static void test_forward(void **state) {
    (void)state;
    Model m;
    tokens_model(&m, false);
    for (int i = 0; i < 6; i++) {
        Sink sink = {.masked = i % 2};
        naive_open(&sink.naive, &m);
        Node *result = sink.masked ? m.masked_logits : m.token_logits;
        assert_ok(forward_batches(m.f.graph, &result, 1, &m.data.batches, 0, 1 + 3 * i,
                                  1 + i % 3, NULL, sink_take, &sink, m.f.diag),
                  m.f.diag);
        assert_int_equal(sink.seen, SENTENCES);
    }
    model_close(&m.f);
}

static void test_masked(void **state) {
    (void)state;
    Tokens data;
    tokens_open(&data);
    assert_int_equal(batches_masked(&data.batches, 8), 3);
    assert_int_equal(batches_masked(&data.batches, 0), 6);
    data.batches.masked = NULL;
    assert_int_equal(batches_masked(&data.batches, 8), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_naive),     cmocka_unit_test(test_no_rows),
        cmocka_unit_test(test_computed),  cmocka_unit_test(test_batches),
        cmocka_unit_test(test_threads),   cmocka_unit_test(test_fetches),
        cmocka_unit_test(test_bad_label), cmocka_unit_test(test_forward),
        cmocka_unit_test(test_masked),
    };
    return cmocka_run_group_tests_name("train_tokens", tests, NULL, NULL);
}
