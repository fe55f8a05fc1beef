/* Ops against numbers that PyTorch 1.13 gave for the same inputs in float64.
 *
 * Element j of operand i is sin(0.7 (j + 1) + i). A mask leaves out every third element
 * from the second, position j is (2 j + 1) mod 5. Values and gradients are compared by
 * their sums weighted with cos(0.3 j), which is also the gradient of the result. */
#include "exec/linalg/blas.h"
#include "tests/exec/grad_harness.h"

enum { GRADIENTS = 8 };

typedef struct Row {
    Case at;
    double value, gradient[GRADIENTS]; /* 0 = none */
} Row;

static const Row ROWS[] = {
    /* torch.matmul(x, w) + b */
    {{"linear", "transposed=true", "2x3x5 5x4 4"},
     -1.67032380349361,
     {0.521661630660983, -4.8109720236057, 2.4489159083425}},
    /* softmax(x / 2.5, -1) */
    {{"softmax", "temperature=2.5", "3x9"}, 0.493139601670702, {0.275696844585344}},
    /* gather(x, 1, positions[:, :, None].expand(3, 2, 7)) */
    {{"gather_tokens", "", "3x5x7 i3x2<5"}, 0.859888487566783, {-5.80288428588565}},
    /* cross_entropy(x[m] / 2, softmax(t[m] / 2, -1)) * 4 */
    {{"soft_cross_entropy", "temperature=2.0", "2x5x7 !2x5x7 m2x5"},
     7.7492401333235,
     {0.00493617824787681}},
    /* kl_div(log_softmax(x[m] / 2, -1), softmax(t[m] / 2, -1), "batchmean") * 4 */
    {{"soft_cross_entropy", "temperature=2.0 kl=true", "2x5x7 !2x5x7 m2x5"},
     0.199882968287507,
     {0.00493617824787681}},
    /* mse_loss(x[m], t[m]) */
    {{"mean_squared_error", "", "2x5x7 !2x5x7 m2x5"},
     0.446613587976445,
     {0.0659172065564342}},
    /* (((x - t)**2 * m).sum((1, 2)) / (t**2 * m).sum((1, 2))).mean() */
    {{"relative_squared_error", "", "2x5x7 !2x5x7 m2x5"},
     0.877082505415155,
     {0.174845544178943}},
    /* (1 - cosine_similarity(x, t, -1))[m].mean() */
    {{"cosine_distance", "", "2x5x7 !2x5x7 m2x5"},
     0.445596756568222,
     {0.0128099871798307}},
    /* mean over samples of mse_loss of the scores of all heads for the tokens in m */
    {{"attention_map_mse", "heads=2", "2x5x8 2x5x8 !2x5x6 !2x5x6 m2x5"},
     0.731010153594265,
     {0.285243307025641, -0.166208778235189}},
    /* softmax attention, keys and values by repeat_interleave */
    {{"attention", "heads=4 kv_heads=2", "2x5x12 2x7x6 2x7x10 m2x7"},
     -8.22570905892915,
     {0.60488739282241, -2.32186100859406, 5.2929700416212}},
    /* einsum("hfd,nhtd->nhtf", w, x / 2) + b through relu, elu + 1 and exp */
    {{"feature_map", "heads=4 scale=0.5", "2x5x12 2x5x3 2x5"},
     -23.8284711840101,
     {1.43474853441057, 2.78388724192974, 29.255055619176}},
    {{"feature_map", "heads=4 scale=0.5 fn=elu1", "2x5x12 2x5x3 2x5"},
     -38.5821796144896,
     {2.04952857457034, -2.42430038509886, 45.0493896904318}},
    {{"feature_map", "heads=4 scale=0.5 fn=positive", "2x5x12 2x5x3 2x5"},
     -23.5289673129836,
     {0.0343985478180958, 4.88442238869499, 32.3511656497671}},
    /* cat([u.softmax(-1), (-u).softmax(-1)], -1), then (u - u.amax(-1, True)).exp() */
    {{"feature_map", "heads=4 scale=0.5 fn=hedgehog", "2x5x12 2x5x3 2x5"},
     0.506945393881477,
     {0.00554019531737041, -0.0499726100202622, -0.198261136231836}},
    {{"feature_map", "heads=4 scale=0.5 fn=exp", "2x5x12 2x5x3 2x5"},
     -2.90856820272004,
     {5.02857036498589, 0.49126823745204, -3.7168990747745}},
    /* a = (q @ k.mT * m).tril(); a @ v / a.sum(-1, True).clamp(min=2): 50 of 56 rows
     * clamped, then without tril, 39 */
    {{"linear_attention", "heads=4 kv_heads=2 eps=2.0 causal=true",
      "2x7x12 2x7x6 2x7x10 m2x7"},
     -1.95112498855696,
     {-3.76540384798373, -6.04131086377553, 1.89759251631917}},
    {{"linear_attention", "heads=4 kv_heads=2 eps=2.0", "2x7x12 2x7x6 2x7x10 m2x7"},
     -1.99702365466417,
     {1.88402298891395, -8.35231827122924, 2.04538081300797}},
    /* near = (j <= i) & (j > i - 6) & m, far = (j <= i - 6) & m; s = (near_q @ near_k.mT
     * * 0.8).masked_fill(~near, -inf); a = g.sigmoid() * (s - s.amax(-1, True)).exp() +
     * (q @ k.mT) * far; a @ v / a.sum(-1, True) */
    {{"linear_attention", "heads=4 kv_heads=2 causal=true window=6 scale=0.8 chunk=4",
      "2x11x8 2x11x4 2x11x10 m2x11 2x11x12 2x11x6 4"},
     7.36958866734915,
     {13.0795720696532, 35.5890112982713, 41.5094747382641, 0, -9.74416617648741,
      -1.68197488405791, -12.2118945929107}},
    /* the same with (g + h * s.amax(-1, True)).clamp(-30, 30).exp() in place of
     * g.sigmoid() */
    {{"linear_attention", "heads=4 kv_heads=2 causal=true window=6 scale=0.8 chunk=4",
      "2x11x8 2x11x4 2x11x10 m2x11 2x11x12 2x11x6 4 4"},
     -5.69686132011499,
     {-1.20453559499098, -2.22171372083408, 25.3337030571255, 0, 0.334574020711946,
      7.18401218082255, -2.22931583788226, -0.849063357288772}},
    /* -(p * (a / a.sum(-1, True).clamp(min=0.5)).clamp(min=1e-6).log()).sum(-1).mean() */
    {{"attention_match", "heads=4 kv_heads=2 eps=0.5 causal=true",
      "2x7x12 2x7x6 !2x7x8 !2x7x4 m2x7"},
     5.57535043627402,
     {0.485833945356539, 0.6013124979591}},
    /* x * y */
    {{"multiply", "", "2x5 2x5"},
     0.773333375257278,
     {2.59844309622541, 2.54514745598643}},
    /* x * rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w */
    {{"rms_norm", "eps=1e-5", "3x5x7 7"},
     1.0688741879225,
     {-5.17057491854474, -1.4288586386318}},
    /* complex(x[..., :3], x[..., 3:]) * polar(1, outer(arange(5) + 3, 100 ** (-arange(3)
     * / 3))) for each head of 6 */
    {{"rotary", "heads=2 theta=100.0 offset=3", "2x5x12"},
     1.66147135677821,
     {29.8631648977347}},
    /* nn.LSTM(3, 4, batch_first=True) with weight_ih, weight_hh, bias_ih; bias_hh = 0 */
    {{"lstm", "", "2x5x3 16x3 16x4 16"},
     0.910053464763982,
     {0.381214623607207, -1.84055767496197, 0.0922126246680365, 1.10064986375887}},
    /* normalize(x, dim=-1), without and with rows below eps */
    {{"normalize", "", "3x5x7"}, -0.361030970678274, {20.4322679474582}},
    {{"normalize", "eps=1.0", "9x2"}, 0.964613096973656, {4.25420783938349}},
    /* x[arange(2), [3, 2]] */
    {{"last_token", "", "2x4x7 m2x4"}, -3.53390062850709, {0.453587093969362}},
    /* mse_loss(c(x, x), c(t, t)), c(a, b) = cosine_similarity(a[:, None], b[None], -1) */
    {{"similarity_mse", "", "6x8 !6x5"}, 1.09303311527063, {0.080005546043801}},
    /* s = scale * c(x[::g], cat([x[k::g] for k in range(1, g)])): cross_entropy(s,
     * arange); symmetric: the mean of that and cross_entropy(s[:, :n].T, arange) */
    {{"contrastive", "", "8x6"}, 30.6089667964741, {1.80605936623803}},
    {{"contrastive", "scale=5.0 symmetric=true", "8x6"},
     7.78367772276791,
     {0.434647147514917}},
    {{"contrastive", "group=3 scale=4.0", "9x5"}, 7.58174961140638, {0.161193316934187}},
    {{"contrastive", "group=3 scale=4.0 symmetric=true", "9x5"},
     7.25070331202973,
     {-0.247898774848223}},
    /* mse_loss(cosine_similarity(x[0::g], x[1::g], -1), t[0::g, 0]) */
    {{"pair_cosine_mse", "", "8x6 !8x1"}, 0.79249792780042, {0.381641432023046}},
    {{"pair_cosine_mse", "group=3", "9x5 !9x1"}, 1.37601182488202, {0.501969278579239}},
};

/* The inputs that PyTorch got; results are weighted as gradients are. */
static void fill(Problem *p) {
    for (int i = 0; i < p->count; i++)
        for (int64_t j = 0; j < type_count(&p->type[i]); j++) {
            if (p->value[i]) p->value[i][j] = sin(0.7 * (double)(j + 1) + i);
            if (p->integer[i])
                p->integer[i][j] = (int32_t)(i == 1 ? (2 * j + 1) % 5 : j % 3 != 1);
        }
    for (int64_t j = 0; j < type_count(&p->out); j++) p->weight[j] = cos(0.3 * (double)j);
}

/* The weighted sum of x is `want`, of which the rows have 15 digits. Elements are made of
 * `terms` terms. */
static void expect(const Row *row, const char *what, const double *x, const Type *type,
                   double want, bool single, double terms) {
    double got = 0, size = 0;
    for (int64_t j = 0; j < type_count(type); j++) {
        const double term = x[j] * cos(0.3 * (double)j);
        got += term;
        size += fabs(term);
    }
    const double tolerance = rounding_tolerance(single ? PRECISION_F32 : PRECISION_F64,
                                                terms + (double)type_count(type), size) +
                             1e-14 * fabs(want);
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s %s: %s is %.15g, expected %.15g within %.3g", row->at.op,
                 row->at.attrs, what, got, want, tolerance);
}

static void check_row(const Row *row) {
    static const char *const NAMES[GRADIENTS] = {"gradient 0", "gradient 1", "gradient 2",
                                                 "gradient 3", "gradient 4", "gradient 5",
                                                 "gradient 6", "gradient 7"};
    Problem p;
    assert_ok(problem_create(&p, &row->at), p.diag);
    fill(&p);
    for (int single = 0; single < 2; single++) {
        Result result = execute(&p, (Mode){.single = single, .backward = true});
        expect(row, "value", result.out, &p.out, row->value, single,
               rounding_node_terms(p.node, SIZES));
        for (int i = 0; i < GRADIENTS; i++) {
            assert_int_equal(result.d_in[i] != NULL, row->gradient[i] != 0);
            if (result.d_in[i])
                expect(row, NAMES[i], result.d_in[i], &p.type[i], row->gradient[i],
                       single, rounding_operand_terms(p.node, i, SIZES));
        }
        result_free(&result);
    }
    problem_destroy(&p);
}

static void test_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) check_row(&ROWS[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    blas_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
