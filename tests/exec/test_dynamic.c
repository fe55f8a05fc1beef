/* Dynamic inference against what the exits' logits say when all of them are computed: who
 * leaves where, with which logits, at what cost. */
#include "exec/dynamic.h"
#include "exec/ops.h"
#include "ir/irtext.h"
#include "ir/random.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/exits.h"
#include "tests/support/passes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the rule ---- */

static void test_entropy(void **state) {
    (void)state;
    const float even[] = {2, 2, 2, 2}, odd[] = {1, 1 + logf(3)};
    const float sure[] = {1000, 0, -1000}, half[] = {0, 0, -INFINITY};
    assert_true(fabs(exit_entropy(even, 4) - log(4)) < 1e-12);
    const double closed = -0.25 * log(0.25) - 0.75 * log(0.75);
    assert_true(fabs(exit_entropy(odd, 2) - closed) < 1e-6);
    assert_true(exit_entropy(sure, 3) == 0);
    assert_true(fabs(exit_entropy(half, 3) - log(2)) < 1e-12);
    assert_true(exit_entropy(even, 1) == 0);
}

static void test_entropy_leaves(void **state) {
    (void)state;
    const double threshold[] = {0.5, 0.6};
    const ExitRule rule = {.criterion = EXIT_ENTROPY, .threshold = threshold};
    const float z[] = {1, 1 + logf(3)}; /* entropy 0.5623 */
    ExitState nothing = {0};
    assert_false(exit_leaves(&rule, &nothing, 0, z, 2));
    assert_true(exit_leaves(&rule, &nothing, 1, z, 2));
    const float broken[] = {NAN, 0};
    assert_false(exit_leaves(&rule, &nothing, 1, broken, 2));
}

/* Exit at which a sample leaves whose exits predict these classes; -1 = none. */
static int leaves_at(int64_t patience, const int *predicted, int count) {
    const ExitRule rule = {.criterion = EXIT_PATIENCE, .patience = patience};
    ExitState memory = {0};
    for (int e = 0; e < count; e++) {
        float z[3] = {0};
        z[predicted[e]] = 1;
        if (exit_leaves(&rule, &memory, e, z, 3)) return e;
    }
    return -1;
}

static void test_patience(void **state) {
    (void)state;
    const int predicted[] = {1, 1, 2, 2, 2, 0};
    assert_int_equal(leaves_at(1, predicted, 6), 1);
    assert_int_equal(leaves_at(2, predicted, 6), 4);
    assert_int_equal(leaves_at(3, predicted, 6), -1);
    assert_int_equal(leaves_at(1, (int[]){0, 1, 0, 1}, 4), -1);
    assert_int_equal(leaves_at(1, (int[]){0, 0}, 2), 1);
}

/* ---- runs ---- */

enum { CLASSES = 3, EXITS_MOST = 6, SAMPLES_MOST = 60 };

typedef struct Case {
    Model *model;
    Batches *data;
    Node *exits[EXITS_MOST];
    int count;
    double flops[EXITS_MOST]; /* of one sample that leaves there */
    Diag *diag;
} Case;

/* Where samples left and with what; also whether their labels came along. */
typedef struct Taken {
    const Case *of;
    int exit[SAMPLES_MOST];
    float logits[SAMPLES_MOST][CLASSES];
    int64_t samples;
    DynamicReport report;
} Taken;

/* Logits of all exits. */
typedef struct All {
    int count;
    float logits[EXITS_MOST][SAMPLES_MOST][CLASSES];
} All;

static void case_open(Case *c, Model *model, Batches *data) {
    *c = (Case){.model = model, .data = data, .diag = diag_create()};
    for (int e = 1; e < EXITS_MOST; e++) {
        char name[16];
        snprintf(name, sizeof name, "exit.%d", e);
        Node *logits = graph_output(model->graph, name);
        if (logits) c->exits[c->count++] = logits;
    }
    c->exits[c->count++] = graph_output(model->graph, "logits");
    assert_ok(dynamic_flops(model->graph, c->exits, c->count,
                            data->length ? SENTENCE_TOKENS : 0, c->flops, c->diag),
              c->diag);
}

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

static void case_close(Case *c) {
    model_destroy(c->model);
    batches_destroy(c->data);
    diag_destroy(c->diag);
}

/* Columns that are inputs of the first stage are still there after the last. */
static void check_mask(const int32_t *mask, int64_t row, int64_t length) {
    for (int t = 0; t < SENTENCE_TOKENS; t++)
        assert_int_equal(mask[row * SENTENCE_TOKENS + t], t < length);
}

static Status take(void *self, const Fetch *what, const int *exit, const float *logits,
                   const void *const *columns, Diag *diag) {
    Taken *taken = self;
    const Batches *data = taken->of->data;
    const int32_t *labels = columns[batches_column(data, "labels")];
    (void)diag;
    for (int64_t i = 0; i < what->n; i++) {
        const int64_t s = what->index[i];
        taken->exit[s] = exit[i];
        memcpy(taken->logits[s], logits + i * CLASSES, sizeof taken->logits[s]);
        assert_int_equal(labels[i], data->length ? sentence_label(s) : s % 3);
        if (data->length) check_mask(columns[1], i, data->length(data, s));
    }
    taken->samples += what->n;
    return STATUS_OK;
}

static Status keep_all(void *self, const Fetch *what, const float *const *values,
                       const void *const *columns, Diag *diag) {
    All *all = self;
    (void)columns, (void)diag;
    for (int e = 0; e < all->count; e++)
        for (int64_t i = 0; i < what->n; i++)
            memcpy(all->logits[e][what->index[i]], values[e] + i * CLASSES,
                   CLASSES * sizeof(float));
    return STATUS_OK;
}

static void run_dynamic(Taken *taken, const Case *c, const ExitRule *rule, int64_t batch,
                        int threads) {
    memset(taken, 0, sizeof *taken);
    taken->of = c;
    assert_ok(dynamic_batches(c->model->graph, c->exits, c->count, rule, c->data, 0,
                              batch, threads, NULL, take, taken, &taken->report, c->diag),
              c->diag);
    assert_int_equal(taken->samples, c->data->count);
    assert_int_equal(taken->report.samples, c->data->count);
    assert_true(taken->report.seconds > 0);
}

static All *run_all(const Case *c, int64_t batch) {
    All *all = calloc(1, sizeof *all);
    all->count = c->count;
    assert_ok(forward_batches(c->model->graph, c->exits, c->count, c->data, 0, batch, 1,
                              NULL, keep_all, all, c->diag),
              c->diag);
    return all;
}

static bool is_close(double a, double b, double scale) {
    return fabs(a - b) <= 1e-6 * scale;
}

/* Every sample left where the logits of all exits say, with those logits, and only what
 * it needed was computed. Returns how many exits were taken at all. */
static int check_taken(const Taken *taken, const All *all, const ExitRule *rule) {
    const Case *c = taken->of;
    double flops = 0;
    bool used[EXITS_MOST] = {0};
    for (int64_t s = 0; s < c->data->count; s++) {
        ExitState memory = {0};
        int e = 0;
        while (e + 1 < c->count &&
               !exit_leaves(rule, &memory, e, all->logits[e][s], CLASSES))
            e++;
        assert_int_equal(taken->exit[s], e);
        for (int k = 0; k < CLASSES; k++)
            assert_true(is_close(taken->logits[s][k], all->logits[e][s][k], 4));
        flops += c->flops[e];
        used[e] = true;
    }
    assert_true(fabs(taken->report.flops - flops) <= 1e-9 * flops);
    int count = 0;
    for (int e = 0; e < c->count; e++) count += used[e];
    return count;
}

static int compare_doubles(const void *a, const void *b) {
    return (*(const double *)a > *(const double *)b) -
           (*(const double *)a < *(const double *)b);
}

/* A threshold for each exit that a fifth of all samples pass, halfway between two
 * entropies that are not near each other. */
static void choose_thresholds(const Case *c, const All *all, double *threshold) {
    for (int e = 0; e < c->count; e++) {
        double entropy[SAMPLES_MOST];
        int64_t n = c->data->count, at = n / 5;
        for (int64_t s = 0; s < n; s++)
            entropy[s] = exit_entropy(all->logits[e][s], CLASSES);
        qsort(entropy, (size_t)n, sizeof *entropy, compare_doubles);
        while (at + 1 < n && entropy[at + 1] - entropy[at] < 1e-3) at++;
        threshold[e] = (entropy[at] + entropy[at + 1]) / 2;
    }
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

/* Nothing is computed twice: all stages cost what one run for all exits does. */
static void check_sum(const Case *c) {
    Plan *plan = NULL;
    const PlanOptions options = {
        .sizes = {1, SENTENCE_TOKENS}, .results = c->exits, .result_count = c->count};
    assert_ok(plan_create(&plan, c->model->graph, &options, c->diag), c->diag);
    assert_true(c->flops[c->count - 1] == plan_flops(plan));
    plan_destroy(plan);
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

/* ---- graphs by hand ---- */

/* Inputs read at both ends and at one alone, a value that crosses two cuts, and one that
 * depends on weights alone and is read on both sides. */
static const char TEXT[] = "ir 1\n"
                           "input x : f32[N, 4]\n"
                           "input ids : i32[N]\n"
                           "param @a : f32[4, 4] init normal(0.8)\n"
                           "param @b : f32[4, 4] init normal(0.8)\n"
                           "param @rows : f32[5, 4] init normal(0.8)\n"
                           "param @head : f32[3, 4] init normal(0.8)\n"
                           "%6 = add(@a, @b) : f32[4, 4]\n"
                           "%7 = linear($x, %6) : f32[N, 4]\n"
                           "%8 = activation(%7) {fn=tanh} : f32[N, 4]\n"
                           "%9 = linear(%8, @head) : f32[N, 3]\n"
                           "%10 = linear(%8, %6) : f32[N, 4]\n"
                           "%11 = activation(%10) {fn=tanh} : f32[N, 4]\n"
                           "%12 = linear(%11, @head) : f32[N, 3]\n"
                           "%13 = embedding($ids, @rows) : f32[N, 4]\n"
                           "%14 = add(%11, %13) : f32[N, 4]\n"
                           "%15 = add(%14, %8) : f32[N, 4]\n"
                           "%16 = add(%15, $x) : f32[N, 4]\n"
                           "%17 = linear(%16, @head) : f32[N, 3]\n"
                           "output exit.1 = %9\n"
                           "output exit.2 = %12\n"
                           "output logits = %17\n"
                           "output beside = %13\n";

/* Rows of 4 numbers and an id; sample 11 has an id that can be spoilt. */
typedef struct Rows {
    Batches batches;
    int32_t id;
} Rows;

static Status rows_fetch(const Batches *self, const Fetch *what, void *const *dst,
                         Diag *diag) {
    (void)diag;
    for (int64_t i = 0; i < what->n; i++) {
        const int64_t s = what->index[i];
        for (int j = 0; j < 4; j++)
            ((float *)dst[0])[i * 4 + j] = (float)random_normal(8, (uint64_t)(s * 4 + j));
        ((int32_t *)dst[1])[i] = s == 11 ? ((const Rows *)self)->id : (int32_t)(s % 5);
        ((int32_t *)dst[2])[i] = (int32_t)(s % 3);
    }
    return STATUS_OK;
}

static void rows_destroy(Batches *self) {
    (void)self;
}

static Rows rows(int32_t id) {
    static const Column COLUMNS[] = {{"x", {.dtype = DTYPE_F32, .rank = 1, .dim = {4}}},
                                     {"ids", {.dtype = DTYPE_I32}},
                                     {"labels", {.dtype = DTYPE_I32}}};
    return (Rows){{.name = "rows",
                   .count = 30,
                   .columns = COLUMNS,
                   .column_count = 3,
                   .fetch = rows_fetch,
                   .destroy = rows_destroy},
                  id};
}

static Model *parse(const char *text) {
    Diag *diag = diag_create();
    Model *model = model_create(ops_table());
    assert_ok(graph_parse(&model->graph, model->arena, ops_table(), "text", text,
                          strlen(text), diag),
              diag);
    assert_ok(model_init_weights(model, 2, diag), diag);
    diag_destroy(diag);
    return model;
}

static void test_crossings(void **state) {
    (void)state;
    Case c;
    double threshold[EXITS_MOST];
    Rows data = rows(4);
    case_open(&c, parse(TEXT), &data.batches);
    All *all = run_all(&c, 1);
    choose_thresholds(&c, all, threshold);
    const ExitRule rule = {.criterion = EXIT_ENTROPY, .threshold = threshold};
    static const int64_t batches[] = {1, 4, 30};
    Taken *taken = malloc(sizeof *taken);
    for (int b = 0; b < 3; b++) {
        run_dynamic(taken, &c, &rule, batches[b], 2);
        for (int64_t s = 0; s < 30; s++)
            for (int k = 0; k < CLASSES; k++)
                assert_true(
                    is_close(taken->logits[s][k], all->logits[taken->exit[s]][s][k], 4));
    }
    assert_int_equal(check_taken(taken, all, &rule), 3);
    check_sum(&c);
    free(taken);
    free(all);
    case_close(&c);
}

static void expect(Diag *diag, const char *message) {
    char *text = NULL;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    diag_print(diag, out);
    fclose(out);
    if (!strstr(text, message)) fail_msg("expected '%s', found: %s", message, text);
    free(text);
    diag_clear(diag);
}

/* An id that only the last stage reads is checked where it is read. */
static void test_late_ids(void **state) {
    (void)state;
    Case c;
    DynamicReport report;
    Taken taken = {.of = &c};
    const double high[EXITS_MOST] = {9, 9, 9};
    const ExitRule never = {EXIT_NEVER}, first = {EXIT_ENTROPY, high, 0};
    Rows data = rows(5);
    case_open(&c, parse(TEXT), &data.batches);
    Graph *graph = c.model->graph;
    assert_int_equal(dynamic_batches(graph, c.exits, 3, &never, &data.batches, 0, 4, 2,
                                     NULL, take, &taken, &report, c.diag),
                     STATUS_MODEL);
    expect(c.diag, "rows: sample 11: expected ids from 0 to 4, found 5");
    assert_ok(dynamic_batches(graph, c.exits, 3, &first, &data.batches, 0, 4, 2, NULL,
                              take, &taken, &report, c.diag),
              c.diag);
    case_close(&c);
}

static void expect_refused(const Case *c, Node *const *exits, int count,
                           const char *message) {
    double flops[EXITS_MOST];
    assert_int_equal(dynamic_flops(c->model->graph, exits, count, 0, flops, c->diag),
                     STATUS_MODEL);
    expect(c->diag, message);
}

static void test_no_chain(void **state) {
    (void)state;
    static const char BESIDE[] = "ir 1\n"
                                 "input x : f32[N, 4]\n"
                                 "param @a : f32[4, 4] init normal(0.8)\n"
                                 "param @head : f32[3, 4] init normal(0.8)\n"
                                 "%3 = linear($x, @a) : f32[N, 4]\n"
                                 "%4 = linear(%3, @head) : f32[N, 3]\n"
                                 "%5 = activation($x) {fn=tanh} : f32[N, 4]\n"
                                 "%6 = linear(%5, @head) : f32[N, 3]\n"
                                 "output exit.1 = %4\n"
                                 "output logits = %6\n";
    Case c;
    Rows data = rows(4);
    case_open(&c, parse(TEXT), &data.batches);
    Node *const *e = c.exits;
    expect_refused(&c, (Node *[]){e[1], e[0], e[2]}, 3,
                   "exits that lie one behind the other, found exit 1 beside the next");
    expect_refused(&c, (Node *[]){e[0], e[0]}, 2, "found exit 2 among what an earlier");
    Node *beside = graph_output(c.model->graph, "beside");
    expect_refused(&c, (Node *[]){e[0], beside}, 2, "exit 2: expected as many classes");
    case_close(&c);
    Model *model = parse(BESIDE);
    Diag *diag = diag_create();
    double flops[2];
    Node *exits[] = {graph_output(model->graph, "exit.1"),
                     graph_output(model->graph, "logits")};
    assert_int_equal(dynamic_flops(model->graph, exits, 2, 0, flops, diag), STATUS_MODEL);
    expect(diag, "found exit 1 beside the next");
    diag_destroy(diag);
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entropy),   cmocka_unit_test(test_entropy_leaves),
        cmocka_unit_test(test_patience),  cmocka_unit_test(test_bert),
        cmocka_unit_test(test_vit),       cmocka_unit_test(test_never),
        cmocka_unit_test(test_first),     cmocka_unit_test(test_flops),
        cmocka_unit_test(test_limit),     cmocka_unit_test(test_stops),
        cmocka_unit_test(test_crossings), cmocka_unit_test(test_late_ids),
        cmocka_unit_test(test_no_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
