/* Work of plans against what their shapes say. */
#include "exec/plan/plan_build.h"
#include "exec/plan/plan_work.h"
#include "ir/irtext.h"
#include "tests/support/check.h"

#include <string.h>

/* Two projections, the second a narrow one, with sums, a gelu and a loss between them. */
static const char GRAPH[] = "ir 1\n"
                            "input x : f32[N, 300]\n"
                            "input y : f32[N, 10]\n"
                            "param @a : f32[256, 300]%s\n"
                            "param @b : f32[256]\n"
                            "param @c : f32[10, 256]\n"
                            "%%1 = linear($x, @a, bias=@b) : f32[N, 256]\n"
                            "%%2 = activation(%%1) : f32[N, 256]\n"
                            "%%3 = linear(%%2, @c) : f32[N, 10]\n"
                            "%%4 = mean_squared_error(%%3, $y) : f32[]\n"
                            "output loss = %%4\n";

enum { SAMPLES = 7 };
static const double FIRST = 2.0 * SAMPLES * 256 * 300, SECOND = 2.0 * SAMPLES * 256 * 10;

static PlanWork work_of(const char *frozen, bool train, bool bf16) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Graph *graph;
    Plan *plan = NULL;
    const char *text = arena_printf(arena, GRAPH, frozen);
    assert_int_equal(
        graph_parse(&graph, arena, ops_table(), "g", text, strlen(text), diag),
        STATUS_OK);
    Node *loss = graph->outputs[0].node;
    PlanOptions options = {.results = &loss, .result_count = 1, .bf16 = bf16};
    options.loss = train ? loss : NULL;
    options.sizes[DIM_INDEX(DIM_N)] = SAMPLES;
    assert_int_equal(plan_create(&plan, graph, &options, diag), STATUS_OK);
    const PlanWork work = plan_work(plan);
    plan_destroy(plan);
    graph_release(graph);
    arena_destroy(arena);
    diag_destroy(diag);
    return work;
}

static void forward(void **state) {
    (void)state;
    const PlanWork work = work_of("", false, false);
    assert_float_equal(work.wide, FIRST, 0);
    assert_float_equal(work.narrow, SECOND, 0);
    assert_float_equal(work.rounded, 0, 0);
    assert_float_equal(plan_work_flops(&work), FIRST + SECOND, 0);
    /* the gelu reads and writes 256 floats of a sample, the loss reads twice 10 and
     * writes one number */
    assert_float_equal(work.bytes, 4.0 * (SAMPLES * (2 * 256 + 2 * 10) + 1), 0);
}

/* The first projection's input wants no gradient: one more product; the second's does. */
static void backward(void **state) {
    (void)state;
    const PlanWork work = work_of("", true, false);
    assert_float_equal(work.wide, 2 * FIRST, 0);
    assert_float_equal(work.narrow, 3 * SECOND, 0);
    assert_true(work.bytes > work_of("", false, false).bytes);
    /* a frozen matrix wants none, and so the first layer's bias alone is left */
    assert_float_equal(work_of(" frozen", true, false).wide, FIRST, 0);
}

static void rounded(void **state) {
    (void)state;
    const PlanWork work = work_of("", true, true);
    assert_float_equal(work.rounded, 2 * FIRST + 3 * SECOND, 0);
    assert_float_equal(work.wide + work.narrow, 0, 0);
    assert_float_equal(plan_work_times(work, 3).rounded, 3 * work.rounded, 1e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward), cmocka_unit_test(backward), cmocka_unit_test(rounded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
