/* Every op's kernels: gradients against central differences, the calling conventions of
 * exec/ops/kernel.h, float against double, for the cases of grad_cases.def. */
#include "exec/linalg/blas.h"
#include "tests/exec/grad_harness.h"

#define STEP     1e-5
#define SMALLEST 1e-3 /* values are compared as if one were this large */

static const Case CASES[] = {
#define CASE(op, attrs, operands) {#op, attrs, operands},
#include "tests/exec/grad_cases.def"
#undef CASE
};
enum { CASE_COUNT = sizeof CASES / sizeof CASES[0] };

/* attention's optional operands, in order, for heads=3 and a 2 x 3 grid after one token.
 */
static const char *const EXTRAS[] = {"m2x7", "3x7x7", "4x49", "3x3", "3x3", "15x3"};
enum { EXTRA_COUNT = sizeof EXTRAS / sizeof EXTRAS[0], SUBSETS = 1 << EXTRA_COUNT };

/* Runs `check` on every case, and on attention with every subset of operands. */
static void each_case(void (*check)(Problem *, const Case *)) {
    for (int i = 0; i < CASE_COUNT + 2 * SUBSETS; i++) {
        char line[LINE_MAX_BYTES];
        Case c = i < CASE_COUNT ? CASES[i] : (Case){"attention", "", line};
        if (i >= CASE_COUNT) {
            const int subset = i - CASE_COUNT;
            c.attrs = subset < SUBSETS ? "heads=3 grid_h=2 grid_w=3 skip=1"
                                       : "heads=3 grid_h=2 grid_w=3 skip=1 causal=true";
            strcpy(line, "2x7x12 2x7x12 2x7x15");
            for (int e = 0; e < EXTRA_COUNT; e++)
                strcat(strcat(line, " "), subset >> e & 1 ? EXTRAS[e] : "-");
        }
        Problem p;
        assert_ok(problem_create(&p, &c), p.diag);
        check(&p, &c);
        problem_destroy(&p);
    }
}

/* Compares outputs and all gradients that both results have, of which `got` is of a
 * precision. */
static void assert_same(const Problem *p, const Case *c, const char *what,
                        const Result *got, const Result *want, bool single) {
    char name[2 * LINE_MAX_BYTES];
    /* What may cancel has the size of its terms: the derivative of an element that of
     * d_out, a loss that of what it compares. */
    const double least = p->node->op->traits & OP_ELEMENTWISE
                             ? largest_value(p->weight, type_count(&p->out))
                             : SMALLEST;
    snprintf(name, sizeof name, "%s [%s] (%s): %s", c->op, c->attrs, c->operands, what);
    compare_value(p, name, single, got->out, want->out,
                  p->node->op->traits & OP_LOSS ? operand_size(p) : SMALLEST);
    for (int i = 0; i < p->count; i++) {
        snprintf(name, sizeof name, "%s [%s] (%s): %s %d", c->op, c->attrs, c->operands,
                 what, i);
        if (got->d_in[i] && want->d_in[i])
            compare_gradient(p, name, i, single, got->d_in[i], want->d_in[i], least);
    }
}

static bool is_stochastic(const Problem *p) {
    return (p->node->op->traits & OP_STOCHASTIC) != 0;
}

/* The tests below are about ops with a backward kernel; leaves have none. */

static void test_every_op_has_a_case(void **state) {
    (void)state;
    const OpTable *table = ops_table();
    for (int i = 0; i < table->count; i++) {
        const Op *op = table->ops[i];
        const Kernel *kernel = kernel_of(kernels_for(PRECISION_F64), op);
        int found = 0;
        for (int j = 0; j < CASE_COUNT; j++) found += strcmp(CASES[j].op, op->name) == 0;
        if (kernel->backward && !found) fail_msg("op '%s' has no case", op->name);
        if (!kernel->backward && !(op->traits & OP_LEAF))
            fail_msg("op '%s' has no backward kernel", op->name);
        assert_int_equal(op->index, i);
        assert_ptr_equal(op_find(table, op->name), op);
    }
}

/* L = <out, R> with operand `i` moved by t * direction. */
static double loss_at(Problem *p, Mode mode, int i, const double *direction, double t) {
    const int64_t count = type_count(&p->type[i]);
    double *moved = malloc((size_t)count * sizeof *moved), *kept = p->value[i];
    for (int64_t j = 0; j < count; j++) moved[j] = kept[j] + t * direction[j];
    p->value[i] = moved;
    mode.backward = false;
    Result result = execute(p, mode);
    p->value[i] = kept;
    double loss = 0;
    for (int64_t j = 0; j < type_count(&p->out); j++)
        loss += result.out[j] * p->weight[j];
    result_free(&result);
    free(moved);
    return loss;
}

/* What an op's gradient is of its derivative: all of it, but for one. */
static double gradient_factor(const Node *node) {
    if (strcmp(node->op->name, "scale_gradient") != 0) return 1;
    return ((const ScaleGradientAttrs *)node->attrs)->by;
}

/* Terms of L: those of an element, of their sum, and the operand's own rounding when it
 * is moved. */
static double loss_terms(const Problem *p) {
    return rounding_node_terms(p->node, SIZES) + (double)type_count(&p->out) +
           FUNCTION_TERMS;
}

/* Magnitude of L: elements are of the size of the largest value that is read or made. */
static double loss_size(const Problem *p, const Result *result) {
    double weights = 0;
    for (int64_t j = 0; j < type_count(&p->out); j++) weights += fabs(p->weight[j]);
    return weights *
           fmax(operand_size(p), largest_value(result->out, type_count(&p->out)));
}

static void check_direction(Problem *p, const Case *c, Mode mode, int i,
                            const Result *result, uint64_t key) {
    const double *gradient = result->d_in[i];
    const int64_t count = type_count(&p->type[i]);
    double *direction = random_values(count, key), analytic = 0, numeric[2];
    for (int64_t j = 0; j < count; j++) analytic += gradient[j] * direction[j];
    for (int wide = 0; wide < 2; wide++) {
        const double h = (1 + wide) * STEP;
        const double up = loss_at(p, mode, i, direction, h);
        const double down = loss_at(p, mode, i, direction, -h);
        numeric[wide] = gradient_factor(p->node) * (up - down) / (2 * h);
    }
    const double bound = difference_tolerance(PRECISION_F64, STEP, numeric[0], numeric[1],
                                              loss_terms(p), loss_size(p, result));
    free(direction);
    if (!(fabs(analytic - numeric[0]) <= bound))
        fail_msg("%s [%s] (%s): gradient of operand %d: %.12g along a direction, by "
                 "differences %.12g (bound %.3g)",
                 c->op, c->attrs, c->operands, i, analytic, numeric[0], bound);
}

static void check_gradients(Problem *p, const Case *c) {
    for (int training = 0; training <= is_stochastic(p); training++) {
        const Mode mode = {.training = training, .backward = true};
        Result result = execute(p, mode);
        for (int i = 0; i < p->count; i++)
            for (uint64_t key = 0; key < 2 && p->wanted[i] && p->first[i] == i; key++)
                check_direction(p, c, mode, i, &result, 100 + key);
        result_free(&result);
    }
}

static void test_gradients(void **state) {
    (void)state;
    each_case(check_gradients);
}

static void check_accumulate(Problem *p, const Case *c) {
    double *old[OPERANDS_MAX] = {0};
    for (int i = 0; i < p->count; i++)
        if (p->wanted[i])
            old[i] = random_values(type_count(&p->type[i]), random_key(55, (uint64_t)i));
    for (int single = 0; single < 2; single++) {
        Mode mode = {.single = single, .training = true, .backward = true};
        Result want = execute(p, mode);
        mode.old = (const double *const *)old;
        Result got = execute(p, mode);
        for (int i = 0; i < p->count; i++)
            for (int64_t j = 0; want.d_in[i] && j < type_count(&p->type[i]); j++)
                want.d_in[i][j] += old[i][j];
        assert_same(p, c, "accumulated gradient", &got, &want, single);
        result_free(&want);
        result_free(&got);
    }
    for (int i = 0; i < p->count; i++) free(old[i]);
}

static void test_accumulate(void **state) {
    (void)state;
    each_case(check_accumulate);
}

/* Operands with their own node whose gradients can be left out one by one. */
static void check_skipped(Problem *p, const Case *c) {
    const Mode all = {.training = true, .backward = true};
    Result want = execute(p, all);
    for (int i = -1; i < p->count; i++) {
        Mode mode = all;
        for (int j = 0; j < p->count; j++)
            if (i < 0 || p->first[j] != p->first[i]) mode.skip |= 1u << j;
        Result got = execute(p, mode);
        assert_same(p, c, "gradient asked for alone", &got, &want, false);
        result_free(&got);
    }
    result_free(&want);
}

static void test_skipped(void **state) {
    (void)state;
    each_case(check_skipped);
}

/* Backward with all that it does not declare to read destroyed. Shared operands count
 * as read when one of them is. */
static void check_reads(Problem *p, const Case *c) {
    Mode mode = {.training = true, .backward = true};
    Result want = execute(p, mode);
    const unsigned reads = p->node->op->reads;
    mode.hide = ~reads;
    for (int i = 0; i < p->count; i++)
        for (int j = 0; j < p->count; j++)
            if (p->first[i] == p->first[j] && (reads >> j & 1)) mode.hide &= ~(1u << i);
    Result got = execute(p, mode);
    assert_same(p, c, "gradient from declared reads", &got, &want, false);
    result_free(&want);
    result_free(&got);
}

static void test_reads(void **state) {
    (void)state;
    each_case(check_reads);
}

/* Whether destroying value `bit` of READS_ changes some gradient of the case. */
static bool is_read(Problem *p, unsigned bit) {
    Mode mode = {.training = true, .backward = true};
    Result want = execute(p, mode);
    mode.hide = bit;
    Result got = execute(p, mode);
    bool changed = false;
    for (int i = 0; i < p->count; i++)
        for (int64_t j = 0; got.d_in[i] && j < type_count(&p->type[i]); j++)
            changed |= !(got.d_in[i][j] == want.d_in[i][j]);
    result_free(&want);
    result_free(&got);
    return changed;
}

/* What of `reads` some case of the op needs; integer and optional operands count. */
static unsigned needed_reads(const Op *op) {
    unsigned needed = 0;
    for (int j = 0; j < op_operand_count(op); j++)
        if (op->operands[j].flags & (OPERAND_INTEGER | OPERAND_OPTIONAL))
            needed |= 1u << j;
    for (int i = 0; i < CASE_COUNT; i++) {
        if (strcmp(CASES[i].op, op->name) != 0) continue;
        Problem p;
        assert_ok(problem_create(&p, &CASES[i]), p.diag);
        for (int j = 0; j < p.count; j++)
            if ((op->reads >> j & 1) && p.value[j] && is_read(&p, 1u << j))
                needed |= 1u << j;
        if ((op->reads & READS_OUT) && is_read(&p, READS_OUT)) needed |= READS_OUT;
        problem_destroy(&p);
    }
    return needed;
}

/* Values declared to be read are read in some case: else they are kept for nothing. */
static void test_reads_are_needed(void **state) {
    (void)state;
    const OpTable *table = ops_table();
    for (int k = 0; k < table->count; k++) {
        const Op *op = table->ops[k];
        const unsigned all = READS_OUT | ((1u << op_operand_count(op)) - 1);
        const Kernel *kernel = kernel_of(kernels_for(PRECISION_F64), op);
        const unsigned needed = kernel->backward ? needed_reads(op) : 0;
        if (op->reads & all & ~needed)
            fail_msg("op '%s' declares reads %#x, its cases need %#x", op->name,
                     op->reads & all, needed);
    }
}

static void check_single(Problem *p, const Case *c) {
    Result want = execute(p, (Mode){.training = true, .backward = true});
    Result got = execute(p, (Mode){.single = true, .training = true, .backward = true});
    assert_same(p, c, "float against double", &got, &want, true);
    result_free(&want);
    result_free(&got);
}

static void test_single_precision(void **state) {
    (void)state;
    each_case(check_single);
}

/* OP_PASS_GRADIENT: d_in[0] is d_out, and may be in the same place. */
static void check_pass(Problem *p, const Case *c) {
    if (!(p->node->op->traits & OP_PASS_GRADIENT)) return;
    Mode mode = {.training = true, .backward = true, .skip = ~1u};
    Result alone = execute(p, mode);
    assert_int_equal(type_count(&p->out), type_count(&p->type[0]));
    assert_memory_equal(alone.d_in[0], p->weight,
                        (size_t)type_count(&p->out) * sizeof(double));
    mode.skip = 0;
    Result want = execute(p, mode);
    mode.in_place = true;
    Result got = execute(p, mode);
    assert_same(p, c, "gradient in place", &got, &want, false);
    result_free(&alone);
    result_free(&want);
    result_free(&got);
}

static void test_pass_gradient(void **state) {
    (void)state;
    each_case(check_pass);
}

static int set_up(void **state) {
    (void)state;
    blas_init();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_op_has_a_case),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_accumulate),
        cmocka_unit_test(test_skipped),
        cmocka_unit_test(test_reads),
        cmocka_unit_test(test_reads_are_needed),
        cmocka_unit_test(test_single_precision),
        cmocka_unit_test(test_pass_gradient),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
