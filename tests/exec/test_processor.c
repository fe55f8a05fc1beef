/* Levels of processors: what there is, and that the loops of all levels say the same but
 * for rounding. */
#include "exec/linalg/blas.h"
#include "exec/loops/loops.h"
#include "ir/random.h"
#include "tests/support/check.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void test_level(void **state) {
    (void)state;
    const Processor level = processor_level();
    if (level == PROCESSOR_AUTO) { /* one set */
        for (Processor l = PROCESSOR_AUTO; l < PROCESSOR_COUNT; l++)
            assert_false(processor_has(l));
        assert_string_equal(processor_name(level), "native");
        return;
    }
    assert_true(processor_has(level));
    assert_true(processor_has(PROCESSOR_V2));
    for (Processor l = PROCESSOR_V3; l < PROCESSOR_COUNT; l++)
        if (processor_has(l)) assert_true(processor_has(l - 1));
    assert_string_equal(processor_name(PROCESSOR_V3), "v3");
}

/* The kernels in float are those of the level. */
static void test_kernels(void **state) {
    (void)state;
    const Processor level = processor_level();
    for (Precision p = PRECISION_F32; p <= PRECISION_F64; p++) {
        const KernelTable *table = kernels_for(p);
        assert_int_equal(table->precision, p);
        const char *suffix = strchr(table->set, '_');
        if (p == PRECISION_F32 && level > PROCESSOR_V2)
            assert_string_equal(suffix + 1, processor_name(level));
        else
            assert_null(suffix);
    }
}

/* A level that is not there is refused, in the environment too; that in use is fixed
 * already where the libraries are told as well. */
static void test_refusals(void **state) {
    (void)state;
    Diag *diag = diag_create();
    for (Processor l = PROCESSOR_V2; l < PROCESSOR_COUNT; l++)
        if (!processor_has(l)) assert_int_equal(processor_fix(l, diag), STATUS_USAGE);
    const char *old = getenv("COMPRESS_PROCESSOR");
    char *kept = old ? strdup(old) : NULL;
    setenv("COMPRESS_PROCESSOR", "v9", 1);
    assert_int_equal(processor_fix(PROCESSOR_AUTO, diag), STATUS_USAGE);
    unsetenv("COMPRESS_PROCESSOR");
    if (kept) setenv("COMPRESS_PROCESSOR", kept, 1);
    free(kept);
    diag_destroy(diag);
    assert_true(strlen(blas_core()) > 0);
}

/* The linear-algebra library uses kernels of the processor, not its oldest ones, also
 * where it is older than the processor: AVX2 is faster than them by far. */
static void test_library(void **state) {
    (void)state;
    if (getenv("OPENBLAS_CORETYPE") || !processor_has(PROCESSOR_V3)) skip();
    assert_string_not_equal(blas_core(), "Prescott");
}

enum { COUNT = 1003 };

typedef struct Run {
    float w[COUNT], g[COUNT], m[COUNT], v[COUNT], a[COUNT];
    double squares, density;
} Run;

static void run_loops(Run *run, const Loops *loops) {
    static float mean[COUNT], variance[COUNT];
    const Update u = {0.5f, 0.99f, 0.01f, 0.9f, 0.99f, 1.2f, 1e-3f};
    for (int i = 0; i < COUNT; i++) {
        run->w[i] = (float)random_normal(1, (uint64_t)i);
        run->g[i] = (float)random_normal(2, (uint64_t)i);
        run->m[i] = (float)random_normal(3, (uint64_t)i);
        run->v[i] = (float)random_uniform(4, (uint64_t)i);
        run->a[i] = mean[i] = (float)random_normal(5, (uint64_t)i);
        variance[i] = 0.5f + (float)random_uniform(6, (uint64_t)i);
    }
    run->density = loops->variational_add_density(
        run->g, run->w, (PriorRange){mean, variance}, COUNT, 0.25);
    run->squares = loops->sum_squares(run->g, COUNT);
    loops->update_adamw(run->w, run->g, run->m, run->v, COUNT, &u);
    loops->update_momentum(run->w, run->g, run->m, COUNT, &u);
    loops->update_plain(run->w, run->g, COUNT, &u);
    loops->update_average(run->a, run->w, COUNT, 0.75f);
    loops->add_floats(run->a, run->g, COUNT);
}

/* Every element takes some twenty operations on values below 8; sums are in double. */
static void test_loops(void **state) {
    (void)state;
    static Run want, got;
    run_loops(&want, loops_here());
    for (Processor level = PROCESSOR_V2; level < PROCESSOR_COUNT; level++) {
        if (!processor_has(level)) continue;
        run_loops(&got, loops_at(level));
        const double tolerance = rounding_tolerance(PRECISION_F32, 20, 8);
        for (int i = 0; i < COUNT; i++) {
            assert_true(fabsf(got.w[i] - want.w[i]) <= tolerance);
            assert_true(fabsf(got.m[i] - want.m[i]) <= tolerance);
            assert_true(fabsf(got.v[i] - want.v[i]) <= tolerance);
            assert_true(fabsf(got.a[i] - want.a[i]) <= tolerance);
        }
        /* what is summed has been rounded to float */
        const double share = rounding_tolerance(PRECISION_F32, 4, 1);
        assert_true(fabs(got.squares / want.squares - 1) <= share);
        assert_true(fabs(got.density / want.density - 1) <= share);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_level),    cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_library),
        cmocka_unit_test(test_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
