/* Dynamic inference of graphs by hand: what crosses the cuts, and what cannot be cut. */
#include "exec/ops.h"
#include "ir/random.h"
#include "tests/exec/dynamic_fixture.h"
#include "tests/support/configured.h"

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

static void test_crossings(void **state) {
    (void)state;
    Case c;
    double threshold[EXITS_MOST];
    Rows data = rows(4);
    case_open(&c, parsed_model(TEXT, 2), &data.batches);
    All *all = run_all(&c, 1);
    choose_thresholds(&c, all, threshold);
    const ExitRule rule = {.criterion = EXIT_ENTROPY, .threshold = threshold};
    static const int64_t batches[] = {1, 4, 30};
    Taken *taken = malloc(sizeof *taken);
    for (int b = 0; b < 3; b++) {
        run_dynamic(taken, &c, &rule, batches[b], 2);
        for (int64_t s = 0; s < 30; s++)
            check_exit_logits(&c, taken->exit[s], taken->logits[s],
                              all->logits[taken->exit[s]][s]);
    }
    assert_int_equal(check_taken(taken, all, &rule), 3);
    check_sum(&c);
    free(taken);
    free(all);
    case_close(&c);
}

static void expect(Diag *diag, const char *message) {
    char *text = diag_text(diag);
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
    case_open(&c, parsed_model(TEXT, 2), &data.batches);
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
    case_open(&c, parsed_model(TEXT, 2), &data.batches);
    Node *const *e = c.exits;
    expect_refused(&c, (Node *[]){e[1], e[0], e[2]}, 3,
                   "exits that lie one behind the other, found exit 1 beside the next");
    expect_refused(&c, (Node *[]){e[0], e[0]}, 2, "found exit 2 among what an earlier");
    Node *beside = graph_output(c.model->graph, "beside");
    expect_refused(&c, (Node *[]){e[0], beside}, 2, "exit 2: expected as many classes");
    case_close(&c);
    Model *model = parsed_model(BESIDE, 2);
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
        cmocka_unit_test(test_crossings),
        cmocka_unit_test(test_late_ids),
        cmocka_unit_test(test_no_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
