/* linear_attention with a near window against loops over all pairs of tokens in double
 * precision: every cut into chunks, masks, groups of heads. A window as long as the text
 * is softmax attention; masked tokens may hold anything. */
#include "exec/linalg/blas.h"
#include "tests/exec/linear_naive.h"

enum { NEAR_Q = LINEAR_MASK + 1, NEAR_K, GATE, SLOPE, ALL };
enum { DRAWN = 1, D = 3 }; /* size of values; width of a head of the window */

static void open_problem(Problem *p, const char *op, const char *operands,
                         const char *format, ...) {
    char attrs[LINE_MAX_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(attrs, sizeof attrs, format, list);
    va_end(list);
    const Case c = {op, attrs, operands};
    assert_ok(problem_create(p, &c), p->diag);
}

/* ---- loops over pairs ---- */

/* A row's weights of all keys, before they are divided by their sum. */
typedef struct Row {
    double weight[256], sum;
    double gain, most; /* factor of the near weights; the largest near score */
    int64_t top;       /* its key; -1 = no near key */
} Row;

static const double *near_row(const Problem *p, int i, int64_t n, int64_t t, int64_t h) {
    const Sizes s = sizes_of(p);
    const int64_t heads = i == NEAR_Q ? s.heads : s.kv_heads;
    return p->value[i] + ((n * s.keys + t) * heads + h / (s.heads / heads)) * D;
}

static double dot(const double *x, const double *y, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += x[i] * y[i];
    return sum;
}

static bool is_near(const Problem *p, int64_t t, int64_t j) {
    return j > t - ((const LinearAttentionAttrs *)p->node->attrs)->window;
}

static bool has_slope(const Problem *p) {
    return p->value[SLOPE] != NULL;
}

/* The exponent of the gain of a head with a slope, not held within 30 of 0 yet. */
static double exponent(const Problem *p, int64_t h, double most) {
    return p->value[GATE][h] + p->value[SLOPE][h] * most;
}

static double gain(const Problem *p, int64_t h, double most) {
    if (!p->value[GATE]) return 1;
    if (!has_slope(p)) return 1 / (1 + exp(-p->value[GATE][h]));
    return exp(fmin(fmax(exponent(p, h, most), -30), 30));
}

static void naive_row(Row *row, const Problem *p, int64_t n, int64_t h, int64_t t) {
    const Sizes s = sizes_of(p);
    const LinearAttentionAttrs *a = p->node->attrs;
    const double scale = a->scale > 0 ? a->scale : 1 / sqrt(D);
    *row = (Row){.top = -1};
    double score[256], most = -INFINITY;
    for (int64_t j = 0; j <= t; j++) {
        if (!counts(p, n, j) || !is_near(p, t, j)) continue;
        score[j] =
            scale * dot(near_row(p, NEAR_Q, n, t, h), near_row(p, NEAR_K, n, j, h), D);
        if (score[j] > most) row->top = j;
        most = fmax(most, score[j]);
    }
    row->most = row->top < 0 ? 0 : most;
    row->gain = gain(p, h, row->most);
    for (int64_t j = 0; j <= t; j++) {
        if (!counts(p, n, j)) continue;
        row->weight[j] = is_near(p, t, j) ? row->gain * exp(score[j] - most)
                                          : dot(q_row(p, n, t, h),
                                                source_row(p, LINEAR_K, n, j, h), s.f);
        row->sum += row->weight[j];
    }
    if (row->top < 0) row->sum = fmax(row->sum, s.eps);
}

static void naive_out(const Problem *p, double *out) {
    const Sizes s = sizes_of(p);
    for (int64_t i = 0; i < s.samples * s.heads * s.queries; i++) {
        const int64_t n = i / s.heads / s.queries, h = i / s.queries % s.heads;
        const int64_t t = i % s.queries;
        double *to = out + out_at(&s, n, t, h);
        Row row;
        naive_row(&row, p, n, h, t);
        for (int64_t c = 0; c < s.e; c++) {
            to[c] = 0;
            for (int64_t j = 0; j <= t; j++)
                if (counts(p, n, j))
                    to[c] += row.weight[j] * source_row(p, LINEAR_V, n, j, h)[c];
            to[c] /= row.sum;
        }
    }
}

/* Adds x times `by` to a row of the gradient of operand `i`, as that row lies in it. */
static void add_to(const Problem *p, double *const *d, int i, const double *row,
                   const double *x, double by, int64_t count) {
    double *to = d[i] + (row - p->value[i]);
    for (int64_t c = 0; c < count; c++) to[c] += by * x[c];
}

/* What one query gives to all gradients. */
static void naive_row_backward(const Problem *p, int64_t n, int64_t h, int64_t t,
                               const double *out, double *const *d) {
    const Sizes s = sizes_of(p);
    const LinearAttentionAttrs *a = p->node->attrs;
    const double scale = a->scale > 0 ? a->scale : 1 / sqrt(D);
    const double *d_out = p->weight + out_at(&s, n, t, h);
    const double mean = dot(d_out, out + out_at(&s, n, t, h), s.e);
    const double *q = q_row(p, n, t, h), *near_q = near_row(p, NEAR_Q, n, t, h);
    double total = 0;
    Row row;
    naive_row(&row, p, n, h, t);
    for (int64_t j = 0; j <= t; j++) {
        if (!counts(p, n, j)) continue;
        const double *v = source_row(p, LINEAR_V, n, j, h);
        const double *k = source_row(p, LINEAR_K, n, j, h);
        const double *near_k = near_row(p, NEAR_K, n, j, h);
        const double slope = (dot(d_out, v, s.e) - mean) / row.sum;
        add_to(p, d, LINEAR_V, v, d_out, row.weight[j] / row.sum, s.e);
        if (is_near(p, t, j)) {
            const double by = scale * slope * row.weight[j];
            add_to(p, d, NEAR_Q, near_q, near_k, by, D);
            add_to(p, d, NEAR_K, near_k, near_q, by, D);
            total += slope * row.weight[j];
        } else {
            add_to(p, d, LINEAR_Q, q, k, slope, s.f);
            add_to(p, d, LINEAR_K, k, q, slope, s.f);
        }
    }
    if (row.top < 0) return;
    const bool moves = has_slope(p) && fabs(exponent(p, h, row.most)) < 30;
    const double by = (moves ? p->value[SLOPE][h] : 0) - 1;
    const double *near_k = near_row(p, NEAR_K, n, row.top, h);
    add_to(p, d, NEAR_Q, near_q, near_k, by * scale * total, D);
    add_to(p, d, NEAR_K, near_k, near_q, by * scale * total, D);
    if (moves) d[SLOPE][h] += row.most * total;
    if (has_slope(p))
        d[GATE][h] += moves ? total : 0;
    else if (d[GATE])
        d[GATE][h] += (1 - row.gain) * total;
}

static void naive_backward(const Problem *p, const double *out, double *const *d) {
    const Sizes s = sizes_of(p);
    for (int64_t n = 0; n < s.samples; n++)
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t t = 0; t < s.queries; t++)
                naive_row_backward(p, n, h, t, out, d);
}

/* ---- values and gradients ---- */

static Result run(const Problem *p, bool single) {
    return execute(p, (Mode){.single = single, .backward = true});
}

/* Every row has a near key, so that none is clamped: the first token counts and, with a
 * mask, so do enough others. With a slope two heads of four weigh near by its scores, one
 * far beyond the bound below and one far beyond that above. */
static void check_window(int64_t tokens, int64_t window, int64_t chunk, bool mask,
                         bool slope) {
    char operands[LINE_MAX_BYTES];
    const int T = (int)tokens;
    Problem p;
    snprintf(operands, sizeof operands,
             "+2x%dx24 +2x%dx12 2x%dx10 %s2x%d%s 2x%dx12 2x%dx6 4%s", T, T, T,
             mask ? "m" : "i", T, mask ? "" : "<1", T, T, slope ? " 4" : "");
    open_problem(&p, "linear_attention", operands,
                 "heads=4 kv_heads=2 causal=true scale=0.8 window=%lld chunk=%lld",
                 (long long)window, (long long)chunk);
    for (int64_t i = 0; i < 2 * tokens; i++)
        p.integer[LINEAR_MASK][i] |= !mask || i % window == 0;
    if (slope) {
        p.value[GATE][2] = -60;
        p.value[GATE][3] = 60;
    }
    double *want = calloc((size_t)type_count(&p.out), sizeof *want), *d[ALL] = {NULL};
    for (int i = 0; i < ALL; i++)
        if (p.value[i]) d[i] = calloc((size_t)type_count(&p.type[i]), sizeof **d);
    naive_out(&p, want);
    naive_backward(&p, want, d);
    for (int single = 0; single < 2; single++) {
        Result result = run(&p, single);
        compare_value(&p, "value", single, result.out, want, DRAWN);
        for (int i = 0; i < ALL; i++)
            if (d[i])
                compare_gradient(&p, "gradient", i, single, result.d_in[i], d[i], DRAWN);
        result_free(&result);
    }
    for (int i = 0; i < ALL; i++) free(d[i]);
    free(want);
    problem_destroy(&p);
}

static void test_pairs(void **state) {
    (void)state;
    static const int64_t LENGTHS[] = {1, 2, 7, 33, 70}, WINDOWS[] = {1, 2, 5, 32, 40};
    static const int64_t CHUNKS[] = {0, 1, 3, 16};
    for (size_t i = 0; i < 5; i++)
        for (size_t w = 0; w < 5; w++)
            for (size_t c = 0; c < 4; c++)
                for (int form = 0; form < 4; form++)
                    check_window(LENGTHS[i], WINDOWS[w], CHUNKS[c], form & 1, form & 2);
}

/* ---- against other ops ---- */

static void check_softmax(bool slope) {
    Problem p, softmax;
    open_problem(&p, "linear_attention",
                 slope ? "+2x40x24 +2x40x12 2x40x10 m2x40 2x40x12 2x40x6 4 4"
                       : "+2x40x24 +2x40x12 2x40x10 m2x40 2x40x12 2x40x6 4",
                 "heads=4 kv_heads=2 causal=true window=40 chunk=16");
    open_problem(&softmax, "attention", "2x40x12 2x40x6 2x40x10 m2x40",
                 "heads=4 kv_heads=2 causal=true");
    static const int SAME[][2] = {{NEAR_Q, 0}, {NEAR_K, 1}, {LINEAR_V, 2}};
    for (int i = 0; i < 3; i++)
        memcpy(softmax.value[SAME[i][1]], p.value[SAME[i][0]],
               (size_t)type_count(&p.type[SAME[i][0]]) * sizeof(double));
    memcpy(softmax.integer[3], p.integer[LINEAR_MASK], 80 * sizeof(int32_t));
    memcpy(softmax.weight, p.weight, (size_t)type_count(&p.out) * sizeof(double));
    for (int single = 0; single < 2; single++) {
        Result got = run(&p, single), want = run(&softmax, single);
        compare_value(&p, "softmax", single, got.out, want.out, DRAWN);
        for (int i = 0; i < 3; i++)
            compare_gradient(&p, "softmax", SAME[i][0], single, got.d_in[SAME[i][0]],
                             want.d_in[SAME[i][1]], DRAWN);
        for (int64_t j = 0; j < type_count(&p.type[LINEAR_Q]); j++)
            assert_true(got.d_in[LINEAR_Q][j] == 0);
        for (int h = 0; h < 4; h++)
            assert_true(got.d_in[GATE][h] == 0 && (!slope || got.d_in[SLOPE][h] == 0));
        result_free(&got);
        result_free(&want);
    }
    problem_destroy(&p);
    problem_destroy(&softmax);
}

/* As long as the text, the window is softmax attention, whatever features, gate and slope
 * are; those get no gradient. */
static void test_softmax(void **state) {
    (void)state;
    check_softmax(false);
    check_softmax(true);
}

/* Features whose products are e^s for one score s of all pairs: at slope 1 and gate 0
 * near and far together are softmax attention, as no other gain makes them. */
static void test_slope_is_softmax(void **state) {
    (void)state;
    enum { TOKENS = 20, WIDTH = 6 };
    Problem p, softmax;
    open_problem(&p, "linear_attention", "+1x20x1 +1x20x1 1x20x5 - 1x20x6 1x20x6 1 1",
                 "causal=true window=7 chunk=4 scale=1.0");
    open_problem(&softmax, "attention", "1x20x6 1x20x6 1x20x5", "causal=true scale=1.0");
    p.value[GATE][0] = 0;
    p.value[SLOPE][0] = 1;
    for (int t = 0; t < TOKENS; t++) {
        double *q = p.value[NEAR_Q] + t * WIDTH, *k = p.value[NEAR_K] + t * WIDTH;
        memset(q, 0, WIDTH * sizeof *q);
        memset(k, 0, WIDTH * sizeof *k);
        q[0] = k[1] = 1;
        q[1] = 0.3 * (t % 5);
        k[0] = 0.2 * (t % 7) - 2;
        p.value[LINEAR_Q][t] = exp(q[1]);
        p.value[LINEAR_K][t] = exp(k[0]);
    }
    memcpy(softmax.value[0], p.value[NEAR_Q], TOKENS * WIDTH * sizeof(double));
    memcpy(softmax.value[1], p.value[NEAR_K], TOKENS * WIDTH * sizeof(double));
    memcpy(softmax.value[2], p.value[LINEAR_V], (size_t)(TOKENS * 5) * sizeof(double));
    for (int single = 0; single < 2; single++) {
        Result got = run(&p, single), want = run(&softmax, single);
        compare_value(&p, "softmax", single, got.out, want.out, DRAWN);
        result_free(&got);
        result_free(&want);
    }
    problem_destroy(&p);
    problem_destroy(&softmax);
}

/* A gate that is all but closed leaves what linear attention gives for keys that are
 * `window` tokens later. */
static void test_closed_gate(void **state) {
    (void)state;
    enum { TOKENS = 30, WINDOW = 7 };
    Problem p, late;
    open_problem(&p, "linear_attention", "+1x30x12 +1x30x12 1x30x8 - 1x30x6 1x30x6 2",
                 "heads=2 causal=true window=7 chunk=8");
    open_problem(&late, "linear_attention", "+1x23x12 +1x23x12 1x23x8",
                 "heads=2 causal=true eps=1e-9");
    p.value[GATE][0] = p.value[GATE][1] = -80;
    for (int i = LINEAR_Q; i <= LINEAR_V; i++) {
        const int64_t width = p.type[i].dim[2], from = i == LINEAR_Q ? WINDOW : 0;
        memcpy(late.value[i], p.value[i] + from * width,
               (size_t)((TOKENS - WINDOW) * width) * sizeof(double));
    }
    Result got = run(&p, false), want = run(&late, false);
    compare_value(&late, "far part", false, got.out + (int64_t)WINDOW * 8, want.out,
                  DRAWN);
    result_free(&got);
    result_free(&want);
    problem_destroy(&p);
    problem_destroy(&late);
}

/* ---- padding, cost ---- */

/* Masked tokens may hold anything, NaN too, and get no gradient; what is left equals a
 * run over the other tokens alone. */
static void test_padding(void **state) {
    (void)state;
    enum { KEPT = 9, TOKENS = 14 };
    Problem longer, shorter;
    open_problem(&longer, "linear_attention",
                 "+1x14x12 +1x14x12 1x14x8 i1x14<1 1x14x6 1x14x6 2",
                 "heads=2 causal=true window=3 chunk=4");
    open_problem(&shorter, "linear_attention", "+1x9x12 +1x9x12 1x9x8 - 1x9x6 1x9x6 2",
                 "heads=2 causal=true window=3 chunk=4");
    static const int KEYS[] = {LINEAR_K, LINEAR_V, NEAR_K},
                     QUERIES[] = {LINEAR_Q, NEAR_Q};
    for (int j = 0; j < KEPT; j++) longer.integer[LINEAR_MASK][j] = 1;
    memcpy(longer.value[GATE], shorter.value[GATE], 2 * sizeof(double));
    for (int i = 0; i < 5; i++) {
        const int at = i < 3 ? KEYS[i] : QUERIES[i - 3];
        const int64_t width = longer.type[at].dim[2];
        memcpy(longer.value[at], shorter.value[at],
               (size_t)(KEPT * width) * sizeof(double));
        for (int64_t j = KEPT * width; i < 3 && j < TOKENS * width; j++)
            longer.value[at][j] = (double)NAN;
    }
    memset(longer.weight + (int64_t)KEPT * 8, 0,
           (size_t)((TOKENS - KEPT) * 8) * sizeof(double));
    memcpy(longer.weight, shorter.weight, (size_t)(KEPT * 8) * sizeof(double));
    Result padded = run(&longer, false), alone = run(&shorter, false);
    compare_value(&shorter, "value", false, padded.out, alone.out, DRAWN);
    for (int i = 0; i <= GATE; i++) {
        if (i == LINEAR_MASK) continue;
        const int64_t count = type_count(&shorter.type[i]);
        compare_gradient(&shorter, "gradient", i, false, padded.d_in[i], alone.d_in[i],
                         DRAWN);
        for (int64_t j = count; j < type_count(&longer.type[i]); j++)
            assert_true(padded.d_in[i][j] == 0);
    }
    result_free(&padded);
    result_free(&alone);
    problem_destroy(&longer);
    problem_destroy(&shorter);
}

static double flops_of(const char *operands, const char *attrs) {
    Problem p;
    open_problem(&p, "linear_attention", operands, "%s", attrs);
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
    /* 2 heads, f = 3, e + 1 = 5, d = 4; chunks of 4, 4, 2 meet 1, 4 and 2 far tokens,
     * behind the second S' too, to which two additions were made; near keys are 4, 6, 4
     */
    assert_true(flops_of("1x10x6 1x10x6 1x10x8 - 1x10x8 1x10x8",
                         "heads=2 causal=true chunk=4 window=3") ==
                2 * 2 *
                    ((4 * 1 + 4 * 4 + 2 * 4) * (3 + 5) + (4 + 2) * 15 + (1 + 4) * 15 +
                     (4 * 4 + 4 * 6 + 2 * 4) * (4 + 5)));
    const double once = flops_of("1x1024x64 1x1024x64 1x1024x64 - 1x1024x64 1x1024x64",
                                 "causal=true window=32");
    const double twice = flops_of("1x2048x64 1x2048x64 1x2048x64 - 1x2048x64 1x2048x64",
                                  "causal=true window=32");
    assert_true(twice > 2 * once && twice < 2.06 * once);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_closed_gate),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_slope_is_softmax),
        cmocka_unit_test(test_flops),
    };
    blas_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
