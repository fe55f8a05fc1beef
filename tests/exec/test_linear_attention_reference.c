/* feature_map and linear_attention against PyTorch: causal, relu features of 3 heads, a
 * share of the rows clamped. Values stand there as [sample, head, token, width]. */
#include "exec/linalg/blas.h"
#include "exec/run/clamp_count.h"
#include "tests/exec/grad_harness.h"
#include "tests/support/reference.h"

#define FOLDER "tests/data/reference/t2r/"

enum { SAMPLES = 2, HEADS = 3, TOKENS = 12, WIDTH = 8, FEATURES = 6 };
enum { VALUES = SAMPLES * HEADS * TOKENS * WIDTH };

typedef struct Files {
    Checkpoint *weights, *reference, *gradients;
} Files;

/* Reads tensor `name` as it stands. */
static int64_t read_flat(const Checkpoint *file, const char *name, double *to) {
    const Tensor *tensor = checkpoint_find(file, name);
    assert_non_null(tensor);
    assert_true(tensor_count(tensor) <= VALUES);
    tensor_read_f64(tensor, 0, tensor_count(tensor), to);
    return tensor_count(tensor);
}

/* The same, [sample, head, token, width] turned into [sample, token, head * width]. */
static int64_t read_tokens(const Checkpoint *file, const char *name, double *to) {
    double flat[VALUES];
    const int64_t count = read_flat(file, name, flat);
    const int64_t width = count / (SAMPLES * HEADS * TOKENS);
    for (int64_t i = 0; i < count; i++) {
        const int64_t n = i / width / TOKENS / HEADS, h = i / width / TOKENS % HEADS;
        const int64_t t = i / width % TOKENS;
        to[((n * TOKENS + t) * HEADS + h) * width + i % width] = flat[i];
    }
    return count;
}

typedef int64_t (*Reader)(const Checkpoint *file, const char *name, double *to);

/* Values of chains of `terms` terms, against a file that is float32. */
static void compare(const Checkpoint *file, const char *name, Reader reader,
                    const double *got, bool single, double terms) {
    double want[VALUES];
    const int64_t count = reader(file, name, want);
    const double largest = largest_value(want, count);
    const double tolerance =
        rounding_tolerance(single ? PRECISION_F32 : PRECISION_F64, terms, largest) +
        ldexp(largest, -24);
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= tolerance))
            fail_msg("%s: element %lld is %.9g, expected %.9g", name, (long long)i,
                     got[i], want[i]);
}

/* The feature map of q or k as a problem, its operands read from the file. */
static void open_map(Problem *p, const Files *f, const char *name, const char *attrs) {
    assert_ok(problem_create(p, &(Case){"feature_map", attrs, "2x12x24 3x6x8 3x6"}),
              p->diag);
    read_tokens(f->weights, name, p->value[0]);
    read_flat(f->weights, "feature.weight", p->value[1]);
    read_flat(f->weights, "feature.bias", p->value[2]);
}

/* What one precision computes, from q, k and v to gradients. */
typedef struct Chain {
    Problem map[2], attention; /* of q and k */
    Result feature[2], result, d_feature[2];
} Chain;

static void chain_run(Chain *c, const Files *f, bool single) {
    static const char *const ATTRS[] = {"heads=3 scale=0.35355339059327376", "heads=3"};
    const Case attention = {"linear_attention", "heads=3 causal=true chunk=5",
                            "2x12x18 2x12x18 2x12x24"};
    const Mode forward = {.single = single},
               backward = {.single = single, .backward = true};
    assert_ok(problem_create(&c->attention, &attention), c->attention.diag);
    for (int i = 0; i < 2; i++) {
        open_map(&c->map[i], f, i == 0 ? "q" : "k", ATTRS[i]);
        c->feature[i] = execute(&c->map[i], forward);
        memcpy(c->attention.value[i], c->feature[i].out,
               sizeof(double) * SAMPLES * TOKENS * HEADS * FEATURES);
    }
    read_tokens(f->weights, "v", c->attention.value[2]);
    read_tokens(f->reference, "output_gradient", c->attention.weight);
    c->result = execute(&c->attention, backward);
    for (int i = 0; i < 2; i++) {
        memcpy(c->map[i].weight, c->result.d_in[i],
               sizeof(double) * SAMPLES * TOKENS * HEADS * FEATURES);
        c->d_feature[i] = execute(&c->map[i], backward);
    }
}

static void chain_close(Chain *c) {
    for (int i = 0; i < 2; i++) {
        result_free(&c->feature[i]);
        result_free(&c->d_feature[i]);
        problem_destroy(&c->map[i]);
    }
    result_free(&c->result);
    problem_destroy(&c->attention);
}

/* The map is one for q and k, so its gradients are summed. */
static void compare_weights(const Chain *c, const Files *f, bool single, double terms) {
    static const char *const NAMES[] = {"grad.feature.weight", "grad.feature.bias"};
    double sum[VALUES];
    for (int i = 0; i < 2; i++) {
        for (int64_t j = 0; j < type_count(&c->map[0].type[1 + i]); j++)
            sum[j] = c->d_feature[0].d_in[1 + i][j] + c->d_feature[1].d_in[1 + i][j];
        compare(f->gradients, NAMES[i], read_flat, sum, single, terms);
    }
}

static void test_values_and_gradients(void **state) {
    const Files *f = *state;
    for (int single = 0; single < 2; single++) {
        Chain c;
        chain_run(&c, f, single);
        const double map = rounding_node_terms(c.map[0].node, SIZES);
        const double values = map + rounding_node_terms(c.attention.node, SIZES);
        const double back = values + rounding_operand_terms(c.attention.node, 1, SIZES) +
                            rounding_operand_terms(c.map[0].node, 1, SIZES);
        compare(f->reference, "phi_q", read_tokens, c.feature[0].out, single, map);
        compare(f->reference, "phi_k", read_tokens, c.feature[1].out, single, map);
        compare(f->reference, "output", read_tokens, c.result.out, single, values);
        compare(f->gradients, "grad.q", read_tokens, c.d_feature[0].d_in[0], single,
                back);
        compare(f->gradients, "grad.k", read_tokens, c.d_feature[1].d_in[0], single,
                back);
        compare(f->gradients, "grad.v", read_tokens, c.result.d_in[2], single, back);
        compare_weights(&c, f, single, back);
        chain_close(&c);
    }
}

/* Queries that are unit vectors, and an eps that clamps them all, read S off the result;
 * with values of one, z. */
static void test_state(void **state) {
    const Files *f = *state;
    Problem p;
    const Case unit = {"linear_attention", "heads=3 eps=1000.0",
                       "2x6x18 2x12x18 2x12x24"};
    assert_ok(problem_create(&p, &unit), p.diag);
    read_tokens(f->reference, "phi_k", p.value[1]);
    for (int64_t i = 0; i < type_count(&p.type[0]); i++)
        p.value[0][i] = i / 18 % 6 == i % 6;
    for (int ones = 0; ones < 2; ones++) {
        double S[SAMPLES * HEADS * FEATURES * WIDTH], z[SAMPLES * HEADS * FEATURES];
        read_tokens(f->weights, "v", p.value[2]);
        for (int64_t i = 0; ones && i < type_count(&p.type[2]); i++) p.value[2][i] = 1;
        Result result = execute(&p, (Mode){0});
        for (int64_t i = 0; i < type_count(&p.out); i++) {
            const int64_t n = i / 144, row = i / 24 % 6, h = i / 8 % 3;
            const double value = 1000 * result.out[i];
            S[((n * HEADS + h) * FEATURES + row) * WIDTH + i % 8] = value;
            z[(n * HEADS + h) * FEATURES + row] = value;
        }
        compare(f->reference, ones ? "z" : "S", read_flat, ones ? z : S, false,
                rounding_node_terms(p.node, SIZES));
        result_free(&result);
    }
    problem_destroy(&p);
}

static void test_clamped(void **state) {
    const Files *f = *state;
    double clamped[VALUES], q[VALUES], k[VALUES];
    int64_t want = 0;
    const int64_t rows = read_flat(f->reference, "clamped", clamped);
    for (int64_t i = 0; i < rows; i++) want += clamped[i] != 0;
    Problem p;
    const Case c = {"linear_attention", "heads=3 causal=true", "2x12x18 2x12x18 2x12x24"};
    assert_ok(problem_create(&p, &c), p.diag);
    float *phi_q = to_reals(q, read_tokens(f->reference, "phi_q", q), true);
    float *phi_k = to_reals(k, read_tokens(f->reference, "phi_k", k), true);
    ClampCount got = {0, 0};
    linear_attention_count(&got, p.node, SIZES, phi_q, phi_k, NULL, NULL);
    assert_int_equal(got.rows, rows);
    assert_int_equal(got.clamped, want);
    assert_true(want > 0);
    free(phi_q);
    free(phi_k);
    problem_destroy(&p);
}

static int setup(void **state) {
    static Files files;
    Diag *diag = diag_create();
    blas_init();
    assert_ok(safetensors_read(&files.weights, FOLDER "model.safetensors", diag), diag);
    assert_ok(safetensors_read(&files.reference, FOLDER "reference.safetensors", diag),
              diag);
    assert_ok(safetensors_read(&files.gradients, FOLDER "gradients.safetensors", diag),
              diag);
    diag_destroy(diag);
    *state = &files;
    return 0;
}

static int teardown(void **state) {
    Files *files = *state;
    checkpoint_destroy(files->weights);
    checkpoint_destroy(files->reference);
    checkpoint_destroy(files->gradients);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_and_gradients),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_clamped),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
