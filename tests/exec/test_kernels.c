/* Kernels against their formulas, written out naively here. */
#include "exec/linalg/blas.h"
#include "exec/linalg/gemm.h"
#include "tests/exec/grad_harness.h"

#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#include "exec/ops/kernel_math.h"

static Problem make_problem(const char *op, const char *attrs, const char *operands) {
    Problem p;
    assert_ok(problem_create(&p, &(Case){op, attrs, operands}), p.diag);
    return p;
}

/* A sum of products, and what bounds its rounding: their number and absolute values. */
typedef struct Sum {
    double value, terms, magnitude;
} Sum;

static void sum_add(Sum *sum, double a, double b) {
    sum->value += a * b;
    sum->terms++;
    sum->magnitude += fabs(a * b);
}

static void assert_sum(double got, const Sum *want) {
    assert_within(got, want->value,
                  rounding_tolerance(PRECISION_F64, want->terms, want->magnitude));
}

/* linear over patches of 2 x 3 x 6 x 8 images with weights [5, 3, 2, 2] is the
 * convolution with stride 2. */
static void test_patches_and_linear_convolve(void **state) {
    (void)state;
    enum { N = 2, C = 3, H = 6, W = 8, P = 2, D = 5, ROWS = H / P, COLUMNS = W / P };
    Problem cut = make_problem("patches", "size=2", "2x3x6x8");
    Problem mul = make_problem("linear", "", "2x12x12 5x3x2x2 5");
    Result patches = execute(&cut, (Mode){0});
    memcpy(mul.value[0], patches.out, sizeof(double) * N * C * H * W);
    Result y = execute(&mul, (Mode){0});
    for (int r = 0; r < N * ROWS * COLUMNS * D; r++) {
        const int d = r % D, j = r / D % COLUMNS, i = r / D / COLUMNS % ROWS,
                  n = r / D / COLUMNS / ROWS;
        Sum sum = {0};
        sum_add(&sum, mul.value[2][d], 1);
        for (int t = 0; t < C * P * P; t++) {
            const int c = t / (P * P), u = t / P % P, v = t % P;
            sum_add(&sum, mul.value[1][d * C * P * P + t],
                    cut.value[0][((n * C + c) * H + i * P + u) * W + j * P + v]);
        }
        assert_sum(y.out[r], &sum);
    }
    result_free(&patches);
    result_free(&y);
    problem_destroy(&cut);
    problem_destroy(&mul);
}

/* Element (n, i, j, c) of the depth-wise convolution after `skip` tokens. */
static Sum convolve_at(const Problem *p, int64_t n, int64_t i, int64_t j, int64_t c) {
    const DepthwiseConvAttrs *a = p->node->attrs;
    const int64_t T = p->type[0].dim[1], D = p->type[0].dim[2], K = p->type[1].dim[2];
    Sum sum = {0};
    if (p->value[2]) sum_add(&sum, p->value[2][c], 1);
    for (int64_t u = 0; u < K; u++)
        for (int64_t v = 0; v < K; v++) {
            const int64_t row = i + u - K / 2, column = j + v - K / 2;
            if (row < 0 || row >= a->grid_h || column < 0 || column >= a->grid_w)
                continue;
            const int64_t token = n * T + a->skip + row * a->grid_w + column;
            sum_add(&sum, p->value[1][(c * K + u) * K + v], p->value[0][token * D + c]);
        }
    return sum;
}

static void check_depthwise(const char *attrs, const char *operands) {
    Problem p = make_problem("depthwise_conv", attrs, operands);
    const DepthwiseConvAttrs *a = p.node->attrs;
    const int64_t T = p.type[0].dim[1], D = p.type[0].dim[2];
    Result y = execute(&p, (Mode){0});
    for (int64_t e = 0; e < type_count(&p.out); e++) {
        const int64_t n = e / D / T, t = e / D % T - a->skip;
        Sum want = {0};
        if (t >= 0) want = convolve_at(&p, n, t / a->grid_w, t % a->grid_w, e % D);
        assert_sum(y.out[e], &want);
    }
    result_free(&y);
    problem_destroy(&p);
}

static void test_depthwise_conv(void **state) {
    (void)state;
    check_depthwise("grid_h=4 grid_w=3 skip=1", "2x13x5 5x1x3x3 5");
    check_depthwise("grid_h=3 grid_w=5", "2x15x7 7x1x5x5 -");
    check_depthwise("grid_h=2 grid_w=2 skip=3", "1x7x18 18x1x1x1 18");
}

/* One row takes the way of a vector times a matrix. */
static void check_linear(const char *attrs, const char *operands) {
    Problem p = make_problem("linear", attrs, operands);
    const bool transposed = attrs[0] != 0;
    const int64_t K = p.type[1].dim[!transposed], M = p.type[1].dim[transposed];
    Result y = execute(&p, (Mode){0});
    for (int64_t e = 0; e < type_count(&p.out); e++) {
        Sum sum = {0};
        if (p.value[2]) sum_add(&sum, p.value[2][e % M], 1);
        for (int64_t k = 0; k < K; k++)
            sum_add(&sum, p.value[0][e / M * K + k],
                    p.value[1][transposed ? k * M + e % M : e % M * K + k]);
        assert_sum(y.out[e], &sum);
    }
    result_free(&y);
    problem_destroy(&p);
}

static void test_linear(void **state) {
    (void)state;
    check_linear("", "1x33 19x33 19");
    check_linear("", "1x33 19x33 -");
    check_linear("", "2x5x33 19x33 19");
    check_linear("transposed=true", "1x33 33x19 19");
    check_linear("transposed=true", "1x33 33x19 -");
    check_linear("transposed=true", "2x5x33 33x19 19");
}

/* What every combination of op(A) and op(B) gives, one row and several. */
static void test_gemm_transposes(void **state) {
    (void)state;
    enum { K = 5, N = 7, M_MAX = 3, LDC = 9 };
    double *a = random_values(M_MAX * K, 1), *b = random_values(N * K, 2);
    for (int i = 0; i < 8; i++) {
        const bool trans_a = i & 1, trans_b = i & 2;
        const int m = i & 4 ? M_MAX : 1;
        double c[M_MAX * LDC] = {0};
        gemm_f64(trans_a, trans_b, m, N, K, 2, a, trans_a ? m : K, b, trans_b ? K : N, 0,
                 c, LDC);
        for (int e = 0; e < m * N; e++) {
            Sum sum = {0};
            for (int k = 0; k < K; k++)
                sum_add(&sum, 2 * (trans_a ? a[k * m + e / N] : a[e / N * K + k]),
                        trans_b ? b[e % N * K + k] : b[k * N + e % N]);
            assert_sum(c[e / N * LDC + e % N], &sum);
        }
    }
    free(a);
    free(b);
}

/* b[i % dim, ...] is added to a. */
static void check_add(const char *operands) {
    Problem p = make_problem("add", "", operands);
    Result y = execute(&p, (Mode){0});
    for (int64_t e = 0; e < type_count(&p.out); e++) {
        int64_t rest = e, from = 0, step = 1;
        for (int i = p.out.rank - 1; i >= 0; i--) {
            const int64_t index = rest % p.out.dim[i];
            rest /= p.out.dim[i];
            from += p.type[1].dim[i] == 1 ? 0 : index * step;
            step *= p.type[1].dim[i];
        }
        assert_true(y.out[e] == p.value[0][e] + p.value[1][from]);
    }
    result_free(&y);
    problem_destroy(&p);
}

static void test_add_repeats(void **state) {
    (void)state;
    check_add("2x3x5 2x3x5");
    check_add("4x3x17 4x1x17");
    check_add("4x3x17 1x3x1");
    check_add("2x3x4x5 2x1x4x1");
    check_add("2x3x4x5 1x3x1x5");
    check_add("2x2x3x1x2x5 2x1x3x1x1x5");
    check_add("2x3 1x1");
    check_add("scalar scalar");
}

static void test_layer_norm_rows(void **state) {
    (void)state;
    enum { R = 6, D = 37 };
    Problem p = make_problem("layer_norm", "eps=1e-12", "2x3x37 37 37");
    for (int j = 0; j < D; j++) p.value[1][j] = 1, p.value[2][j] = 0;
    for (int j = 0; j < R * D; j++) p.value[0][j] = 5 * p.value[0][j] + 100;
    for (int single = 0; single < 2; single++) {
        Result y = execute(&p, (Mode){.single = single});
        for (int r = 0; r < R; r++) {
            double mean = 0, var = 0;
            for (int j = 0; j < D; j++) mean += y.out[r * D + j] / D;
            for (int j = 0; j < D; j++) var += pow(y.out[r * D + j] - mean, 2) / D;
            /* the mean, about 100, is taken from values that lie 5 around it: twenty
             * times the rounding of a row */
            const double tolerance = value_tolerance(&p, single, 100.0 / 5);
            assert_within(mean, 0, tolerance);
            assert_within(var, 1, 2 * tolerance);
        }
        result_free(&y);
    }
    problem_destroy(&p);
}

static void test_layer_norm_formula(void **state) {
    (void)state;
    Problem p = make_problem("layer_norm", "eps=0.5", "3x7 7 7");
    Result y = execute(&p, (Mode){0});
    for (int e = 0; e < 21; e++) {
        const double *row = p.value[0] + e / 7 * 7;
        double mean = 0, var = 0;
        for (int j = 0; j < 7; j++) mean += row[j] / 7;
        for (int j = 0; j < 7; j++) var += (row[j] - mean) * (row[j] - mean) / 7;
        const double h = (row[e % 7] - mean) / sqrt(var + 0.5);
        const double a = h * p.value[1][e % 7], b = p.value[2][e % 7];
        assert_within(y.out[e], a + b, value_tolerance(&p, false, fabs(a) + fabs(b)));
    }
    result_free(&y);
    problem_destroy(&p);
}

/* Checks that element e of the result is what `at` finds in the operands. */
static void check_tokens(const char *op, const char *attrs, const char *operands,
                         double (*at)(const Problem *, int64_t, int64_t, int64_t)) {
    Problem p = make_problem(op, attrs, operands);
    Result y = execute(&p, (Mode){0});
    const int64_t D = p.type[0].dim[2], T = p.out.rank == 3 ? p.out.dim[1] : 1;
    const double tolerance = value_tolerance(&p, false, operand_size(&p));
    for (int64_t e = 0; e < type_count(&p.out); e++)
        assert_within(y.out[e], at(&p, e / D / T, e / D % T, e % D), tolerance);
    result_free(&y);
    problem_destroy(&p);
}

/* x[n, t, j] of the first operand. */
static double token_at(const Problem *p, int64_t n, int64_t t, int64_t j) {
    return p->value[0][(n * p->type[0].dim[1] + t) * p->type[0].dim[2] + j];
}

static double prepended_at(const Problem *p, int64_t n, int64_t t, int64_t j) {
    return t == 0 ? p->value[1][j] : token_at(p, n, t - 1, j);
}

static double sliced_at(const Problem *p, int64_t n, int64_t t, int64_t j) {
    return token_at(p, n, t + 2, j);
}

static double selected_at(const Problem *p, int64_t n, int64_t t, int64_t j) {
    return token_at(p, n, t + 1, j);
}

static double gathered_at(const Problem *p, int64_t n, int64_t t, int64_t j) {
    return token_at(p, n, p->integer[1][n * p->type[1].dim[1] + t], j);
}

static double mean_at(const Problem *p, int64_t n, int64_t t, int64_t j) {
    const int64_t tokens = p->type[0].dim[1];
    double sum = 0, count = 0;
    for (t = 0; t < tokens; t++) {
        const double counts = p->integer[1] ? p->integer[1][n * tokens + t] : 1;
        sum += counts * token_at(p, n, t, j);
        count += counts;
    }
    return sum / count;
}

static void test_tokens(void **state) {
    (void)state;
    check_tokens("prepend_token", "", "3x4x5 1x1x5", prepended_at);
    check_tokens("slice_tokens", "from=2", "3x4x5", sliced_at);
    check_tokens("select_token", "index=1", "3x4x5", selected_at);
    check_tokens("gather_tokens", "", "3x4x5 i3x2<4", gathered_at);
    check_tokens("gather_tokens", "", "3x4x5 i3x9<4", gathered_at);
    check_tokens("mean_tokens", "", "3x4x5", mean_at);
    check_tokens("mean_tokens", "", "3x4x5 m3x4", mean_at);
}

/* Each row of exp(x / t) / sum, also where exp(x / t) would overflow. */
static void test_softmax(void **state) {
    (void)state;
    Problem p = make_problem("softmax", "temperature=0.5", "2x3x37");
    for (int j = 0; j < 37; j++) p.value[0][j] = 500 + j % 5;
    for (int single = 0; single < 2; single++) {
        Result y = execute(&p, (Mode){.single = single});
        for (int e = 0; e < 2 * 3 * 37; e++) {
            const double *x = p.value[0] + e / 37 * 37;
            double sum = 0;
            for (int j = 0; j < 37; j++) sum += exp((x[j] - x[e % 37]) / 0.5);
            assert_within(y.out[e], 1 / sum, value_tolerance(&p, single, 1 / sum));
        }
        result_free(&y);
    }
    problem_destroy(&p);
}

static void test_scale_gradient_is_identity(void **state) {
    (void)state;
    Problem p = make_problem("scale_gradient", "by=0.25", "3x37");
    Result y = execute(&p, (Mode){.backward = true});
    for (int e = 0; e < 3 * 37; e++) {
        assert_true(y.out[e] == p.value[0][e]);
        assert_true(y.d_in[0][e] == 0.25 * p.weight[e]);
    }
    result_free(&y);
    problem_destroy(&p);
}

static double activation_at(int fn, double x) {
    switch (fn) {
    case ACTIVATION_GELU: return x * 0.5 * erfc(-x / sqrt(2));
    case ACTIVATION_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ACTIVATION_RELU: return fmax(x, 0);
    case ACTIVATION_TANH: return tanh(x);
    case ACTIVATION_SIGMOID: return 1 / (1 + exp(-x));
    default: return x / (1 + exp(-x));
    }
}

static void test_activations(void **state) {
    (void)state;
    static const char *const NAMES[] = {"gelu", "gelu_tanh", "relu",
                                        "tanh", "sigmoid",   "silu"};
    for (int fn = 0; fn < 6; fn++)
        for (int single = 0; single < 2; single++) {
            char attrs[32];
            snprintf(attrs, sizeof attrs, "fn=%s", NAMES[fn]);
            Problem p = make_problem("activation", attrs, "2001");
            for (int i = 0; i < 2001; i++) p.value[0][i] = (i - 1000) / 64.0;
            Result y = execute(&p, (Mode){.single = single});
            for (int i = 0; i < 2001; i++)
                assert_within(y.out[i], activation_at(fn, p.value[0][i]),
                              value_tolerance(&p, single, fmax(1, fabs(y.out[i]))));
            result_free(&y);
            problem_destroy(&p);
        }
}

/* Largest relative error of f against g over [low, high]. */
static double relative_error(float (*f)(float), double (*g)(double), double low,
                             double high) {
    enum { STEPS = 200000 };
    double worst = 0;
    for (int i = 0; i <= STEPS; i++) {
        const float x = (float)(low + (high - low) * i / STEPS);
        const double want = g(x);
        if (want != 0) worst = fmax(worst, fabs(f(x) - want) / fabs(want));
    }
    return worst;
}

static float exp_single(float x) {
    return exp_real(x);
}
static float tanh_single(float x) {
    return tanh_real(x);
}
static float erf_single(float x) {
    return erf_real(x);
}

static float log_single(float x) {
    return log_real(x);
}

/* What FUNCTION_TERMS of tests/support/rounding.h rests on: half its terms here, the
 * other half for the sums and products around a function. */
static void test_function_accuracy(void **state) {
    (void)state;
    const double most = rounding_error(PRECISION_F32, FUNCTION_TERMS / 2.0);
    static const double RANGES[] = {1e-6, 1e-3, 0.5, 1, 3, 6, 12, 86};
    for (size_t i = 0; i < sizeof RANGES / sizeof RANGES[0]; i++) {
        const double r = RANGES[i];
        assert_true(relative_error(exp_single, exp, -r, r) < most);
        assert_true(relative_error(tanh_single, tanh, -r, r) < most);
        assert_true(relative_error(erf_single, erf, -r, r) < most);
        assert_true(relative_error(log_single, log, r, 2 * r) < most);
        assert_true(relative_error(log_single, log, 1, 1 + r) < most);
    }
    assert_true(relative_error(log_single, log, 2e-38, 1e-36) < most);
    assert_true(relative_error(log_single, log, 1e36, 3e38) < most);
    assert_true(exp_single(-INFINITY) == 0 && exp_single(-1000) == 0);
    assert_true(exp_single(INFINITY) == INFINITY && exp_single(89) == INFINITY);
    assert_true(exp_single(88.7f) < INFINITY && isnan(exp_single(NAN)));
    assert_true(tanh_single(INFINITY) == 1 && tanh_single(-INFINITY) == -1);
    assert_true(erf_single(INFINITY) == 1 && erf_single(-INFINITY) == -1);
    assert_true(isnan(tanh_single(NAN)) && isnan(erf_single(NAN)));
}

static void test_softmax_row(void **state) {
    (void)state;
    for (int n = 1; n < 70; n++) {
        float x[70], y[70];
        double sum = 0;
        for (int i = 0; i < n; i++) {
            x[i] = y[i] = 1e4f + (float)(3 * random_normal((uint64_t)n, (uint64_t)i));
            sum += exp(x[i] - 1e4);
        }
        const double error = rounding_tolerance(PRECISION_F32, n + FUNCTION_TERMS, 1);
        /* the sum's relative error is the logarithm's; adding 1e4 rounds once */
        assert_within(log_sum_exp(x, n), 1e4 + log(sum), error + ldexp(1e4, -24));
        softmax_row(y, n);
        for (int i = 0; i < n; i++) {
            const double want = exp(x[i] - 1e4) / sum;
            assert_within(y[i], want, error * want);
        }
    }
    float masked[] = {-INFINITY, 2, -INFINITY, 2}, none[] = {-INFINITY, -INFINITY};
    assert_true(log_sum_exp(none, 2) == -INFINITY);
    softmax_row(masked, 4);
    assert_true(masked[0] == 0 && masked[1] == 0.5f && masked[3] == 0.5f);
    softmax_row(none, 2);
    assert_true(none[0] == 0 && none[1] == 0);
}

/* Element i of the mini-batch, 16 w + l of group g, is kept by word w of block 16 g + l.
 * Samples first .. of the mini-batch draw the same whatever call they are in. */
static void check_dropout(const char *operands, int64_t first) {
    Problem p = make_problem("dropout", "rate=0.25", operands);
    Result y = execute(&p, (Mode){.training = true, .first = first});
    Result single = execute(&p, (Mode){.training = true, .first = first, .single = true});
    Result off = execute(&p, (Mode){.first = first});
    const int64_t count = type_count(&p.out);
    int64_t dropped = 0;
    for (int64_t e = 0; e < count; e++) {
        const int64_t at = e + first * p.out.dim[1], group = at / 64, lane = at % 16;
        uint32_t words[4];
        random_block(12345, (uint64_t)(group * 16 + lane), words);
        const bool drop = words[at % 64 / 16] < 0x40000000u;
        dropped += drop;
        const double want = drop ? 0 : p.value[0][e] / 0.75;
        assert_within(y.out[e], want, value_tolerance(&p, false, fabs(want)));
        assert_within(single.out[e], want, value_tolerance(&p, true, fabs(want)));
        assert_true(off.out[e] == p.value[0][e]);
    }
    assert_within((double)dropped / (double)count, 0.25,
                  chance_tolerance(sqrt(0.25 * 0.75), (double)count));
    result_free(&y);
    result_free(&single);
    result_free(&off);
    problem_destroy(&p);
}

static void test_dropout_mask(void **state) {
    (void)state;
    check_dropout("5x67", 0);
    check_dropout("5x67", 3);
    check_dropout("1x60", 1);
    check_dropout("3x1", 1000);
}

static int set_up(void **state) {
    (void)state;
    blas_init();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patches_and_linear_convolve),
        cmocka_unit_test(test_depthwise_conv),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_gemm_transposes),
        cmocka_unit_test(test_add_repeats),
        cmocka_unit_test(test_layer_norm_rows),
        cmocka_unit_test(test_layer_norm_formula),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_scale_gradient_is_identity),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_function_accuracy),
        cmocka_unit_test(test_softmax_row),
        cmocka_unit_test(test_dropout_mask),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
