/* attention against its formula, written out naively in double precision: every
 * combination of optional operands, both precisions, gradients by differences. */
#include "exec/linalg/blas.h"
#include "exec/ops/kernel.h"
#include "ir/buckets.h"
#include "tests/exec/attention_naive.h"
#include "tests/support/check.h"
#include "tests/support/rounding.h"
#include "tests/support/thinned.h"

/* A call of the kernel in one precision, with everything it points to. */
typedef struct Run {
    const Kernel *kernel;
    bool wide; /* double */
    Node node, leaf[OPERANDS], *in[OPERANDS];
    View value[OPERANDS], gradient[OPERANDS];
    Call call;
} Run;

/* Buffer of n elements in the run's precision: converted from x, or all bits set (NaN).
 */
static void *buffer(const Run *r, const double *x, int64_t n) {
    const size_t bytes = ((size_t)n * (r->wide ? 8 : 4) + 63) / 64 * 64;
    void *data = aligned_alloc(64, bytes > 0 ? bytes : 64);
    memset(data, 0xff, bytes);
    for (int64_t i = 0; x && i < n; i++)
        if (r->wide)
            ((double *)data)[i] = x[i];
        else
            ((float *)data)[i] = (float)x[i];
    return data;
}

static double element(const Run *r, const void *data, int64_t i) {
    return r->wide ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static View view_of(const Type *type, void *data) {
    View view = {.data = data, .rank = type->rank, .count = type_count(type)};
    memcpy(view.dim, type->dim, sizeof view.dim);
    return view;
}

static void *mask_buffer(const Problem *p) {
    int32_t *mask = malloc((size_t)p->count[MASK] * sizeof *mask);
    for (int64_t i = 0; i < p->count[MASK]; i++) mask[i] = (int32_t)p->in[MASK][i];
    return mask;
}

static void run_open(Run *r, const Problem *p, bool wide) {
    memset(r, 0, sizeof *r);
    r->wide = wide;
    r->kernel =
        kernel_of(kernels_for(wide ? PRECISION_F64 : PRECISION_F32), &op_attention);
    for (int i = 0; i < OPERANDS; i++) {
        if (!has(p, i)) continue;
        r->leaf[i].type = p->type[i];
        r->in[i] = &r->leaf[i];
        r->value[i] = view_of(&p->type[i], i == MASK ? mask_buffer(p)
                                                     : buffer(r, p->in[i], p->count[i]));
        r->gradient[i] = r->value[i];
        r->gradient[i].data = i == MASK ? NULL : buffer(r, NULL, p->count[i]);
    }
    r->node = (Node){.op = &op_attention,
                     .in = r->in,
                     .in_count = OPERANDS,
                     .attrs = (void *)&p->attrs};
    assert_int_equal(node_infer(&r->node, NULL), STATUS_OK);
    assert_int_equal(type_count(&r->node.type), p->out_count);
    r->call = (Call){.node = &r->node,
                     .attrs = &p->attrs,
                     .in = r->value,
                     .in_count = r->node.in_count,
                     .out = view_of(&r->node.type, NULL)};
    const size_t aux = r->kernel->aux_bytes(&r->call),
                 scratch = r->kernel->scratch_bytes(&r->call);
    r->call.out.data = buffer(r, NULL, p->out_count);
    r->call.aux = buffer(r, NULL, (int64_t)(aux / 4 + 1));
    r->call.scratch = buffer(r, NULL, (int64_t)(scratch / 4 + 1));
}

/* Runs backward with the output's gradient `d_out`. */
static void run_backward_call(Run *r, const Problem *p, const double *d_out) {
    r->call.d_in = r->gradient;
    r->call.d_out = view_of(&r->node.type, buffer(r, d_out, p->out_count));
    r->kernel->backward(&r->call);
    free(r->call.d_out.data);
}

static void run_close(Run *r) {
    for (int i = 0; i < OPERANDS; i++) {
        free(r->value[i].data);
        free(r->gradient[i].data);
    }
    free(r->call.out.data);
    free(r->call.aux);
    free(r->call.scratch);
}

static double *normal(uint64_t key, int64_t n) {
    double *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = random_normal(key, (uint64_t)i);
    return x;
}

static double dot(const double *x, const double *y, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* Difference of sum(d_out * naive) over h along `direction` of one operand. */
static double difference(const Problem *p, int i, const double *direction,
                         const double *d_out, double h) {
    double *out = malloc((size_t)p->out_count * sizeof *out), value[2];
    double *old = p->in[i], *moved = malloc((size_t)p->count[i] * sizeof *moved);
    Problem at = *p;
    at.in[i] = moved;
    for (int side = 0; side < 2; side++) {
        for (int64_t j = 0; j < p->count[i]; j++)
            moved[j] = old[j] + (side ? -h : h) * direction[j];
        naive(&at, out);
        value[side] = dot(out, d_out, p->out_count);
    }
    free(moved);
    free(out);
    return (value[0] - value[1]) / (2 * h);
}

static const int64_t NO_SYMBOLS[DIM_SYMBOLS]; /* all types are bound */

/* The gradient along a random direction against the difference. Products with d_out of
 * values, which lie among those of V times the mixing weights, are what is summed. */
static void check_direction(const Problem *p, const Run *r, int i, const double *d_out,
                            const double *direction) {
    const double h = 1e-5, narrow = difference(p, i, direction, d_out, h);
    const double terms = rounding_node_terms(&r->node, NO_SYMBOLS) + (double)p->out_count;
    const double size = largest_value(r->call.out.data, p->out_count) *
                        sqrt((double)p->out_count * dot(d_out, d_out, p->out_count));
    assert_within(dot(r->gradient[i].data, direction, p->count[i]), narrow,
                  difference_tolerance(PRECISION_F64, h, narrow,
                                       difference(p, i, direction, d_out, 2 * h), terms,
                                       size));
}

/* One of the run's arrays is `want`, each element being made of `terms` terms. An error
 * of a score is a relative one of its weight, so softmax multiplies by the largest score.
 */
static void check_array(const char *what, const Run *r, const View *array,
                        const double *want, double terms, double score) {
    double *got = malloc((size_t)array->count * sizeof *got);
    for (int64_t j = 0; j < array->count; j++) got[j] = element(r, array->data, j);
    const double size = fmax(1, score) * fmax(1, largest_value(want, array->count));
    rounding_compare(what, got, want, array->count,
                     r->wide ? PRECISION_F64 : PRECISION_F32, terms, size);
    free(got);
}

static void check_value(const Run *r, const double *want, double score) {
    check_array("value", r, &r->call.out, want, rounding_node_terms(&r->node, NO_SYMBOLS),
                score);
}

static void check_gradient(const Run *r, int i, const double *want, double score) {
    check_array("gradient", r, &r->gradient[i], want,
                rounding_operand_terms(&r->node, i, NO_SYMBOLS), score);
}

/* Gradients in double against differences, those in float against double. */
static void check_gradients(const Problem *p, Run *wide, Run *narrow, uint64_t key,
                            double score) {
    double *d_out = normal(random_key(key, 100), p->out_count);
    run_backward_call(wide, p, d_out);
    run_backward_call(narrow, p, d_out);
    for (int i = 0; i < OPERANDS; i++) {
        if (!has(p, i) || i == MASK) continue;
        double *direction = normal(random_key(key, 200 + (uint64_t)i), p->count[i]);
        check_direction(p, wide, i, d_out, direction);
        check_gradient(narrow, i, wide->gradient[i].data, score);
        free(direction);
    }
    free(d_out);
}

/* Against the formula, after problem_fill; p is freed. */
static void check_filled(Problem *p, uint64_t key) {
    double *expected = malloc((size_t)p->out_count * sizeof *expected);
    const double score = naive(p, expected);
    Run run[2];
    for (int wide = 0; wide < 2; wide++) {
        run_open(&run[wide], p, wide);
        run[wide].kernel->forward(&run[wide].call);
        check_value(&run[wide], expected, score);
    }
    check_gradients(p, &run[1], &run[0], key, score);
    run_close(&run[0]);
    run_close(&run[1]);
    problem_free(p);
    free(expected);
}

static void check_problem(Problem *p, uint64_t key) {
    problem_fill(p, key);
    check_filled(p, key);
}

/* Every subset of optional operands, causal or not. */
static void test_all_options(void **state) {
    (void)state;
    for (unsigned set = 0; set < 1u << OPTIONAL; set++)
        for (int causal = 0; causal < 2; causal++) {
            Problem p = {2,
                         3,
                         7,
                         7,
                         5,
                         4,
                         {.causal = causal, .grid_h = 2, .grid_w = 3, .skip = 1}};
            p.present = ALWAYS | set << MASK;
            check_problem(&p, set * 2 + (unsigned)causal);
        }
}

/* Many blocks of rows, as in a vision transformer, with and without mixing. */
static void test_many_blocks(void **state) {
    (void)state;
    const unsigned all = (1u << OPTIONAL) - 1;
    for (unsigned set = 0; set <= all; set += all) {
        Problem p = {1, 2, 197, 197, 8, 8, {.grid_h = 14, .grid_w = 14, .skip = 1}};
        p.present = ALWAYS | set << MASK;
        check_problem(&p, 1000 + set);
    }
    Problem text = {1, 1, 300, 270, 3, 5, {.causal = true, .scale = 0.3}};
    text.present = ALWAYS | BIT(MASK);
    check_problem(&text, 2000);
}

static int64_t pick(uint64_t key, uint64_t index, int64_t most) {
    return 1 + (int64_t)(random_u64(key, index) % (uint64_t)most);
}

static void test_random_shapes(void **state) {
    (void)state;
    for (uint64_t round = 0; round < 300; round += ROUND_STEP) {
        const uint64_t key = random_key(77, round), bits = random_u64(key, 50);
        Problem p = {pick(key, 0, 3),  pick(key, 1, 4),  pick(key, 2, 40),
                     pick(key, 3, 40), pick(key, 4, 20), pick(key, 5, 20)};
        p.attrs.causal = bits & 1;
        p.attrs.scale = bits & 2 ? 0.5 : 0;
        p.present = ALWAYS | (unsigned)(bits >> 8 & ((1u << OPTIONAL) - 1)) << MASK;
        p.attrs.grid_h = pick(key, 6, 6);
        p.attrs.grid_w = pick(key, 7, 9);
        p.attrs.skip = pick(key, 8, 3) - 1;
        const int64_t tokens = p.attrs.skip + p.attrs.grid_h * p.attrs.grid_w;
        if (has(&p, REL_KEY) || has(&p, REL_BIAS)) p.queries = p.keys = tokens;
        check_problem(&p, key);
    }
}

/* Windows of any size on any grid, shifted and not, with every kind of operand. */
static void test_windows(void **state) {
    (void)state;
    for (uint64_t round = 0; round < 300; round += ROUND_STEP) {
        const uint64_t key = random_key(79, round), bits = random_u64(key, 50);
        Problem p = {.samples = pick(key, 0, 3),
                     .heads = pick(key, 1, 4),
                     .head = pick(key, 4, 12),
                     .value_head = pick(key, 5, 12)};
        AttentionAttrs *a = &p.attrs;
        a->grid_h = pick(key, 6, 9);
        a->grid_w = pick(key, 7, 9);
        a->window = pick(key, 8, 5);
        a->shift = pick(key, 9, a->window) - 1;
        p.present = ALWAYS | (unsigned)(bits >> 8 & ((1u << OPTIONAL) - 1)) << MASK;
        p.queries = p.keys = (a->grid_h + a->window - 1) / a->window * a->window *
                             ((a->grid_w + a->window - 1) / a->window * a->window);
        check_problem(&p, key);
    }
}

/* Biases by buckets of distances: both sides or one, with everything that may stand
 * beside them, and lengths beyond the last bucket. */
static void test_buckets(void **state) {
    (void)state;
    for (uint64_t round = 0; round < 100; round += ROUND_STEP) {
        const uint64_t key = random_key(80, round), bits = random_u64(key, 50);
        Problem p = {pick(key, 0, 2),   pick(key, 1, 4), pick(key, 2, 120),
                     pick(key, 3, 120), pick(key, 4, 9), pick(key, 5, 9)};
        AttentionAttrs *a = &p.attrs;
        a->causal = bits & 1;
        a->bidirectional = bits >> 1 & 1;
        a->scale = bits & 4 ? 1 : 0;
        a->buckets = pick(key, 6, 40) + 3;
        a->distance = a->buckets / (a->bidirectional ? 4 : 2) + pick(key, 7, 130);
        p.present = ALWAYS | BIT(REL_BIAS) |
                    (unsigned)(bits >> 8 & ((1u << OPTIONAL) - 1)) << MASK;
        p.present &= ~BIT(REL_KEY);
        check_problem(&p, key);
    }
}

/* The published sizes, at every offset of long texts. */
static void test_published_buckets(void **state) {
    (void)state;
    enum { FAR = 3000 };
    int32_t row[2 * FAR + 1];
    for (int sides = 0; sides < 2; sides++) {
        const AttentionAttrs attrs = {
            .buckets = 32, .distance = 128, .bidirectional = sides};
        const Buckets b = {32, 128, sides};
        buckets_fill(&b, FAR, FAR, row);
        for (int64_t o = -FAR; o <= FAR; o++)
            assert_int_equal(row[FAR + o], distance_bucket(&attrs, FAR, FAR + o));
    }
}

/* Windows that slide along the tokens, on both sides or behind, shorter and longer than
 * the text, and caps of the scores, with every kind of operand. */
static void test_reach_and_cap(void **state) {
    (void)state;
    for (uint64_t round = 0; round < 200; round += ROUND_STEP) {
        const uint64_t key = random_key(83, round), bits = random_u64(key, 50);
        const int64_t groups = pick(key, 1, 2);
        Problem p = {pick(key, 0, 2),  groups * pick(key, 9, 3), pick(key, 2, 150),
                     pick(key, 3, 40), pick(key, 4, 9),          pick(key, 5, 9)};
        p.attrs.causal = bits & 1;
        p.attrs.reach = bits & 2 ? pick(key, 10, 20) : bits & 4 ? 200 : 0;
        p.attrs.cap = bits & 8 ? 0.5 + (double)pick(key, 11, 4) : 0;
        p.attrs.kv_heads = groups;
        p.attrs.grid_h = pick(key, 6, 6);
        p.attrs.grid_w = pick(key, 7, 9);
        p.present = ALWAYS | (unsigned)(bits >> 8 & 7) << MASK;
        if (bits & 16 && p.heads == groups)
            p.present |= BIT(MIX_BEFORE) | BIT(MIX_AFTER) | BIT(MIX_AFTER_BIAS);
        if (has(&p, REL_KEY)) p.queries = p.keys = p.attrs.grid_h * p.attrs.grid_w;
        check_problem(&p, key);
    }
}

/* Lengths about those of whole blocks and whole vectors, with what lets parts of the
 * square out: causality, reach, padding on either side; groups of heads. */
static void test_edges(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 2, 7, 8, 9, 63, 64, 65, 127, 128, 129, 191, 200};
    static const int64_t reaches[] = {0, 1, 8, 9, 70};
    for (uint64_t round = 0; round < 130; round += ROUND_STEP) {
        const uint64_t key = random_key(84, round), bits = random_u64(key, 50);
        const int64_t groups = pick(key, 1, 2), tokens = lengths[round % 13];
        Problem p = {2, groups * pick(key, 9, 2), tokens, tokens, 4, 3};
        p.attrs.causal = bits & 3;
        p.attrs.reach = reaches[round / 13 % 5];
        p.attrs.kv_heads = groups;
        if (bits & 4) p.keys = lengths[random_u64(key, 51) % 13];
        p.present = ALWAYS | (bits & 8 ? BIT(BIAS) : 0);
        if (bits & 16) p.present |= BIT(MASK);
        if (bits & 32 && p.heads == groups)
            p.present |= BIT(MIX_BEFORE) | BIT(MIX_AFTER) | BIT(MIX_AFTER_BIAS);
        problem_fill(&p, key);
        const int64_t before = pick(key, 2, p.keys) - 1, after = pick(key, 3, p.keys) - 1;
        for (int64_t j = 0; j < p.keys; j++) {
            if (j < before) p.in[MASK][j] = 0;
            if (j >= after) p.in[MASK][p.keys + j] = 0;
        }
        check_filled(&p, key);
    }
}

/* Keys and values of a head's rows from `first` on become NaN. */
static void spoil(Problem *p, int64_t first) {
    for (int i = K; i <= V; i++)
        for (int64_t j = first * p->count[i] / p->keys; j < p->count[i]; j++)
            p->in[i][j] = NAN;
}

/* Blocks that no query of theirs sees are not computed: what stands there does not
 * matter. Here rows 0 to 63 see nothing from key 64 on. */
static void test_skipped_blocks(void **state) {
    (void)state;
    enum { ROWS = 64, TOKENS = 256 };
    for (int kind = 0; kind < 3; kind++) { /* causal, in reach, padding */
        Problem p = {1, 1, TOKENS, TOKENS, 4, 4};
        p.attrs.causal = kind == 0;
        p.attrs.reach = kind == 1 ? 1 : 0;
        p.present = ALWAYS | (kind == 2 ? BIT(MASK) : 0);
        problem_fill(&p, 12);
        for (int64_t j = ROWS; j < TOKENS; j++) p.in[MASK][j] = 0;
        spoil(&p, ROWS);
        double *d_out = normal(9, p.out_count);
        if (kind != 2) memset(d_out + ROWS * 4, 0, (TOKENS - ROWS) * 4 * sizeof *d_out);
        Run run;
        run_open(&run, &p, false);
        run.kernel->forward(&run.call);
        run_backward_call(&run, &p, d_out);
        for (int64_t i = 0; i < ROWS * 4; i++) {
            assert_true(isfinite(element(&run, run.call.out.data, i)));
            assert_true(isfinite(element(&run, run.gradient[Q].data, i)));
        }
        run_close(&run);
        free(d_out);
        problem_free(&p);
    }
}

/* Groups of query heads with one head of keys and values each. */
static void test_groups(void **state) {
    (void)state;
    for (uint64_t round = 0; round < 100; round += ROUND_STEP) {
        const uint64_t key = random_key(78, round), bits = random_u64(key, 50);
        const int64_t groups = pick(key, 1, 3);
        Problem p = {pick(key, 0, 2),  groups * pick(key, 9, 4), pick(key, 2, 150),
                     pick(key, 3, 40), pick(key, 4, 9),          pick(key, 5, 9)};
        p.attrs.kv_heads = groups;
        p.attrs.causal = bits & 1;
        p.attrs.grid_h = pick(key, 6, 6);
        p.attrs.grid_w = pick(key, 7, 9);
        p.present = ALWAYS | (unsigned)(bits >> 8 & 7) << MASK;
        if (has(&p, REL_KEY)) p.queries = p.keys = p.attrs.grid_h * p.attrs.grid_w;
        check_problem(&p, key);
    }
}

/* The same bytes as with keys and values repeated for every query head. */
static void test_repeated_heads(void **state) {
    (void)state;
    Problem p = {2, 6, 130, 90, 8, 5, {.kv_heads = 2, .causal = true}};
    Problem q = {2, 6, 130, 90, 8, 5, {.causal = true}};
    p.present = q.present = ALWAYS | BIT(MASK) | BIT(BIAS);
    problem_fill(&p, 11);
    problem_fill(&q, 11);
    for (int i = K; i <= V; i++) {
        const int64_t width = i == K ? 8 : 5;
        for (int64_t j = 0; j < q.count[i]; j++)
            q.in[i][j] = p.in[i][j / width / 3 * width + j % width];
    }
    double *d_out = normal(9, p.out_count);
    Run grouped, repeated;
    run_open(&grouped, &p, true);
    run_open(&repeated, &q, true);
    grouped.kernel->forward(&grouped.call);
    repeated.kernel->forward(&repeated.call);
    run_backward_call(&grouped, &p, d_out);
    run_backward_call(&repeated, &q, d_out);
    assert_memory_equal(grouped.call.out.data, repeated.call.out.data,
                        (size_t)p.out_count * sizeof(double));
    for (int i = K; i <= V; i++) {
        double *sum = calloc((size_t)p.count[i], sizeof *sum);
        for (int64_t j = 0; j < p.count[i]; j++) {
            const int64_t width = i == K ? 8 : 5, first = j / width * 3 * width;
            const double *all = repeated.gradient[i].data;
            for (int64_t h = 0; h < 3; h++) sum[j] += all[first + h * width + j % width];
        }
        check_gradient(&grouped, i, sum, 1);
        free(sum);
    }
    run_close(&grouped);
    run_close(&repeated);
    problem_free(&p);
    problem_free(&q);
    free(d_out);
}

/* A sample without any key to attend to: zeros, not NaN, and no gradient. */
static void test_fully_masked(void **state) {
    (void)state;
    for (unsigned set = 0; set < 32; set++) {
        Problem p = {2, 2, 5, 6, 4, 3};
        p.present = ALWAYS | BIT(MASK) | (set & 1 ? BIT(BIAS) : 0) |
                    (set & 2 ? BIT(MIX_BEFORE) : 0) | (set & 4 ? BIT(MIX_AFTER) : 0) |
                    (set & 8 ? BIT(MIX_BEFORE_BIAS) : 0) |
                    (set & 16 ? BIT(MIX_AFTER_BIAS) : 0);
        problem_fill(&p, set);
        memset(p.in[MASK], 0, (size_t)p.keys * sizeof(double));
        double *d_out = normal(9, p.out_count);
        for (int wide = 0; wide < 2; wide++) {
            Run run;
            run_open(&run, &p, wide);
            run.kernel->forward(&run.call);
            run_backward_call(&run, &p, d_out);
            for (int64_t i = 0; i < p.out_count / 2; i++)
                assert_true(element(&run, run.call.out.data, i) == 0);
            for (int i = 0; i < OPERANDS; i++)
                for (int64_t j = 0; has(&p, i) && i != MASK && j < p.count[i]; j++) {
                    const double gradient = element(&run, run.gradient[i].data, j);
                    assert_true(isfinite(gradient));
                    if (i <= V && j < p.count[i] / 2) assert_true(gradient == 0);
                }
            run_close(&run);
        }
        free(d_out);
        problem_free(&p);
    }
}

/* Gradients that accumulate are added to; unwanted ones are left alone. */
static void test_accumulate(void **state) {
    (void)state;
    Problem p = {2, 2, 6, 6, 4, 4, {.grid_h = 2, .grid_w = 3}};
    p.present = ALWAYS | ((1u << OPTIONAL) - 1) << MASK;
    problem_fill(&p, 5);
    double *d_out = normal(9, p.out_count);
    Run once, more;
    run_open(&once, &p, true);
    run_open(&more, &p, true);
    once.kernel->forward(&once.call);
    more.kernel->forward(&more.call);
    run_backward_call(&once, &p, d_out);
    for (int i = 0; i < OPERANDS; i++) {
        more.gradient[i].accumulate = true;
        for (int64_t j = 0; i != MASK && j < p.count[i]; j++)
            ((double *)more.gradient[i].data)[j] = 1000;
    }
    run_backward_call(&more, &p, d_out);
    for (int i = 0; i < OPERANDS; i++) {
        if (i == MASK) continue;
        for (int64_t j = 0; j < p.count[i]; j++)
            ((double *)once.gradient[i].data)[j] += 1000;
        check_gradient(&more, i, once.gradient[i].data, 1);
    }
    run_close(&once);
    run_close(&more);
    problem_free(&p);
    free(d_out);
}

/* q, k and v one node: their gradients share a place, the first overwrites it. */
static void test_shared_gradient(void **state) {
    (void)state;
    Problem p = {2, 2, 130, 130, 4, 4};
    p.present = ALWAYS;
    problem_fill(&p, 6);
    double *d_out = normal(9, p.out_count);
    Run apart, shared;
    run_open(&apart, &p, true);
    run_open(&shared, &p, true);
    apart.kernel->forward(&apart.call);
    shared.kernel->forward(&shared.call);
    run_backward_call(&apart, &p, d_out);
    void *kept[OPERANDS] = {NULL, shared.gradient[K].data, shared.gradient[V].data};
    for (int i = K; i <= V; i++) {
        shared.gradient[i].data = shared.gradient[Q].data;
        shared.gradient[i].accumulate = true;
    }
    run_backward_call(&shared, &p, d_out);
    double *sum = calloc((size_t)p.count[Q], sizeof *sum);
    for (int64_t j = 0; j < p.count[Q]; j++)
        for (int i = Q; i <= V; i++) sum[j] += ((double *)apart.gradient[i].data)[j];
    check_gradient(&shared, Q, sum, 1);
    free(sum);
    for (int i = K; i <= V; i++) shared.gradient[i].data = kept[i];
    run_close(&apart);
    run_close(&shared);
    problem_free(&p);
    free(d_out);
}

/* Only one gradient wanted at a time: the same as when all are. */
static void test_single_gradients(void **state) {
    (void)state;
    Problem p = {2, 2, 6, 6, 4, 3, {.grid_h = 2, .grid_w = 3}};
    p.present = ALWAYS | ((1u << OPTIONAL) - 1) << MASK;
    problem_fill(&p, 7);
    double *d_out = normal(9, p.out_count);
    Run all;
    run_open(&all, &p, true);
    all.kernel->forward(&all.call);
    run_backward_call(&all, &p, d_out);
    for (int i = 0; i < OPERANDS; i++) {
        if (i == MASK) continue;
        Run one;
        run_open(&one, &p, true);
        one.kernel->forward(&one.call);
        for (int j = 0; j < OPERANDS; j++) {
            if (j == i) continue;
            free(one.gradient[j].data);
            one.gradient[j].data = NULL;
        }
        run_backward_call(&one, &p, d_out);
        for (int64_t j = 0; j < p.count[i]; j++)
            assert_true(((double *)one.gradient[i].data)[j] ==
                        ((double *)all.gradient[i].data)[j]);
        run_close(&one);
    }
    run_close(&all);
    problem_free(&p);
    free(d_out);
}

/* Shapes that do not fit are refused with what was expected and found. */
static void test_infer_errors(void **state) {
    (void)state;
    for (int wrong = 0; wrong < OPERANDS; wrong++) {
        Problem p = {2, 2, 6, 6, 4, 3, {.grid_h = 2, .grid_w = 3}};
        p.present = ALWAYS | ((1u << OPTIONAL) - 1) << MASK;
        problem_fill(&p, 8);
        Run run;
        run_open(&run, &p, false);
        run.leaf[wrong].type.dim[run.leaf[wrong].type.rank - 1]++;
        Diag *diag = diag_create();
        assert_int_equal(node_infer(&run.node, diag), STATUS_MODEL);
        assert_int_equal(diag_errors(diag), 1);
        diag_destroy(diag);
        run_close(&run);
        problem_free(&p);
    }
    Problem p = {1, 2, 6, 6, 4, 4, {.grid_h = 2, .grid_w = 3}};
    p.present = ALWAYS | BIT(REL_KEY) | BIT(REL_BIAS);
    problem_fill(&p, 9);
    Run run;
    run_open(&run, &p, false);
    p.attrs.skip = 1;
    Diag *diag = diag_create();
    assert_int_equal(node_infer(&run.node, diag), STATUS_MODEL);
    diag_destroy(diag);
    run_close(&run);
    problem_free(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_options),     cmocka_unit_test(test_many_blocks),
        cmocka_unit_test(test_random_shapes),   cmocka_unit_test(test_groups),
        cmocka_unit_test(test_windows),         cmocka_unit_test(test_repeated_heads),
        cmocka_unit_test(test_fully_masked),    cmocka_unit_test(test_accumulate),
        cmocka_unit_test(test_shared_gradient), cmocka_unit_test(test_single_gradients),
        cmocka_unit_test(test_infer_errors),    cmocka_unit_test(test_reach_and_cap),
        cmocka_unit_test(test_buckets),         cmocka_unit_test(test_published_buckets),
        cmocka_unit_test(test_edges),           cmocka_unit_test(test_skipped_blocks),
    };
    blas_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
