/* attention_match against a plain double-precision version written from the formula, and
 * where it must vanish. */
#include "exec/linalg/blas.h"
#include "tests/exec/grad_harness.h"

enum { Q, K, TEACHER_Q, TEACHER_K, MASK, ROWS, KEYS_MOST = 200 };

/* Inner product of query t and key j of head h, of operands `q` and `q` + 1. */
static double score(const Problem *p, int q, int64_t n, int64_t h, int64_t t, int64_t j) {
    const AttentionMatchAttrs *a = p->node->attrs;
    const int64_t groups = a->kv_heads > 0 ? a->kv_heads : a->heads;
    const int64_t *dim = p->type[q].dim, *key_dim = p->type[q + 1].dim;
    const int64_t width = dim[2] / a->heads, g = h / (a->heads / groups);
    double sum = 0;
    for (int64_t c = 0; c < width; c++)
        sum += p->value[q][(n * dim[1] + t) * dim[2] + h * width + c] *
               p->value[q + 1][(n * key_dim[1] + j) * key_dim[2] + g * width + c];
    return sum;
}

/* P and A of a row, 0 where a key is left out. */
static void naive_rows(const Problem *p, int64_t n, int64_t h, int64_t t, double *soft,
                       double *linear) {
    const AttentionMatchAttrs *a = p->node->attrs;
    const int64_t keys = p->type[K].dim[1];
    const double width = (double)(p->type[TEACHER_Q].dim[2] / a->heads);
    const double scale = a->scale > 0 ? a->scale : 1 / sqrt(width);
    double soft_sum = 0, linear_sum = 0;
    for (int64_t j = 0; j < keys; j++) {
        const bool kept = (!p->integer[MASK] || p->integer[MASK][n * keys + j]) &&
                          !(a->causal && j > t);
        soft[j] = kept ? exp(scale * score(p, TEACHER_Q, n, h, t, j)) : 0;
        linear[j] = kept ? score(p, Q, n, h, t, j) : 0;
        soft_sum += soft[j];
        linear_sum += linear[j];
    }
    for (int64_t j = 0; j < keys; j++) {
        if (soft_sum > 0) soft[j] /= soft_sum;
        linear[j] /= fmax(linear_sum, a->eps);
    }
}

static double naive(const Problem *p) {
    const int64_t heads = ((const AttentionMatchAttrs *)p->node->attrs)->heads;
    const int64_t *dim = p->type[Q].dim, rows = dim[0] * heads * dim[1];
    double total = 0;
    for (int64_t row = 0; row < rows; row++) {
        double soft[KEYS_MOST], linear[KEYS_MOST], loss = 0, count = 0;
        const int64_t n = row / dim[1] / heads;
        const int32_t *counts = p->integer[ROWS] ? p->integer[ROWS] + n * dim[1] : NULL;
        if (counts && !counts[row % dim[1]]) continue;
        for (int64_t t = 0; t < dim[1]; t++) count += !counts || counts[t];
        naive_rows(p, n, row / dim[1] % heads, row % dim[1], soft, linear);
        for (int64_t j = 0; j < p->type[K].dim[1]; j++)
            loss -= soft[j] * log(fmax(linear[j], 1e-6));
        total += loss / ((double)(dim[0] * heads) * count);
    }
    return total;
}

static void test_values(void **state) {
    (void)state;
    static const Case CASES[] = {
        {"attention_match", "", "+1x4x3 +1x6x3 !1x4x5 !1x6x5"},
        {"attention_match", "heads=3 causal=true", "+2x9x6 +2x9x6 !2x9x12 !2x9x12 m2x9"},
        {"attention_match", "heads=4 kv_heads=2 scale=0.7 eps=25.0",
         "+2x150x32 +2x170x16 !2x150x8 !2x170x4 m2x170"},
        {"attention_match", "heads=2 causal=true",
         "+1x170x12 +1x150x12 !1x170x8 !1x150x8"},
        {"attention_match", "heads=2 causal=true eps=1.0",
         "2x40x12 2x50x12 !2x40x8 !2x50x8 m2x50"},
        {"attention_match", "", "2x4x3 2x6x3 !2x4x5 !2x6x5 i2x6<1"},
        {"attention_match", "heads=3 causal=true",
         "+3x9x6 +3x9x6 !3x9x12 !3x9x12 m3x9 m3x9"},
        {"attention_match", "heads=2 eps=1.0", "+3x7x6 +3x9x6 !3x7x4 !3x9x4 m3x9 i3x7<2"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Problem p;
        assert_ok(problem_create(&p, &CASES[i]), p.diag);
        for (int single = 0; single < 2; single++) {
            Result result = execute(&p, (Mode){.single = single});
            const double want = naive(&p);
            const double size = fmax(operand_size(&p), want);
            if (!(fabs(result.out[0] - want) <= value_tolerance(&p, single, size)))
                fail_msg("%s (%s): %.15g, expected %.15g", CASES[i].attrs,
                         CASES[i].operands, result.out[0], want);
            result_free(&result);
        }
        problem_destroy(&p);
    }
}

/* Features that give the teacher's rows exactly: the loss is the mean entropy of the
 * rows, its least value, and no gradient is left. */
static void test_minimum(void **state) {
    (void)state;
    enum { TOKENS = 5 };
    Problem p;
    const Case c = {"attention_match", "", "2x5x5 2x5x5 !2x5x4 !2x5x4"};
    assert_ok(problem_create(&p, &c), p.diag);
    double entropy = 0;
    for (int64_t row = 0; row < 2 * TOKENS; row++) {
        double soft[KEYS_MOST], linear[KEYS_MOST];
        naive_rows(&p, row / TOKENS, 0, row % TOKENS, soft, linear);
        for (int64_t j = 0; j < TOKENS; j++) {
            p.value[Q][row * TOKENS + j] = 3 * soft[j];
            p.value[K][row * TOKENS + j] = j == row % TOKENS;
            entropy -= soft[j] * log(soft[j]) / (2 * TOKENS);
        }
    }
    Result result = execute(&p, (Mode){.backward = true});
    assert_within(result.out[0], entropy, value_tolerance(&p, false, operand_size(&p)));
    static const double NOTHING[2 * TOKENS * TOKENS];
    for (int i = Q; i <= K; i++) /* differences of shares, which are 1 at most */
        compare_gradient(&p, "gradient", i, false, result.d_in[i], NOTHING, 1);
    result_free(&result);
    problem_destroy(&p);
}

/* Keys that are masked get no gradient and may hold anything finite. */
static void test_masked_keys(void **state) {
    (void)state;
    Problem p;
    const Case c = {"attention_match", "heads=2 causal=true eps=3.0",
                    "+1x9x8 +1x9x8 !1x9x6 !1x9x6 m1x9"};
    assert_ok(problem_create(&p, &c), p.diag);
    Result before = execute(&p, (Mode){.backward = true});
    for (int64_t j = 0; j < 9; j++)
        for (int64_t i = 0; !p.integer[MASK][j] && i < 8; i++) {
            assert_true(before.d_in[K][j * 8 + i] == 0);
            p.value[K][j * 8 + i] = 1e3;
        }
    Result after = execute(&p, (Mode){.backward = true});
    assert_true(before.out[0] == after.out[0]);
    assert_memory_equal(before.d_in[Q], after.d_in[Q], 72 * sizeof(double));
    result_free(&before);
    result_free(&after);
    problem_destroy(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_minimum),
        cmocka_unit_test(test_masked_keys),
    };
    blas_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
