/* Values of the losses against their formulas, written out naively, in both precisions.
 * Their gradients are checked by test_grad.c. */
#include "exec/linalg/blas.h"
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

/* Last dimension of the first operand, and the rows before it. */
static int64_t width_of(const Problem *p) {
    return p->type[0].dim[p->type[0].rank - 1];
}
static int64_t rows_of(const Problem *p) {
    return type_count(&p->type[0]) / width_of(p);
}

static double naive_cross_entropy(const Problem *p) {
    const int64_t classes = width_of(p);
    const double e = ((const CrossEntropyAttrs *)p->node->attrs)->smoothing;
    double loss = 0, rows = 0;
    for (int64_t i = 0; i < rows_of(p); i++) {
        if (p->integer[1][i] == INDEX_SKIP) continue;
        rows++;
        double sum = 0;
        for (int64_t c = 0; c < classes; c++) sum += exp(p->value[0][i * classes + c]);
        for (int64_t c = 0; c < classes; c++) {
            const double share = p->value[3] ? p->value[3][i] : 0;
            double target = (c == p->integer[1][i] ? 1 - share : 0);
            if (p->value[3] && c == p->integer[2][i]) target += share;
            target = (1 - e) * target + e / (double)classes;
            loss -= target * log(exp(p->value[0][i * classes + c]) / sum);
        }
    }
    return rows > 0 ? loss / rows : 0;
}

/* Mean over the rows that count of `loss` of a row of x and the teacher's. */
static double mean_of_rows(const Problem *p,
                           double (*loss)(const Problem *, const double *, const double *,
                                          int64_t)) {
    double sum = 0, rows = 0;
    for (int64_t i = 0; i < rows_of(p); i++) {
        if (p->integer[2] && p->integer[2][i] == 0) continue;
        const int64_t at = i * width_of(p);
        sum += loss(p, p->value[0] + at, p->value[1] + at, width_of(p));
        rows++;
    }
    return rows > 0 ? sum / rows : 0;
}

static double soft_row(const Problem *p, const double *x, const double *y, int64_t n) {
    const SoftCrossEntropyAttrs *a = p->node->attrs;
    return a->temperature * a->temperature *
           row_cross_entropy(x, y, n, a->temperature, a->kl);
}

static double naive_soft_cross_entropy(const Problem *p) {
    return mean_of_rows(p, soft_row);
}

static double squared_row(const Problem *p, const double *x, const double *y, int64_t n) {
    (void)p;
    double sum = 0;
    for (int64_t c = 0; c < n; c++) sum += (x[c] - y[c]) * (x[c] - y[c]) / (double)n;
    return sum;
}

static double naive_mean_squared_error(const Problem *p) {
    return mean_of_rows(p, squared_row);
}

static double naive_relative_squared_error(const Problem *p) {
    const int64_t samples = p->type[0].dim[0], size = type_count(&p->type[0]) / samples;
    const int64_t width = p->type[0].dim[p->type[0].rank - 1];
    double sum = 0;
    for (int64_t i = 0; i < samples; i++) {
        double error = 0, square = 0;
        for (int64_t j = i * size; j < (i + 1) * size; j++) {
            if (p->integer[2] && !p->integer[2][j / width]) continue;
            const double x = p->value[0][j], t = p->value[1][j];
            error += (x - t) * (x - t);
            square += t * t;
        }
        if (square > 0) sum += error / square;
    }
    return sum / (double)samples;
}

/* Targets are any numbers here: the formula is linear in them. */
static double binary_row(const Problem *p, const double *z, const double *t, int64_t n) {
    const BinaryCrossEntropyAttrs *a = p->node->attrs;
    const RealList *w = &a->positive;
    double sum = 0;
    for (int64_t c = 0; c < n; c++) {
        const double y = (1 - a->smoothing) * t[c] + a->smoothing / 2;
        const double weight = w->count == 0 ? 1 : w->items[w->count == 1 ? 0 : c];
        const double s = 1 / (1 + exp(-z[c]));
        sum -= weight * y * log(s) + (1 - y) * log(1 - s);
    }
    return sum / (double)n;
}

static double naive_binary_cross_entropy(const Problem *p) {
    return mean_of_rows(p, binary_row);
}

static double naive_span_cross_entropy(const Problem *p) {
    const int64_t samples = p->type[0].dim[0], tokens = p->type[0].dim[1];
    double loss = 0;
    for (int64_t i = 0; i < samples; i++)
        for (int end = 0; end < 2; end++) {
            const double *z = p->value[0] + i * tokens * 2 + end;
            double sum = 0;
            for (int64_t t = 0; t < tokens; t++)
                if (!p->integer[3] || p->integer[3][i * tokens + t]) sum += exp(z[t * 2]);
            loss += log(sum) - z[p->integer[1 + end][i] * 2];
        }
    return loss / 2 / (double)samples;
}

/* t^2 of the cross-entropy of softmax(x / t) against softmax(y / t), over things whose
 * scores are `stride` apart and whose mask is not 0. */
static double naive_scores(const Problem *p, const double *x, const double *y,
                           const int32_t *mask, int64_t count, int64_t stride) {
    const SoftCrossEntropyAttrs *a = p->node->attrs;
    const double t = a->temperature;
    double sums[2] = {0}, loss = 0;
    for (int64_t i = 0; i < count; i++) {
        if (mask && mask[i] == 0) continue;
        sums[0] += exp(x[i * stride] / t);
        sums[1] += exp(y[i * stride] / t);
    }
    for (int64_t i = 0; i < count; i++) {
        if (mask && mask[i] == 0) continue;
        const double px = exp(x[i * stride] / t) / sums[0];
        const double py = exp(y[i * stride] / t) / sums[1];
        loss += py * ((a->kl ? log(py) : 0) - log(px));
    }
    return t * t * loss;
}

static double naive_soft_span(const Problem *p) {
    const int64_t samples = p->type[0].dim[0], tokens = p->type[0].dim[1];
    double loss = 0;
    for (int64_t i = 0; i < samples; i++)
        for (int end = 0; end < 2; end++) {
            const int64_t at = i * tokens * 2 + end;
            loss += naive_scores(p, p->value[0] + at, p->value[1] + at,
                                 p->integer[2] ? p->integer[2] + i * tokens : NULL,
                                 tokens, 2);
        }
    return loss / 2 / (double)samples;
}

static double naive_soft_choice(const Problem *p) {
    const int64_t samples = p->type[0].dim[0];
    double loss = 0, groups = 0;
    for (int64_t i = 0, end; i < samples; i = end, groups++) {
        for (end = i + 1; end < samples && p->integer[2][end] != 0;) end++;
        loss += naive_scores(p, p->value[0] + i, p->value[1] + i, NULL, end - i, 1);
    }
    return loss / groups;
}

static double soft_binary_row(const Problem *p, const double *z, const double *y,
                              int64_t n) {
    const SoftBinaryCrossEntropyAttrs *a = p->node->attrs;
    const double t = a->temperature;
    double sum = 0;
    for (int64_t c = 0; c < n; c++) {
        const double s = 1 / (1 + exp(-z[c] / t)), q = 1 / (1 + exp(-y[c] / t));
        sum -= q * log(s) + (1 - q) * log(1 - s);
        if (a->kl) sum += q * log(q) + (1 - q) * log(1 - q);
    }
    return t * t * sum / (double)n;
}

static double naive_soft_binary_cross_entropy(const Problem *p) {
    return mean_of_rows(p, soft_binary_row);
}

static double inner(const double *x, const double *y, int64_t n) {
    double sum = 0;
    for (int64_t c = 0; c < n; c++) sum += x[c] * y[c];
    return sum;
}

static double cosine_row(const Problem *p, const double *x, const double *y, int64_t n) {
    (void)p;
    return 1 - inner(x, y, n) / sqrt(inner(x, x, n) * inner(y, y, n));
}

static double naive_cosine_distance(const Problem *p) {
    return mean_of_rows(p, cosine_row);
}

/* Score of head h between tokens i and j (counted over samples) of operands q, q + 1. */
static double score(const Problem *p, int q, int64_t h, int64_t i, int64_t j) {
    const int64_t w = p->type[q].dim[2];
    const int64_t d = w / ((const AttentionMapMseAttrs *)p->node->attrs)->heads;
    return inner(p->value[q] + i * w + h * d, p->value[q + 1] + j * w + h * d, d) /
           sqrt((double)d);
}

static double naive_attention_map(const Problem *p) {
    const int64_t n = p->type[0].dim[0], t = p->type[0].dim[1];
    const int64_t heads = ((const AttentionMapMseAttrs *)p->node->attrs)->heads;
    const int32_t *mask = p->integer[4];
    double loss = 0;
    for (int64_t s = 0; s < n; s++) {
        double sum = 0, pairs = 0;
        for (int64_t i = s * t; i < s * t + t; i++)
            for (int64_t j = s * t; j < s * t + t; j++)
                for (int64_t h = 0; h < heads && (!mask || (mask[i] && mask[j])); h++) {
                    sum += pow(score(p, 0, h, i, j) - score(p, 2, h, i, j), 2);
                    pairs++;
                }
        if (pairs > 0) loss += sum / pairs / (double)n;
    }
    return loss;
}

/* Tokens that count of the t around token i; 0 where that one does not count itself. */
static double kept_tokens(const int32_t *mask, int64_t i, int64_t t) {
    int64_t kept = mask ? 0 : t;
    for (int64_t j = 0; mask && j < t; j++) kept += mask[i / t * t + j] != 0;
    return mask && !mask[i] ? 0 : (double)kept;
}

static double naive_relation(const Problem *p) {
    const int64_t window = ((const RelationAttrs *)p->node->attrs)->window;
    const int64_t rows = p->type[0].dim[0] * p->type[0].dim[1];
    const int64_t t = window ? window : p->type[0].dim[1];
    const int32_t *mask = p->integer[4];
    double *score[2], loss = 0;
    for (int side = 0; side < 2; side++) score[side] = malloc((size_t)t * sizeof(double));
    for (int64_t i = 0; i < rows; i++) {
        const double kept = kept_tokens(mask, i, t);
        int64_t count = 0;
        for (int side = 0; side < 2; side++) {
            const int64_t w = p->type[2 * side].dim[2];
            const double *x = p->value[2 * side], *y = p->value[2 * side + 1];
            count = 0;
            for (int64_t j = i / t * t; j < i / t * t + t; j++)
                if (!mask || mask[j])
                    score[side][count++] =
                        inner(x + i * w, y + j * w, w) / sqrt((double)w);
        }
        if (kept > 0)
            loss +=
                row_cross_entropy(score[0], score[1], count, 1, false) * (double)t / kept;
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
    const GramMseAttrs *attrs = p->node->attrs;
    const int64_t rows = p->type[0].dim[0] * p->type[0].dim[1];
    const int64_t t = attrs->window ? attrs->window : p->type[0].dim[1];
    double loss = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = i / t * t; j < i / t * t + t; j++) {
            const double kept = kept_tokens(p->integer[2], i, t);
            if (kept == 0 || kept_tokens(p->integer[2], j, t) == 0) continue;
            const double apart = cosine(p, 0, i, j) - cosine(p, 1, i, j);
            loss += apart * apart * (double)(t * t) / (kept * kept);
        }
    return attrs->weight * loss / (double)(rows * t);
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
    {{"cross_entropy", "", "9x3 i9<3 i9<3 !9"}, naive_cross_entropy},
    {{"cross_entropy", "smoothing=0.1", "3x5x7 l3x5<7 i3x5<7 !3x5"}, naive_cross_entropy},
    {{"cross_entropy", "smoothing=1.0", "1x2 i1<2"}, naive_cross_entropy},
    {{"cross_entropy", "smoothing=0.1", "3x5x9 l3x5<9"}, naive_cross_entropy},
    {{"cross_entropy", "", "1x9 l1<9"}, naive_cross_entropy},
    {{"soft_cross_entropy", "", "9x7 9x7"}, naive_soft_cross_entropy},
    {{"soft_cross_entropy", "temperature=4.0", "5x1003 5x1003"},
     naive_soft_cross_entropy},
    {{"soft_cross_entropy", "temperature=0.5 kl=true", "3x33 3x33"},
     naive_soft_cross_entropy},
    {{"soft_cross_entropy", "kl=true", "3x33 =0"}, naive_soft_cross_entropy},
    {{"soft_cross_entropy", "", "3x5x9 3x5x9"}, naive_soft_cross_entropy},
    {{"soft_cross_entropy", "temperature=2.0", "3x5x9 3x5x9 m3x5"},
     naive_soft_cross_entropy},
    {{"soft_cross_entropy", "kl=true", "2x3x4x5 2x3x4x5 i2x3x4<2"},
     naive_soft_cross_entropy},
    {{"soft_cross_entropy", "", "3x5 3x5 i3<1"}, naive_soft_cross_entropy},
    {{"binary_cross_entropy", "", "9x67 9x67"}, naive_binary_cross_entropy},
    {{"binary_cross_entropy", "smoothing=0.1 positive=[3.0]", "3x5x9 3x5x9 m3x5"},
     naive_binary_cross_entropy},
    {{"binary_cross_entropy", "positive=[0.0, 2.0, 0.5]", "3x5x3 3x5x3 i3x5<2"},
     naive_binary_cross_entropy},
    {{"binary_cross_entropy", "", "3x5 3x5 i3<1"}, naive_binary_cross_entropy},
    {{"soft_binary_cross_entropy", "", "9x67 9x67"}, naive_soft_binary_cross_entropy},
    {{"soft_binary_cross_entropy", "temperature=4.0", "3x5x9 3x5x9 m3x5"},
     naive_soft_binary_cross_entropy},
    {{"soft_binary_cross_entropy", "temperature=0.5 kl=true", "3x33 3x33"},
     naive_soft_binary_cross_entropy},
    {{"soft_binary_cross_entropy", "kl=true", "3x33 =0"},
     naive_soft_binary_cross_entropy},
    {{"span_cross_entropy", "", "5x33x2 i5<33 i5<33"}, naive_span_cross_entropy},
    {{"span_cross_entropy", "", "3x9x2 i3<9 i3<9 m3x9"}, naive_span_cross_entropy},
    {{"soft_span_cross_entropy", "", "5x33x2 5x33x2"}, naive_soft_span},
    {{"soft_span_cross_entropy", "temperature=3.0 kl=true", "3x9x2 3x9x2 m3x9"},
     naive_soft_span},
    {{"soft_span_cross_entropy", "kl=true", "3x9x2 =0"}, naive_soft_span},
    {{"soft_choice_cross_entropy", "temperature=0.5", "9x1 9x1 i9<3"}, naive_soft_choice},
    {{"soft_choice_cross_entropy", "temperature=3.0 kl=true", "12x1 12x1 i12<4"},
     naive_soft_choice},
    {{"mean_squared_error", "", "9x67 9x67"}, naive_mean_squared_error},
    {{"mean_squared_error", "", "3x5x9 3x5x9 m3x5"}, naive_mean_squared_error},
    {{"mean_squared_error", "", "2x3x4x5 2x3x4x5 i2x3x4<2"}, naive_mean_squared_error},
    {{"mean_squared_error", "", "3x5 3x5 i3<1"}, naive_mean_squared_error},
    {{"relative_squared_error", "", "9x67 9x67"}, naive_relative_squared_error},
    {{"relative_squared_error", "", "3x5x9 3x5x9 m3x5"}, naive_relative_squared_error},
    {{"relative_squared_error", "", "2x3x4x5 2x3x4x5 i2x3x4<2"},
     naive_relative_squared_error},
    {{"relative_squared_error", "", "3x5 3x5 i3<1"}, naive_relative_squared_error},
    {{"cosine_distance", "", "9x67 9x67"}, naive_cosine_distance},
    {{"cosine_distance", "", "3x5x9 =0"}, naive_cosine_distance},
    {{"cosine_distance", "", "3x5x9 3x5x9 m3x5"}, naive_cosine_distance},
    {{"cosine_distance", "", "3x5 3x5 i3<1"}, naive_cosine_distance},
    {{"attention_map_mse", "heads=2", "2x5x8 2x5x8 2x5x6 2x5x6"}, naive_attention_map},
    {{"attention_map_mse", "heads=3", "1x300x9 =0 1x300x6 =2 m1x300"},
     naive_attention_map},
    {{"attention_map_mse", "", "3x5x8 3x5x8 3x5x3 3x5x3 i3x5<2"}, naive_attention_map},
    {{"attention_map_mse", "", "2x3x4 2x3x4 2x3x4 2x3x4 i2x3<1"}, naive_attention_map},
    {{"relation_cross_entropy", "", "2x5x8 2x5x8 2x5x6 2x5x6"}, naive_relation},
    {{"relation_cross_entropy", "", "1x300x9 =0 1x300x5 =2"}, naive_relation},
    {{"relation_cross_entropy", "", "3x1x2 3x1x2 3x1x4 3x1x4"}, naive_relation},
    {{"relation_cross_entropy", "", "3x5x8 3x5x8 3x5x3 3x5x3 i3x5<2"}, naive_relation},
    {{"relation_cross_entropy", "", "1x300x9 =0 1x300x5 =2 m1x300"}, naive_relation},
    {{"relation_cross_entropy", "", "2x3x4 2x3x4 2x3x4 2x3x4 i2x3<1"}, naive_relation},
    {{"gram_mse", "weight=49.0", "2x5x8 2x5x6"}, naive_gram},
    {{"gram_mse", "", "1x67x17 1x67x3"}, naive_gram},
    {{"gram_mse", "weight=3.0", "3x5x8 3x5x6 i3x5<2"}, naive_gram},
    {{"gram_mse", "", "2x3x4 2x3x4 i2x3<1"}, naive_gram},
    {{"relation_cross_entropy", "window=5", "2x10x8 2x10x8 2x10x6 2x10x6"},
     naive_relation},
    {{"relation_cross_entropy", "window=1", "2x4x8 =0 2x4x6 =2"}, naive_relation},
    {{"gram_mse", "weight=2.0 window=3", "2x9x8 2x9x6"}, naive_gram},
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
            const double size = fmax(operand_size(&p), fabs(want));
            if (!(fabs(result.out[0] - want) <= value_tolerance(&p, single, size)))
                fail_msg("%s %s: expected %.12g, found %.12g", CASES[i].at.op,
                         CASES[i].at.attrs, want, result.out[0]);
            result_free(&result);
        }
        problem_destroy(&p);
    }
}

/* A call that is told how many rows the whole mini-batch has gives its share. */
static void test_share_of_rows(void **state) {
    (void)state;
    static const Case SHARED[] = {
        {"cross_entropy", "smoothing=0.1", "3x5x9 l3x5<9"},
        {"soft_cross_entropy", "temperature=2.0", "3x5x9 !3x5x9 m3x5"},
        {"mean_squared_error", "", "3x5x9 !3x5x9 m3x5"},
        {"binary_cross_entropy", "smoothing=0.1", "3x5x9 !3x5x9 m3x5"},
        {"soft_binary_cross_entropy", "", "3x5x9 !3x5x9 m3x5"},
        {"cosine_distance", "", "3x5x9 !3x5x9 m3x5"},
    };
    for (size_t i = 0; i < sizeof SHARED / sizeof *SHARED; i++) {
        Problem p;
        assert_ok(problem_create(&p, &SHARED[i]), p.diag);
        double rows = 0;
        for (int j = 0; j < 15; j++)
            rows += i == 0 ? p.integer[1][j] != INDEX_SKIP : p.integer[2][j] != 0;
        Result own = execute(&p, (Mode){.backward = true});
        Result share = execute(&p, (Mode){.backward = true, .rows = 40});
        own.out[0] *= rows / 40;
        for (int j = 0; j < 3 * 5 * 9; j++) own.d_in[0][j] *= rows / 40;
        compare_value(&p, "share", false, share.out, own.out, 0);
        compare_gradient(&p, "share", 0, false, share.d_in[0], own.d_in[0], 0);
        result_free(&own);
        result_free(&share);
        problem_destroy(&p);
    }
}

/* Of every group one sample is right; groups may differ in size. */
static void test_choices(void **state) {
    (void)state;
    static const int32_t PLACE[] = {0, 1, 2, 3, 0, 0, 1}, RIGHT[] = {0, 0, 1, 0, 1, 1, 0};
    static const int FIRST[] = {0, 4, 5, 7};
    Problem p;
    assert_ok(problem_create(&p, &(Case){"choice_cross_entropy", "", "7x1 i7<2 i7<4"}),
              p.diag);
    double want = 0;
    for (int g = 0; g < 3; g++) {
        double sum = 0;
        for (int i = FIRST[g]; i < FIRST[g + 1]; i++) sum += exp(p.value[0][i]);
        for (int i = FIRST[g]; i < FIRST[g + 1]; i++)
            if (RIGHT[i]) want -= log(exp(p.value[0][i]) / sum) / 3;
    }
    memcpy(p.integer[1], RIGHT, sizeof RIGHT);
    memcpy(p.integer[2], PLACE, sizeof PLACE);
    for (int single = 0; single < 2; single++) {
        Result result = execute(&p, (Mode){.single = single});
        assert_within(result.out[0], want, value_tolerance(&p, single, operand_size(&p)));
        result_free(&result);
    }
    problem_destroy(&p);
}

/* A row of zeros has no direction: its distance is 1 and it gets no gradient, whether it
 * is the student's or the teacher's. Very short rows are as good as any other. */
static void test_cosine_zero_row(void **state) {
    (void)state;
    Problem p;
    assert_ok(problem_create(&p, &(Case){"cosine_distance", "", "3x5 !3x5"}), p.diag);
    memset(p.value[0], 0, 5 * sizeof(double));
    memset(p.value[1] + 5, 0, 5 * sizeof(double));
    for (int j = 10; j < 15; j++) p.value[1][j] = 2 * (p.value[0][j] *= 1e-15);
    for (int single = 0; single < 2; single++) {
        Result result = execute(&p, (Mode){.single = single, .backward = true});
        assert_within(result.out[0], 2.0 / 3, value_tolerance(&p, single, 1));
        for (int j = 0; j < 15; j++) assert_true(isfinite(result.d_in[0][j]));
        for (int j = 0; j < 10; j++) assert_true(result.d_in[0][j] == 0);
        result_free(&result);
    }
    problem_destroy(&p);
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

/* The same of labels for themselves: a far logit costs its size, or nothing. */
static void test_large_binary_logits(void **state) {
    (void)state;
    static const char *const OPS[] = {"binary_cross_entropy",
                                      "soft_binary_cross_entropy"};
    for (int k = 0; k < 2; k++) {
        Problem p;
        assert_ok(problem_create(&p, &(Case){OPS[k], "", "1x4 !1x4"}), p.diag);
        for (int c = 0; c < 4; c++) {
            p.value[0][c] = c < 2 ? -3e4 : 3e4;
            p.value[1][c] = k == 0 ? c % 2 : c % 2 ? 6e4 : -6e4;
        }
        Result result = execute(&p, (Mode){.single = true, .backward = true});
        assert_true(result.out[0] == 1.5e4); /* labels 1 and 2 are wrong, of four */
        for (int c = 0; c < 4; c++)
            assert_true(fabs(result.d_in[0][c]) ==
                        (c == 1 || c == 2 ? fabs(p.weight[0]) / 4 : 0));
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
        assert_within(result.out[0], naive_gram(&p), value_tolerance(&p, single, 1));
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
        {"cross_entropy", "", "5x7 i5<7 i5<7 -"},
        {"cross_entropy", "", "5x7 i5<7 - !5"},
        {"cross_entropy", "", "5x7 i5<7 i5<7 !4"},
        {"soft_cross_entropy", "", "5x7 5x8"},
        {"soft_cross_entropy", "temperature=0.0", "5x7 5x7"},
        {"soft_cross_entropy", "", "7 7"},
        {"soft_cross_entropy", "", "3x5x7 3x5x7 i3<2"},
        {"span_cross_entropy", "", "5x7 i5<7 i5<7"},
        {"span_cross_entropy", "", "5x7x3 i5<7 i5<7"},
        {"span_cross_entropy", "", "5x7x2 i5<7 i4<7"},
        {"choice_cross_entropy", "", "5x2 i5<2 i5<2"},
        {"soft_span_cross_entropy", "", "5x7x2 5x7x3"},
        {"soft_span_cross_entropy", "temperature=0.0", "5x7x2 5x7x2"},
        {"soft_choice_cross_entropy", "", "5x1 5x1 i4<2"},
        {"binary_cross_entropy", "", "5x7 5x8"},
        {"binary_cross_entropy", "", "5x7 i5x7<2"},
        {"binary_cross_entropy", "smoothing=1.5", "5x7 5x7"},
        {"binary_cross_entropy", "positive=[1.0, 2.0]", "5x7 5x7"},
        {"soft_binary_cross_entropy", "temperature=0.0", "5x7 5x7"},
        {"soft_binary_cross_entropy", "", "3x5x7 3x5x7 i3<2"},
        {"mean_squared_error", "", "3x5x7 3x5x6"},
        {"mean_squared_error", "", "5xT 5xT"},
        {"mean_squared_error", "", "3x5x7 3x5x7 3x5"},
        {"relative_squared_error", "", "3x5x7 3x5x6"},
        {"relative_squared_error", "", "3x5x7 3x5x7 i3<2"},
        {"cosine_distance", "", "3x5 3x5 i5<2"},
        {"cosine_distance", "", "5 5"},
        {"attention_map_mse", "heads=3", "2x5x8 2x5x8 2x5x6 2x5x6"},
        {"attention_map_mse", "heads=4", "2x5x8 2x5x8 2x5x6 2x5x6"},
        {"attention_map_mse", "heads=2", "2x5x8 2x4x8 2x5x6 2x5x6"},
        {"attention_map_mse", "heads=2", "2x5x8 2x5x8 2x4x6 2x4x6"},
        {"attention_map_mse", "heads=2", "2x5x8 2x5x8 2x5x6 2x5x6 i2x4<2"},
        {"attention_map_mse", "heads=0", "2x5x8 2x5x8 2x5x6 2x5x6"},
        {"relation_cross_entropy", "", "2x5x8 2x5x7 2x5x6 2x5x6"},
        {"relation_cross_entropy", "", "2x5x8 2x5x8 2x4x6 2x4x6"},
        {"relation_cross_entropy", "", "2x5x8 2x5x8 2x5x6 2x5x4"},
        {"relation_cross_entropy", "", "2x5xT 2x5xT 2x5x6 2x5x6"},
        {"relation_cross_entropy", "", "2x5x8 2x5x8 2x5x6 2x5x6 i2x4<2"},
        {"gram_mse", "", "2x5x8 2x5x6 i3x5<2"},
        {"relation_cross_entropy", "window=3", "2x5x8 2x5x8 2x5x6 2x5x6"},
        {"relation_cross_entropy", "window=3", "NxTx8 NxTx8 NxTx6 NxTx6"},
        {"gram_mse", "window=6", "2x5x8 2x5x8"},
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
        cmocka_unit_test(test_values),        cmocka_unit_test(test_share_of_rows),
        cmocka_unit_test(test_choices),       cmocka_unit_test(test_cosine_zero_row),
        cmocka_unit_test(test_large_logits),  cmocka_unit_test(test_large_binary_logits),
        cmocka_unit_test(test_gram_zero_row), cmocka_unit_test(test_infer_refuses),
    };
    blas_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
