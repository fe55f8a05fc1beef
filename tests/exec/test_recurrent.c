/* rnn and attention_lstm against their equations, token by token and element by element;
 * sources without tokens, sums beyond exp, shapes that do not fit. */
#include "exec/linalg/blas.h"
#include "tests/exec/grad_harness.h"

static void expect(const Problem *p, const Case *c, double got, double want) {
    if (!(fabs(got - want) <= value_tolerance(p, false, fmax(1, fabs(want)))))
        fail_msg("%s [%s] (%s): %.15g, expected %.15g", c->op, c->attrs, c->operands, got,
                 want);
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* ---- rnn ---- */

static double apply(const char *attrs, double x) {
    return strstr(attrs, "sigmoid") ? sigmoid(x)
           : strstr(attrs, "relu")  ? fmax(x, 0)
                                    : tanh(x);
}

static void check_rnn(const char *attrs, const char *operands) {
    Problem p;
    const Case c = {"rnn", attrs, operands};
    assert_ok(problem_create(&p, &c), p.diag);
    const int64_t N = p.out.dim[0], T = p.out.dim[1], H = p.out.dim[2];
    const int64_t D = p.type[0].dim[2];
    Result got = execute(&p, (Mode){0});
    for (int64_t n = 0; n < N; n++)
        for (int64_t t = 0; t < T; t++)
            for (int64_t j = 0; j < H; j++) {
                const double *h = got.out + (n * T + t) * H;
                double sum = p.value[3] ? p.value[3][j] : 0;
                sum += dot(p.value[1] + j * D, p.value[0] + (n * T + t) * D, D);
                if (t > 0) sum += dot(p.value[2] + j * H, h - H, H);
                expect(&p, &c, h[j], apply(attrs, sum));
            }
    result_free(&got);
    problem_destroy(&p);
}

static void test_rnn(void **state) {
    (void)state;
    check_rnn("", "2x5x3 4x3 4x4");
    check_rnn("fn=sigmoid", "3x1x4 2x4 2x2 2");
    check_rnn("fn=relu", "1x9x7 33x7 33x33 33");
}

/* ---- attention_lstm ---- */

enum {
    MEMORY,
    IN,
    CONTEXT,
    BIAS,
    X,
    STEPS,
    MASK,
    ALIGN_MEMORY,
    ALIGN_STATE,
    ALIGN_SCORE,
    EMBEDDING,
    HEAD
};

/* c[R] for a cell s[M], from sample n's tokens that count. */
static void find_context(const Problem *p, int64_t n, const double *s, double *c) {
    const int64_t S = p->type[MEMORY].dim[1], R = p->type[MEMORY].dim[2];
    const int64_t M = p->out.dim[2], L = p->type[ALIGN_MEMORY].dim[0];
    double total = 0;
    for (int64_t r = 0; r < R; r++) c[r] = 0;
    for (int64_t j = 0; j < S; j++) {
        const double *h = p->value[MEMORY] + (n * S + j) * R;
        double score = 0;
        if (p->integer[MASK] && !p->integer[MASK][n * S + j]) continue;
        for (int64_t l = 0; p->value[ALIGN_SCORE] && l < L; l++)
            score += p->value[ALIGN_SCORE][l] *
                     tanh(dot(p->value[ALIGN_MEMORY] + l * R, h, R) +
                          dot(p->value[ALIGN_STATE] + l * M, s, M));
        for (int64_t r = 0; r < R; r++) c[r] += exp(score) * h[r];
        total += exp(score);
    }
    for (int64_t r = 0; r < R && total > 0; r++) c[r] /= total;
}

/* The sum of row `row` of the gates. */
static double gate_sum(const Problem *p, const double *u, const double *c, int64_t row) {
    const int64_t K = p->type[IN].dim[1], R = p->type[MEMORY].dim[2];
    return p->value[BIAS][row] + dot(p->value[IN] + row * K, u, K) +
           dot(p->value[CONTEXT] + row * R, c, R);
}

/* The row of the embedding whose score is the largest. */
static const double *own_word(const Problem *p, const double *y) {
    const int64_t V = p->type[HEAD].dim[0], M = p->type[HEAD].dim[1];
    int64_t best = 0;
    for (int64_t v = 1; v < V; v++)
        if (dot(p->value[HEAD] + v * M, y, M) > dot(p->value[HEAD] + best * M, y, M))
            best = v;
    return p->value[EMBEDDING] + best * p->type[EMBEDDING].dim[1];
}

/* With `own` the gates see words of the cell's own from the second token on. */
static void check_sample(const Problem *p, const Case *c, int64_t n, const double *out,
                         bool own) {
    const int64_t T = p->out.dim[1], M = p->out.dim[2];
    double s[64] = {0}, y[64] = {0}, context[64];
    for (int64_t t = 0; t < T; t++, out += M) {
        const double *x = p->value[X];
        const double *u = x ? x + (n * T + t) * p->type[X].dim[2] : y;
        double next[64];
        if (own && t > 0) u = own_word(p, y);
        find_context(p, n, s, context);
        for (int64_t j = 0; j < M; j++) {
            const double i = sigmoid(gate_sum(p, u, context, j));
            const double f = sigmoid(gate_sum(p, u, context, M + j));
            const double g = tanh(gate_sum(p, u, context, 2 * M + j));
            s[j] = f * s[j] + i * g;
            next[j] = sigmoid(gate_sum(p, u, context, 3 * M + j)) * tanh(s[j]);
            expect(p, c, out[j], next[j]);
        }
        memcpy(y, next, sizeof y);
    }
}

static void check_decoder(const char *operands, bool hide_source) {
    Problem p;
    const Case c = {"attention_lstm", "", operands};
    assert_ok(problem_create(&p, &c), p.diag);
    const int64_t N = p.out.dim[0], S = p.type[MEMORY].dim[1];
    if (hide_source) memset(p.integer[MASK], 0, (size_t)(N * S) * sizeof(int32_t));
    Result got = execute(&p, (Mode){.backward = true});
    for (int64_t n = 0; n < N; n++)
        check_sample(&p, &c, n, got.out + n * p.out.dim[1] * p.out.dim[2], false);
    for (int64_t k = 0; hide_source && k < type_count(&p.type[MEMORY]); k++)
        assert_true(got.d_in[MEMORY][k] == 0);
    result_free(&got);
    problem_destroy(&p);
}

static void test_decoder(void **state) {
    (void)state;
    check_decoder("2x7x6 16x3 16x6 16 2x5x3 - m2x7 5x6 5x4 1x5", false);
    check_decoder("2x7x6 16x4 16x6 16 - i2x5<9 m2x7 5x6 5x4 1x5", false);
    check_decoder("3x7x6 16x3 16x6 16 3x5x3 - m3x7", false);
    check_decoder("1x1x33 20x5 20x33 20 - i1x9<2 - 17x33 17x5 1x17", false);
    check_decoder("2x4x6 16x3 16x6 16 2x1x3", false);
}

#define OWN_WORDS "3x7x6 16x3 16x6 16 3x9x3 - m3x7 5x6 5x4 1x5 9x3 !9x4"

/* In training all words but the first are its own, or none, or about half of them, others
 * for other samples of the mini-batch; none outside of training. */
static void test_own_words(void **state) {
    (void)state;
    enum { N = 3, SIZE = 9 * 4 };
    Problem p;
    for (int own = 0; own < 2; own++) {
        const Case c = {"attention_lstm", own ? "teacher_forcing=0.0" : "", OWN_WORDS};
        assert_ok(problem_create(&p, &c), p.diag);
        Result got = execute(&p, (Mode){.training = true});
        for (int64_t n = 0; n < N; n++) check_sample(&p, &c, n, got.out + n * SIZE, own);
        result_free(&got);
        problem_destroy(&p);
    }
    const Case half = {"attention_lstm", "teacher_forcing=0.5", OWN_WORDS};
    assert_ok(problem_create(&p, &half), p.diag);
    Result still = execute(&p, (Mode){0});
    Result first = execute(&p, (Mode){.training = true});
    Result moved = execute(&p, (Mode){.training = true, .first = 1});
    for (int64_t n = 0; n < N; n++)
        check_sample(&p, &half, n, still.out + n * SIZE, false);
    assert_memory_not_equal(first.out, still.out, sizeof(double) * N * SIZE);
    assert_memory_not_equal(first.out, moved.out, sizeof(double) * N * SIZE);
    result_free(&still);
    result_free(&first);
    result_free(&moved);
    problem_destroy(&p);
}

/* Nothing to attend to: the context is 0 and the memory has no gradient. */
static void test_no_source(void **state) {
    (void)state;
    check_decoder("2x7x6 16x3 16x6 16 2x5x3 - m2x7 5x6 5x4 1x5", true);
    check_decoder("2x7x6 16x4 16x6 16 - i2x5<9 m2x7", true);
}

/* Sums far outside of what exp can take: nothing is NaN. */
static void test_extremes(void **state) {
    (void)state;
    static const Case CASES[] = {
        {"attention_lstm", "", "2x7x6 16x3 16x6 16 2x5x3 - m2x7 5x6 5x4 1x5"},
        {"rnn", "", "2x6x3 4x3 4x4 4"}};
    for (int k = 0; k < 4; k++) {
        Problem p;
        assert_ok(problem_create(&p, &CASES[k / 2]), p.diag);
        for (int i = 0; i < p.count; i++)
            for (int64_t j = 0; p.value[i] && j < type_count(&p.type[i]); j++)
                p.value[i][j] *= 1e4;
        Result got = execute(&p, (Mode){.single = k % 2, .backward = true});
        for (int64_t j = 0; j < type_count(&p.out); j++)
            assert_true(fabs(got.out[j]) <= 1);
        for (int i = 0; i < p.count; i++)
            for (int64_t j = 0; got.d_in[i] && j < type_count(&p.type[i]); j++)
                assert_true(isfinite(got.d_in[i][j]));
        result_free(&got);
        problem_destroy(&p);
    }
}

/* ---- shapes ---- */

static void expect_refused(const char *op, const char *operands, const char *message) {
    expect_invalid(&(Case){op, "", operands}, message);
}

static void test_shapes(void **state) {
    (void)state;
    expect_refused("rnn", "2x5x3 4x4 4x4", "operand 'weight_in'");
    expect_refused("rnn", "2x5x3 4x3 4x3", "operand 'weight_state'");
    expect_refused("rnn", "2x5x3 4x3 4x4 3", "operand 'bias'");
    expect_refused("rnn", "5x3 4x3 4x4", "operand 'x'");
    expect_refused("add_sinusoid", "2x5x3", "an even width");
    const char *op = "attention_lstm";
    expect_refused(op, "2x7x6 16x3 16x6 16", "one of x and steps beside it, found none");
    expect_refused(op, "2x7x6 16x3 16x6 16 2x5x3 i2x5<9", "found both");
    expect_refused(op, "2x7x6 16x3 16x6 16 2x5x4", "operand 'x'");
    expect_refused(op, "2x7x6 16x3 16x6 16 3x5x3", "the samples of memory");
    expect_refused(op, "2x7x6 16x3 16x6 16 - i2x5<9", "the width of the result");
    expect_refused(op, "2x7x6 18x3 18x6 18 2x5x3", "rows for four gates");
    expect_refused(op, "2x7x6 16x3 16x5 16 2x5x3", "operand 'weight_context'");
    expect_refused(op, "2x7x6 16x3 16x6 4 2x5x3", "operand 'bias'");
    expect_refused(op, "2x7x6 16x3 16x6 16 2x5x3 - m2x6", "operand 'mask'");
    expect_refused(op, "2x7x6 16x3 16x6 16 2x5x3 - - 5x6 5x4",
                   "all of align_memory, align_state and align_score");
    expect_refused(op, "2x7x6 16x3 16x6 16 2x5x3 - - 5x5 5x4 1x5",
                   "operand 'align_memory'");
    expect_refused(op, "2x7x6 16x3 16x6 16 2x5x3 - - 5x6 5x5 1x5",
                   "operand 'align_state'");
    expect_refused(op, "2x7x6 16x3 16x6 16 2x5x3 - - - - - 9x3",
                   "both of embedding and head");
    expect_refused(op, "2x7x6 16x3 16x6 16 2x5x3 - - - - - 9x4 !9x4",
                   "operand 'embedding'");
    expect_refused(op, "2x7x6 16x3 16x6 16 2x5x3 - - - - - 9x3 !8x4", "operand 'head'");
    expect_refused(op, "2x7x6 16x4 16x6 16 - i2x5<9 - - - - 9x4 !9x4",
                   "operand 'embedding': expected x beside it");
    expect_refused(op, "2x7x6 16x3 16x6 16 2x5x3 - - 5x6 5x4 5", "operand 'align_score'");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rnn),       cmocka_unit_test(test_decoder),
        cmocka_unit_test(test_own_words), cmocka_unit_test(test_no_source),
        cmocka_unit_test(test_extremes),  cmocka_unit_test(test_shapes),
    };
    blas_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
