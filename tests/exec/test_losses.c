/* Values of the losses against their formulas, written out naively, in both precisions.
 * Their gradients are checked by test_grad.c. */
#include "exec/blas.h"
#include "tests/exec/grad_harness.h"

/* -sum q_c log p_c of two rows of logits over t, with `kl` of q_c (log q_c - log p_c). */
static double row_cross_entropy(const double *logits, const double *teacher, int64_t n,
                                double t, bool kl) {
    double z = 0, y = 0, loss = 0;
    for (int64_t c = 0; c < n; c++) {
        z += exp(logits[c] / t);
        y += exp(teacher[c] / t);
    }
    for (int64_t c = 0; c < n; c++) {
        const double log_p = log(exp(logits[c] / t) / z), q = exp(teacher[c] / t) / y;
        loss += q * ((kl ? log(q) : 0) - log_p);
    }
    return loss;
}

static double naive_cross_entropy(const Problem *p) {
    const int64_t rows = p->type[0].dim[0], classes = p->type[0].dim[1];
    const double e = ((const CrossEntropyAttrs *)p->node->attrs)->smoothing;
    double loss = 0;
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t c = 0; c < classes; c++) sum += exp(p->value[0][i * classes + c]);
        for (int64_t c = 0; c < classes; c++) {
            const double target =
                (c == p->integer[1][i] ? 1 - e : 0) + e / (double)classes;
            loss -= target * log(exp(p->value[0][i * classes + c]) / sum);
        }
    }
    return loss / (double)rows;
}

static double naive_soft_cross_entropy(const Problem *p) {
    const int64_t rows = p->type[0].dim[0], classes = p->type[0].dim[1];
    const SoftCrossEntropyAttrs *a = p->node->attrs;
    double loss = 0;
    for (int64_t i = 0; i < rows; i++)
        loss += row_cross_entropy(p->value[0] + i * classes, p->value[1] + i * classes,
                                  classes, a->temperature, a->kl);
    return a->temperature * a->temperature * loss / (double)rows;
}

static double inner(const double *x, const double *y, int64_t n) {
    double sum = 0;
    for (int64_t c = 0; c < n; c++) sum += x[c] * y[c];
    return sum;
}

static double naive_relation(const Problem *p) {
    const int64_t rows = p->type[0].dim[0] * p->type[0].dim[1], t = p->type[0].dim[1];
    double *score[2], loss = 0;
    for (int side = 0; side < 2; side++) score[side] = malloc((size_t)t * sizeof(double));
    for (int64_t i = 0; i < rows; i++) {
        for (int side = 0; side < 2; side++) {
            const int64_t w = p->type[2 * side].dim[2];
            const double *x = p->value[2 * side], *y = p->value[2 * side + 1];
            for (int64_t j = 0; j < t; j++)
                score[side][j] =
                    inner(x + i * w, y + (i / t * t + j) * w, w) / sqrt((double)w);
        }
        loss += row_cross_entropy(score[0], score[1], t, 1, false);
    }
    for (int side = 0; side < 2; side++) free(score[side]);
    return loss / (double)rows;
}

/* Cosine of rows i and j of operand `side`; 0 when one is all zeros. */
static double cosine(const Problem *p, int side, int64_t i, int64_t j) {
    const int64_t w = p->type[side].dim[2];
    const double *x = p->value[side] + i * w, *y = p->value[side] + j * w;
    const double square = inner(x, x, w) * inner(y, y, w);
    return square > 0 ? inner(x, y, w) / sqrt(square) : 0;
}

static double naive_gram(const Problem *p) {
    const int64_t n = p->type[0].dim[0], t = p->type[0].dim[1];
    double loss = 0;
    for (int64_t i = 0; i < n * t; i++)
        for (int64_t j = 0; j < t; j++) {
            const double g = cosine(p, 0, i, i / t * t + j);
            loss += pow(g - cosine(p, 1, i, i / t * t + j), 2);
        }
    return ((const GramMseAttrs *)p->node->attrs)->weight * loss / (double)(n * t * t);
}

static double naive_weighted_sum(const Problem *p) {
    const WeightedSumAttrs *a = p->node->attrs;
    double sum = 0;
    for (int i = 0; i < p->count; i++) sum += a->weights.items[i] * p->value[i][0];
    return sum;
}

static const struct {
    Case at;
    double (*naive)(const Problem *p);
} CASES[] = {
    {{"cross_entropy", "", "9x7 i9<7"}, naive_cross_entropy},
    {{"cross_entropy", "smoothing=0.1", "5x1003 i5<1003"}, naive_cross_entropy},
    {{"cross_entropy", "smoothing=1.0", "1x2 i1<2"}, naive_cross_entropy},
    {{"soft_cross_entropy", "", "9x7 9x7"}, naive_soft_cross_entropy},
    {{"soft_cross_entropy", "temperature=4.0", "5x1003 5x1003"},
     naive_soft_cross_entropy},
    {{"soft_cross_entropy", "temperature=0.5 kl=true", "3x33 3x33"},
     naive_soft_cross_entropy},
    {{"soft_cross_entropy", "kl=true", "3x33 =0"}, naive_soft_cross_entropy},
    {{"relation_cross_entropy", "", "2x5x8 2x5x8 2x5x6 2x5x6"}, naive_relation},
    {{"relation_cross_entropy", "", "1x300x9 =0 1x300x5 =2"}, naive_relation},
    {{"relation_cross_entropy", "", "3x1x2 3x1x2 3x1x4 3x1x4"}, naive_relation},
    {{"gram_mse", "weight=49.0", "2x5x8 2x5x6"}, naive_gram},
    {{"gram_mse", "", "1x67x17 1x67x3"}, naive_gram},
    {{"weighted_sum", "weights=[0.5, -2.0, 3.0]", "scalar scalar =0"},
     naive_weighted_sum},
};

static void test_values(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Problem p;
        assert_ok(problem_create(&p, &CASES[i].at), p.diag);
        assert_int_equal(p.out.rank, 0);
        const double want = CASES[i].naive(&p);
        for (int single = 0; single < 2; single++) {
            Result result = execute(&p, (Mode){.single = single});
            const double error = fabs(result.out[0] - want) / fmax(1, fabs(want));
            if (!(error <= (single ? 2e-6 : 1e-12)))
                fail_msg("%s %s: expected %.12g, found %.12g", CASES[i].at.op,
                         CASES[i].at.attrs, want, result.out[0]);
            result_free(&result);
        }
        problem_destroy(&p);
    }
}

/* Logits far apart overflow nothing. */
static void test_large_logits(void **state) {
    (void)state;
    static const char *const OPS[] = {"cross_entropy", "soft_cross_entropy"};
    static const char *const OPERANDS[] = {"1x5 i1<5", "1x5 =0"};
    for (int k = 0; k < 2; k++) {
        Problem p;
        assert_ok(problem_create(&p, &(Case){OPS[k], "", OPERANDS[k]}), p.diag);
        for (int c = 0; c < 5; c++) p.value[0][c] = 3e4 * (c - 2);
        if (k == 0) p.integer[1][0] = 0;
        Result result = execute(&p, (Mode){.single = true, .backward = true});
        assert_true(result.out[0] == (k == 0 ? 1.2e5 : 0));
        for (int c = 0; c < 5; c++) assert_true(isfinite(result.d_in[0][c]));
        result_free(&result);
        problem_destroy(&p);
    }
}

/* A token of zeros has no direction: it is compared as zeros and gets no gradient. */
static void test_gram_zero_row(void **state) {
    (void)state;
    Problem p;
    assert_ok(problem_create(&p, &(Case){"gram_mse", "", "2x5x8 2x5x6"}), p.diag);
    memset(p.value[0] + 8, 0, 8 * sizeof(double));
    for (int single = 0; single < 2; single++) {
        Result result = execute(&p, (Mode){.single = single, .backward = true});
        assert_true(fabs(result.out[0] - naive_gram(&p)) < 1e-6);
        for (int i = 0; i < 2 * 5 * 8; i++) {
            assert_true(isfinite(result.d_in[0][i]));
            if (i >= 8 && i < 16) assert_true(result.d_in[0][i] == 0);
        }
        result_free(&result);
    }
    problem_destroy(&p);
}

static void test_infer_refuses(void **state) {
    (void)state;
    static const Case WRONG[] = {
        {"cross_entropy", "", "5x7 i4<7"},
        {"cross_entropy", "", "5x7x2 i5<7"},
        {"cross_entropy", "", "NxT iN<7"},
        {"cross_entropy", "smoothing=1.5", "5x7 i5<7"},
        {"soft_cross_entropy", "", "5x7 5x8"},
        {"soft_cross_entropy", "temperature=0.0", "5x7 5x7"},
        {"relation_cross_entropy", "", "2x5x8 2x5x7 2x5x6 2x5x6"},
        {"relation_cross_entropy", "", "2x5x8 2x5x8 2x4x6 2x4x6"},
        {"relation_cross_entropy", "", "2x5x8 2x5x8 2x5x6 2x5x4"},
        {"relation_cross_entropy", "", "2x5xT 2x5xT 2x5x6 2x5x6"},
        {"gram_mse", "", "2x5x8 3x5x8"},
        {"gram_mse", "", "5x8 5x8"},
        {"weighted_sum", "weights=[1.0]", "scalar scalar"},
        {"weighted_sum", "weights=[1.0]", "1"},
    };
    for (size_t i = 0; i < sizeof WRONG / sizeof *WRONG; i++) {
        Problem p;
        if (problem_create(&p, &WRONG[i]) != STATUS_MODEL || diag_errors(p.diag) != 1)
            fail_msg("%s %s %s", WRONG[i].op, WRONG[i].attrs, WRONG[i].operands);
        problem_destroy(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_large_logits),
        cmocka_unit_test(test_gram_zero_row),
        cmocka_unit_test(test_infer_refuses),
    };
    blas_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
