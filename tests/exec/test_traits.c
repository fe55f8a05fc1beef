/* Traits of ops, computed from the kernels: what a trait says must hold in every case of
 * grad_cases.def that it speaks of, and what holds in all of them must be declared. */
#include "tests/exec/grad_harness.h"

/* What tells a value that changed, by 0.5 of an operand or a factor of 2, from one that
 * was rounded: rounding leaves less than 1e-12 of any case. */
#define TOLERANCE 1e-9

static const Case CASES[] = {
#define CASE(op, attrs, operands) {#op, attrs, operands},
#include "tests/exec/grad_cases.def"
#undef CASE
};
enum { CASE_COUNT = sizeof CASES / sizeof CASES[0] };

/* What one case says of a trait. */
typedef enum Verdict { NO_CASE, HOLDS, FAILS } Verdict;

/* ---- runs with other values ---- */

static int64_t count_of(const Problem *p, int i) {
    return type_count(&p->type[i]);
}

static double *output(const Problem *p) {
    Result result = execute(p, (Mode){0});
    return result.out;
}

/* The output with operand `i` times `factor`; beside it operand `j`, if not negative. */
static double *scaled_output(Problem *p, int i, int j, double factor) {
    for (int side = 0; side < 2; side++)
        for (int64_t k = 0, at = side ? j : i; at >= 0 && k < count_of(p, (int)at); k++)
            p->value[at][k] *= factor;
    double *out = output(p);
    for (int side = 0; side < 2; side++)
        for (int64_t k = 0, at = side ? j : i; at >= 0 && k < count_of(p, (int)at); k++)
            p->value[at][k] /= factor;
    return out;
}

/* Whether got = factor * want, in all elements. */
static bool same(const double *got, const double *want, double factor, int64_t count) {
    double largest = 1;
    for (int64_t j = 0; j < count; j++) largest = fmax(largest, fabs(factor * want[j]));
    for (int64_t j = 0; j < count; j++)
        if (!(fabs(got[j] - factor * want[j]) <= TOLERANCE * largest)) return false;
    return true;
}

/* Whether f with operands i and j (-1: i alone) times -2 is -2 times f. */
static bool doubles(Problem *p, int i, int j) {
    double *want = output(p), *got = scaled_output(p, i, j, -2);
    const bool holds = same(got, want, -2, type_count(&p->out));
    free(want);
    free(got);
    return holds;
}

static bool has_repeated(const Problem *p) {
    for (int i = 0; i < p->count; i++)
        if (p->first[i] != i) return true;
    return false;
}

/* Elements of the last dimension; 1 for a scalar. */
static int64_t width(const Type *type) {
    return type->rank ? type->dim[type->rank - 1] : 1;
}

/* Whether rows of both stand at the same indices: all dimensions but the last. */
static bool same_rows(const Type *a, const Type *b) {
    if (a->rank != b->rank || a->rank == 0) return false;
    for (int i = 0; i + 1 < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

/* Whether nothing of the output outside of [first, first + count) changes when the same
 * part of operand i, in its own rows, does. */
static bool change_stays(Problem *p, int i, int64_t row, int64_t at, int64_t count) {
    const int64_t all = type_count(&p->out), D = width(&p->out), K = width(&p->type[i]);
    const bool element = count == 1 && at >= 0;
    double *before = output(p);
    for (int64_t k = 0; k < (element ? 1 : K); k++)
        p->value[i][element ? at : row * K + k] += 0.5;
    double *after = output(p);
    for (int64_t k = 0; k < (element ? 1 : K); k++)
        p->value[i][element ? at : row * K + k] -= 0.5;
    bool stays = true;
    for (int64_t j = 0; j < all; j++)
        if (element ? j != at : j / D != row)
            stays &= fabs(before[j] - after[j]) <= TOLERANCE;
    free(before);
    free(after);
    return stays;
}

/* ---- the traits ---- */

/* One order of places for all operands and the result: they must come out in it. */
static bool follows_order(Problem *p) {
    const int64_t n = type_count(&p->out);
    double *want = output(p), *moved = calloc((size_t)n, sizeof *moved);
    int64_t *order = calloc((size_t)n, sizeof *order);
    for (int64_t j = 0; j < n; j++) order[j] = j;
    for (int64_t j = n - 1; j > 0; j--) {
        const int64_t other = (int64_t)(random_uniform(5, (uint64_t)j) * (double)(j + 1));
        const int64_t kept = order[j];
        order[j] = order[other];
        order[other] = kept;
    }
    for (int i = 0; i < p->count; i++) {
        if (p->first[i] != i) continue;
        for (int64_t j = 0; j < n; j++) moved[j] = p->value[i][order[j]];
        memcpy(p->value[i], moved, (size_t)n * sizeof *moved);
    }
    double *got = output(p);
    for (int64_t j = 0; j < n; j++) moved[j] = want[order[j]];
    const bool follows = same(got, moved, 1, n);
    free(order);
    free(moved);
    free(want);
    free(got);
    return follows;
}

static Verdict try_elementwise(Problem *p) {
    const int64_t n = type_count(&p->out);
    if (!type_equal(&p->type[0], &p->out)) return FAILS;
    if (n < 2) return NO_CASE;
    for (int i = 0; i < p->count; i++)
        if (!p->value[i] || count_of(p, i) != n) return NO_CASE;
    for (int i = 0; i < p->count; i++)
        if (!change_stays(p, i, 0, n / 2, 1)) return FAILS;
    return follows_order(p) ? HOLDS : FAILS;
}

static Verdict try_proportional(Problem *p) {
    const int64_t n = type_count(&p->out);
    if (p->count == 1) {
        const Verdict verdict = try_elementwise(p);
        return verdict == HOLDS && !doubles(p, 0, -1) ? FAILS : verdict;
    }
    if (has_repeated(p)) return NO_CASE;
    if (!p->value[0] || !type_equal(&p->type[0], &p->out)) return FAILS;
    for (int i = 1; i < p->count; i++) /* a value, no weights */
        if (!p->value[i] || p->type[i].rank >= p->out.rank) return FAILS;
    return change_stays(p, 0, 0, n / 2, 1) && doubles(p, 0, -1) ? HOLDS : FAILS;
}

/* Operands that are no weights: those with the rows of the result. */
static Verdict try_rowwise(Problem *p) {
    const int64_t rows = type_count(&p->out) / width(&p->out);
    if (has_repeated(p) || p->type[0].rank == 0) return NO_CASE;
    if (!p->value[0] || !same_rows(&p->type[0], &p->out)) return FAILS;
    if (rows < 2) return NO_CASE;
    for (int i = 0; i < p->count; i++)
        for (int64_t r = 0; r < rows; r += rows / 16 + 1)
            if (p->value[i] && p->type[i].rank > (i ? 2 : 1) &&
                same_rows(&p->type[i], &p->out) && !change_stays(p, i, r, -1, 0))
                return FAILS;
    return HOLDS;
}

/* Large values, so that the smallest variance allowed does not count. */
static Verdict try_norm(Problem *p) {
    const int weight = op_operand_index(p->node->op, "weight");
    if (has_repeated(p) || weight < 0 || p->type[weight].rank != 1) return NO_CASE;
    double *far = scaled_output(p, 0, -1, 1e6), *farther = scaled_output(p, 0, -1, 3e6);
    const bool holds = same(far, farther, 1, type_count(&p->out));
    free(far);
    free(farther);
    return holds ? HOLDS : FAILS;
}

static Verdict try_projection(Problem *p) {
    const Op *op = p->node->op;
    const int weight = op_operand_index(op, "weight"),
              bias = op_operand_index(op, "bias");
    if (has_repeated(p) || weight < 0 || !p->value[0] || !p->value[weight])
        return NO_CASE;
    const int given = bias >= 0 && p->value[bias] ? bias : -1;
    if (!doubles(p, weight, given)) return FAILS;
    for (int64_t j = 0; given >= 0 && j < count_of(p, given); j++) p->value[given][j] = 0;
    return doubles(p, 0, -1) ? HOLDS : FAILS;
}

static Verdict try_attention(Problem *p) {
    const Op *op = p->node->op;
    const int v = op_operand_index(op, "v");
    if (has_repeated(p) || v < 0 || !field_find(op->fields, "heads")) return NO_CASE;
    if (op_operand_index(op, "q") < 0 || op_operand_index(op, "k") < 0) return FAILS;
    return doubles(p, v, -1) ? HOLDS : FAILS;
}

/* Whether a row of the output is one of operand 0's of the same sample. */
static bool is_picked(const Problem *p, const double *row, int64_t sample) {
    const int64_t D = width(&p->out), T = p->type[0].dim[1];
    for (int64_t t = 0; t < T; t++) {
        const double *other = p->value[0] + (sample * T + t) * D;
        if (memcmp(row, other, (size_t)D * sizeof *row) == 0) return true;
    }
    return false;
}

static Verdict try_picks(Problem *p) {
    const int64_t D = width(&p->out);
    if (has_repeated(p) || !p->value[0] || p->type[0].rank != 3 || p->out.rank < 2 ||
        width(&p->type[0]) != D || p->node->op->traits & OP_PASS_VALUE)
        return NO_CASE;
    const int64_t rows = type_count(&p->out) / D, samples = p->type[0].dim[0];
    double *out = output(p);
    bool picked = p->out.dim[0] == samples;
    for (int64_t r = 0; picked && r < rows; r++)
        picked = is_picked(p, out + r * D, r / (rows / samples));
    free(out);
    return picked ? HOLDS : FAILS;
}

static Verdict try_pass_value(Problem *p) {
    if (!p->value[0] || !type_equal(&p->type[0], &p->out)) return FAILS;
    double *out = output(p);
    const bool passed = same(out, p->value[0], 1, type_count(&p->out));
    free(out);
    return passed ? HOLDS : FAILS;
}

static Verdict try_loss(Problem *p) {
    return p->out.rank == 0 && p->type[0].rank > 0 ? HOLDS : FAILS;
}

/* Training changes something; the only trait that one case is enough for. */
static Verdict try_stochastic(Problem *p) {
    double *out = output(p);
    Result training = execute(p, (Mode){.training = true});
    const bool differs = !same(training.out, out, 1, type_count(&p->out));
    free(out);
    result_free(&training);
    return differs ? HOLDS : NO_CASE;
}

static const struct Trait {
    OpTrait trait;
    const char *name;
    Verdict (*try)(Problem *p);
} TRAITS[] = {
    {OP_STOCHASTIC, "OP_STOCHASTIC", try_stochastic},
    {OP_PASS_VALUE, "OP_PASS_VALUE", try_pass_value},
    {OP_ELEMENTWISE, "OP_ELEMENTWISE", try_elementwise},
    {OP_PROPORTIONAL, "OP_PROPORTIONAL", try_proportional},
    {OP_ROWWISE, "OP_ROWWISE", try_rowwise},
    {OP_NORM, "OP_NORM", try_norm},
    {OP_PROJECTION, "OP_PROJECTION", try_projection},
    {OP_ATTENTION, "OP_ATTENTION", try_attention},
    {OP_PICKS_TOKENS, "OP_PICKS_TOKENS", try_picks},
    {OP_LOSS, "OP_LOSS", try_loss},
};

/* Whether a trait holds in all cases of an op that it speaks of, and in one at least;
 * `example` becomes one that decides it. */
static bool is_observed(const struct Trait *trait, const Op *op, const Case **example) {
    bool holds = false;
    for (int i = 0; i < CASE_COUNT; i++) {
        if (strcmp(CASES[i].op, op->name) != 0) continue;
        Problem p;
        assert_ok(problem_create(&p, &CASES[i]), p.diag);
        const Verdict verdict = trait->try(&p);
        problem_destroy(&p);
        if (verdict != NO_CASE) *example = &CASES[i];
        if (verdict == FAILS) return false;
        holds |= verdict == HOLDS;
    }
    return holds;
}

static void test_traits(void **state) {
    (void)state;
    int wrong = 0;
    for (int k = 0; k < ops_table()->count; k++) {
        const Op *op = ops_table()->ops[k];
        if (op->traits & OP_LEAF) continue;
        for (size_t t = 0; t < sizeof TRAITS / sizeof *TRAITS; t++) {
            const Case *example = &(Case){op->name, "", "no case"};
            const bool declared = op->traits & TRAITS[t].trait;
            if (declared == is_observed(&TRAITS[t], op, &example)) continue;
            print_error("%s: %s is %s, but: [%s] (%s)\n", op->name, TRAITS[t].name,
                        declared ? "declared" : "not declared", example->attrs,
                        example->operands);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}

static void test_leaves(void **state) {
    (void)state;
    assert_int_equal(op_input.traits, OP_INPUT);
    assert_int_equal(op_param.traits, OP_PARAM);
    assert_ptr_equal(op_with(ops_table(), OP_INPUT), &op_input);
    assert_ptr_equal(op_with(ops_table(), OP_PARAM), &op_param);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traits),
        cmocka_unit_test(test_leaves),
    };
    return cmocka_run_group_tests_name("traits", tests, NULL, NULL);
}
