/* linear_attention against naive forms in double precision: every cut into chunks, masks,
 * groups of heads, what the clamp does to gradients. */
#include "exec/linalg/blas.h"
#include "exec/run/clamp_count.h"
#include "tests/exec/linear_naive.h"

enum { DRAWN = 1 }; /* size of values, which are standard normal */

static void open_problem(Problem *p, const char *operands, const char *format, ...) {
    char attrs[LINE_MAX_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(attrs, sizeof attrs, format, list);
    va_end(list);
    const Case c = {"linear_attention", attrs, operands};
    assert_ok(problem_create(p, &c), p->diag);
}

static double *new_out(const Problem *p) {
    return calloc((size_t)type_count(&p->out), sizeof(double));
}

static Result run(const Problem *p, bool single) {
    return execute(p, (Mode){.single = single, .backward = true});
}

/* Values and, for gradients, those of the first cut, which is one chunk. */
static void check_cut(const Problem *p, const Result *whole) {
    double *recurrent = new_out(p), *parallel = new_out(p);
    naive_recurrent(p, recurrent);
    naive_parallel(p, parallel);
    for (int single = 0; single < 2; single++) {
        Result result = run(p, single);
        compare_value(p, "recurrence", single, result.out, recurrent, DRAWN);
        compare_value(p, "masked scores", single, result.out, parallel, DRAWN);
        for (int i = LINEAR_Q; i <= LINEAR_V; i++)
            compare_gradient(p, "gradient", i, single, result.d_in[i], whole->d_in[i],
                             DRAWN);
        result_free(&result);
    }
    free(recurrent);
    free(parallel);
}

/* One shape by every cut; eps lies among the denominators. */
static void check_cuts(int64_t queries, int64_t keys, const char *attrs, bool mask) {
    const int64_t longest = queries > keys ? queries : keys;
    const int64_t cuts[] = {longest + 5, longest, 1, 3, 7, 0};
    char operands[LINE_MAX_BYTES];
    snprintf(operands, sizeof operands, "+2x%lldx24 +2x%lldx12 2x%lldx10",
             (long long)queries, (long long)keys, (long long)keys);
    if (mask) snprintf(operands + strlen(operands), 32, " m2x%lld", (long long)keys);
    Result whole = {NULL};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        Problem p;
        open_problem(&p, operands, "heads=4 kv_heads=2 %s eps=%g chunk=%lld", attrs,
                     4.0 * (double)(mask ? keys + 1 : keys) / 2, (long long)cuts[i]);
        if (i == 0) whole = run(&p, false);
        check_cut(&p, &whole);
        problem_destroy(&p);
    }
    result_free(&whole);
}

static void test_chunks(void **state) {
    (void)state;
    static const int64_t LENGTHS[] = {1, 2, 3, 7, 8, 31, 32, 33, 70};
    for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++)
        for (int mask = 0; mask < 2; mask++) {
            check_cuts(LENGTHS[i], LENGTHS[i], "causal=true", mask);
            check_cuts(LENGTHS[i], LENGTHS[i], "causal=false", mask);
        }
}

/* Sources that end before the queries do, or go on behind them. */
static void test_unequal_lengths(void **state) {
    (void)state;
    static const int64_t LENGTHS[][2] = {{1, 9}, {9, 1}, {5, 40}, {40, 5}, {33, 34}};
    for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++)
        for (int mask = 0; mask < 2; mask++) {
            check_cuts(LENGTHS[i][0], LENGTHS[i][1], "causal=true", mask);
            check_cuts(LENGTHS[i][0], LENGTHS[i][1], "causal=false", mask);
        }
}

/* The second half of the tokens, from the state that the first half left. */
static void test_left_context(void **state) {
    (void)state;
    enum { TOKENS = 40, HALF = 23 };
    Problem p;
    open_problem(&p, "+2x40x12 +2x40x12 2x40x8", "heads=2 causal=true chunk=16 eps=20.0");
    const Sizes s = sizes_of(&p);
    double *want = new_out(&p);
    for (int64_t n = 0; n < s.samples; n++)
        for (int64_t h = 0; h < s.heads; h++) {
            State left = {{0}, {0}};
            for (int64_t j = 0; j < HALF; j++) state_absorb(&left, &p, n, h, j);
            naive_recurrence(&p, n, h, HALF, TOKENS, &left, want);
        }
    Result result = run(&p, false);
    for (int64_t n = 0; n < s.samples; n++)
        rounding_compare("second half", result.out + out_at(&s, n, HALF, 0),
                         want + out_at(&s, n, HALF, 0), (TOKENS - HALF) * s.heads * s.e,
                         PRECISION_F64, rounding_node_terms(p.node, SIZES), DRAWN);
    result_free(&result);
    free(want);
    problem_destroy(&p);
}

/* Later tokens change nothing before them, however the chunks lie. */
static void test_causality(void **state) {
    (void)state;
    enum { CHANGED = 11 };
    Problem p;
    open_problem(&p, "+1x20x12 +1x20x12 1x20x8", "heads=2 causal=true chunk=8 eps=9.0");
    const Sizes s = sizes_of(&p);
    Result before = run(&p, false);
    for (int i = LINEAR_K; i <= LINEAR_V; i++) {
        const int64_t width = p.type[i].dim[2];
        for (int64_t j = CHANGED * width; j < s.keys * width; j++) p.value[i][j] = 1e3;
    }
    Result after = run(&p, false);
    assert_memory_equal(after.out, before.out,
                        (size_t)(CHANGED * s.heads * s.e) * sizeof(double));
    assert_true(fabs(after.out[out_at(&s, 0, CHANGED, 0)] -
                     before.out[out_at(&s, 0, CHANGED, 0)]) > 1);
    result_free(&before);
    result_free(&after);
    problem_destroy(&p);
}

/* Masked tokens may hold anything, NaN too, and get no gradient; what is left equals a
 * run over the other tokens alone. */
static void test_padding(void **state) {
    (void)state;
    enum { KEPT = 9, TOKENS = 14 };
    for (int causal = 0; causal < 2; causal++) {
        Problem longer, shorter;
        const char *flag = causal ? "true" : "false";
        open_problem(&longer, "+1x9x12 +1x14x12 1x14x8 i1x14<1",
                     "heads=2 causal=%s chunk=4", flag);
        open_problem(&shorter, "+1x9x12 +1x9x12 1x9x8", "heads=2 causal=%s chunk=4",
                     flag);
        for (int j = 0; j < KEPT; j++) longer.integer[LINEAR_MASK][j] = 1;
        for (int i = LINEAR_K; i <= LINEAR_V; i++) {
            const int64_t width = longer.type[i].dim[2];
            memcpy(longer.value[i], shorter.value[i],
                   (size_t)(KEPT * width) * sizeof(double));
            for (int64_t j = KEPT * width; j < TOKENS * width; j++)
                longer.value[i][j] = (double)NAN;
        }
        Result padded = run(&longer, false), alone = run(&shorter, false);
        compare_value(&shorter, "value", false, padded.out, alone.out, DRAWN);
        for (int i = LINEAR_Q; i <= LINEAR_V; i++) {
            const int64_t count = type_count(&shorter.type[i]);
            compare_gradient(&shorter, "gradient", i, false, padded.d_in[i],
                             alone.d_in[i], DRAWN);
            for (int64_t j = count; j < type_count(&longer.type[i]); j++)
                assert_true(padded.d_in[i][j] == 0);
        }
        result_free(&padded);
        result_free(&alone);
        problem_destroy(&longer);
        problem_destroy(&shorter);
    }
}

/* to[.., heads, width] = every head of from[.., groups, width] `share` times. */
static void repeat_heads(double *to, const double *from, int64_t rows, int64_t groups,
                         int64_t share, int64_t width) {
    for (int64_t r = 0; r < rows * groups; r++)
        for (int64_t h = 0; h < share; h++)
            memcpy(to + (r * share + h) * width, from + r * width,
                   (size_t)width * sizeof *to);
}

static void test_groups(void **state) {
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        Problem grouped, repeated;
        const char *flag = causal ? "true" : "false";
        open_problem(&grouped, "+2x20x24 +2x20x8 2x20x10 m2x20",
                     "heads=6 kv_heads=2 causal=%s chunk=8 eps=8.0", flag);
        open_problem(&repeated, "+2x20x24 +2x20x24 2x20x30 m2x20",
                     "heads=6 causal=%s chunk=8 eps=8.0", flag);
        repeat_heads(repeated.value[LINEAR_K], grouped.value[LINEAR_K], 40, 2, 3, 4);
        repeat_heads(repeated.value[LINEAR_V], grouped.value[LINEAR_V], 40, 2, 3, 5);
        Result got = run(&grouped, false), want = run(&repeated, false);
        compare_value(&grouped, "value", false, got.out, want.out, DRAWN);
        compare_gradient(&grouped, "gradient", LINEAR_Q, false, got.d_in[LINEAR_Q],
                         want.d_in[LINEAR_Q], DRAWN);
        for (int i = LINEAR_K; i <= LINEAR_V; i++) {
            const int64_t width = i == LINEAR_K ? 4 : 5, count = 40 * 2 * width;
            double *sum = calloc((size_t)count, sizeof *sum);
            for (int64_t j = 0; j < 3 * count; j++)
                sum[j / width / 3 * width + j % width] += want.d_in[i][j];
            compare_gradient(&grouped, "gradient", i, false, got.d_in[i], sum, DRAWN);
            free(sum);
        }
        result_free(&got);
        result_free(&want);
        problem_destroy(&grouped);
        problem_destroy(&repeated);
    }
}

static double product(const double *x, const double *y, int64_t count) {
    double sum = 0;
    for (int64_t j = 0; j < count; j++) sum += x[j] * y[j];
    return sum;
}

/* By Euler: the result does not change when q or k grow by a factor, unless every row is
 * clamped: then it grows by it. It always grows with v. */
static void test_clamp(void **state) {
    (void)state;
    static const char *const EPS[] = {"1e-6", "1e5"};
    for (int clamped = 0; clamped < 2; clamped++)
        for (int causal = 0; causal < 2; causal++) {
            Problem p;
            open_problem(&p, "+2x20x12 +2x20x12 2x20x8",
                         "heads=2 causal=%s chunk=8 eps=%s", causal ? "true" : "false",
                         EPS[clamped]);
            Result result = run(&p, false);
            const double loss = product(result.out, p.weight, type_count(&p.out));
            for (int i = LINEAR_Q; i <= LINEAR_V; i++) {
                const int64_t count = type_count(&p.type[i]);
                const double found = product(result.d_in[i], p.value[i], count);
                const double expected = i == LINEAR_V || clamped ? loss : 0;
                double size = 0;
                for (int64_t j = 0; j < count; j++)
                    size += fabs(result.d_in[i][j] * p.value[i][j]);
                const double terms =
                    rounding_operand_terms(p.node, i, SIZES) + (double)count;
                assert_within(found, expected,
                              rounding_tolerance(PRECISION_F64, terms, size));
            }
            result_free(&result);
            problem_destroy(&p);
        }
}

/* Clamped rows, of all queries and of those that are kept, against the recurrence. */
static void test_count(void **state) {
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        Problem p;
        open_problem(&p, "+NxTx24 +NxTx12 NxTx10 mNxT",
                     "heads=4 kv_heads=2 causal=%s eps=13.0", causal ? "true" : "false");
        const Sizes s = sizes_of(&p);
        double out[64];
        ClampCount want = {0, 0}, got = {0, 0}, all = {0, 0};
        int64_t clamped = 0;
        for (int64_t row = 0; row < s.samples * s.heads * s.queries; row++) {
            const int64_t n = row / s.heads / s.queries, h = row / s.queries % s.heads;
            const int64_t t = row % s.queries;
            State seen = {{0}, {0}};
            for (int64_t j = 0; j < s.keys && (!causal || j <= t); j++)
                state_absorb(&seen, &p, n, h, j);
            const bool below = state_read(&seen, &p, n, h, t, out) < s.eps;
            clamped += below;
            want.rows += counts(&p, n, t);
            want.clamped += counts(&p, n, t) && below;
        }
        float *q = to_reals(p.value[LINEAR_Q], type_count(&p.type[LINEAR_Q]), true);
        float *k = to_reals(p.value[LINEAR_K], type_count(&p.type[LINEAR_K]), true);
        const int32_t *mask = p.integer[LINEAR_MASK];
        linear_attention_count(&got, p.node, SIZES, q, k, mask, mask);
        linear_attention_count(&all, p.node, SIZES, q, k, mask, NULL);
        assert_int_equal(got.rows, want.rows);
        assert_int_equal(got.clamped, want.clamped);
        assert_int_equal(all.rows, s.samples * s.heads * s.queries);
        assert_int_equal(all.clamped, clamped);
        assert_true(0 < clamped && clamped < all.rows && all.clamped > got.clamped);
        free(q);
        free(k);
        problem_destroy(&p);
    }
}

static double flops_of(const char *operands, const char *attrs) {
    Problem p;
    open_problem(&p, operands, "%s", attrs);
    View in[OPERANDS_MAX];
    make_inputs(&p, &(Mode){.single = true}, in);
    const double flops = p.node->op->flops(
        &(Call){.node = p.node, .attrs = p.node->attrs, .in_count = p.count, .in = in});
    for (int i = 0; i < p.count; i++) free(in[i].data);
    problem_destroy(&p);
    return flops;
}

/* Products counted by hand; twice the tokens cost about twice as much. */
static void test_flops(void **state) {
    (void)state;
    /* 2 heads, f = 3, e + 1 = 5: the whole source, then 10 queries */
    assert_true(flops_of("1x10x6 1x8x6 1x8x8", "heads=2") == 2 * 2 * (8 + 10) * 15);
    /* chunks of 4, 4, 2: scores and values inside, queries behind the first against S',
     * and two additions to S' */
    assert_true(flops_of("1x10x6 1x10x6 1x10x8", "heads=2 causal=true chunk=4") ==
                2 * 2 * ((16 + 16 + 4) * (3 + 5) + 6 * 15 + 8 * 15));
    const double once = flops_of("1x1024x64 1x1024x64 1x1024x64", "causal=true");
    const double twice = flops_of("1x2048x64 1x2048x64 1x2048x64", "causal=true");
    assert_true(twice > 2 * once && twice < 2.03 * once);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks),       cmocka_unit_test(test_unequal_lengths),
        cmocka_unit_test(test_left_context), cmocka_unit_test(test_causality),
        cmocka_unit_test(test_padding),      cmocka_unit_test(test_groups),
        cmocka_unit_test(test_clamp),        cmocka_unit_test(test_count),
        cmocka_unit_test(test_flops),
    };
    blas_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
