/* Moments in bfloat16: how they are rounded, by every kind of processor's loops; and what
 * rounding to the nearest would do to them. */
#include "exec/loops/loops.h"
#include "ir/half.h"
#include "ir/random.h"
#include "tests/support/check.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <string.h>

enum { COUNT = 4099 };

static const Update UPDATE = {.scale = 0.5f,
                              .shrink = 0.99f,
                              .rate = 0.01f,
                              .beta1 = 0.9f,
                              .beta2 = 0.999f,
                              .root = 1.2f,
                              .eps = 1e-3f};

/* Weights, gradients and moments, in both forms. */
typedef struct Run {
    float w[COUNT], g[COUNT], m[COUNT], v[COUNT];
    uint16_t m16[COUNT], v16[COUNT];
} Run;

/* Moments that bfloat16 has. */
static void start(Run *run) {
    for (int i = 0; i < COUNT; i++) {
        run->w[i] = (float)random_normal(1, (uint64_t)i);
        run->g[i] = (float)random_normal(2, (uint64_t)i);
        run->m16[i] = bf16_from_float((float)random_normal(3, (uint64_t)i));
        run->v16[i] = bf16_from_float((float)random_uniform(4, (uint64_t)i));
        run->m[i] = bf16_to_float(run->m16[i]);
        run->v[i] = bf16_to_float(run->v16[i]);
    }
}

/* Whether `code` is one of the two numbers of bfloat16 around a value, which rounding in
 * the loops may have moved by a few last bits. */
static bool is_near(uint16_t code, float value) {
    const double unit = exp2(floor(log2(fabs((double)value))) - 7);
    return fabs((double)bf16_to_float(code) - (double)value) <= unit * (1 + 1e-4);
}

/* The step is that with floats; moments are theirs, rounded one way or the other. */
static void check_step(const Loops *loops, bool adamw) {
    static Run a, b;
    const double tolerance = rounding_tolerance(PRECISION_F32, 12, 8);
    int up = 0;
    start(&a);
    start(&b);
    if (adamw) {
        loops->update_adamw(a.w, a.g, a.m, a.v, COUNT, &UPDATE);
        loops->update_adamw_bf16(b.w, b.g, b.m16, b.v16, COUNT, &UPDATE, 5, 0);
    } else {
        loops->update_momentum(a.w, a.g, a.m, COUNT, &UPDATE);
        loops->update_momentum_bf16(b.w, b.g, b.m16, COUNT, &UPDATE, 5, 0);
    }
    for (int i = 0; i < COUNT; i++) {
        assert_within(b.w[i], a.w[i], tolerance);
        assert_true(is_near(b.m16[i], a.m[i]) && is_near(b.v16[i], a.v[i]));
        up += bf16_to_float(b.m16[i]) > a.m[i];
    }
    assert_in_range(up, COUNT / 2 - 200, COUNT / 2 + 200); /* 6 standard deviations */
}

static void steps_are_those_with_floats(void **state) {
    (void)state;
    for (Processor level = PROCESSOR_V2; level < PROCESSOR_COUNT; level++) {
        if (!processor_has(level)) continue;
        check_step(loops_at(level), true);
        check_step(loops_at(level), false);
    }
}

/* Every element the same value, which lies between two of bfloat16: their mean is the
 * value, within 6 standard deviations of the mean of so many. */
static void rounding_is_right_in_the_mean(void **state) {
    (void)state;
    static const float VALUES[] = {1.001f, 1.0069f, -3.3e-7f, 511.3f, 1e-30f};
    static float w[COUNT], g[COUNT];
    static uint16_t m[COUNT], v[COUNT];
    const Update keep = {.scale = 1}; /* moments become the gradient and its square */
    for (size_t k = 0; k < sizeof VALUES / sizeof *VALUES; k++) {
        double sum = 0, squares = 0;
        for (int i = 0; i < COUNT; i++) g[i] = VALUES[k];
        loops_here()->update_adamw_bf16(w, g, m, v, COUNT, &keep, 9, 1000);
        for (int i = 0; i < COUNT; i++) {
            sum += (double)bf16_to_float(m[i]);
            squares += (double)bf16_to_float(v[i]);
        }
        const double value = (double)VALUES[k], square = (double)(g[0] * g[0]);
        const double deviations = 6 / sqrt(COUNT) / 2; /* of a unit's half at most */
        assert_within(sum / COUNT, value, fabs(value) / 128 * deviations);
        if (square > 0) assert_within(squares / COUNT, square, square / 128 * deviations);
    }
}

/* A second moment of twice the squared gradient falls towards it; rounded to the nearest,
 * whose steps are 0.2 % and more, it would stay where it is. */
static void second_moments_do_not_stand_still(void **state) {
    (void)state;
    enum { STEPS = 2000 };
    static float w[COUNT], g[COUNT];
    static uint16_t m[COUNT], v[COUNT];
    const Update u = {.scale = 1, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1};
    double sum = 0;
    for (int i = 0; i < COUNT; i++) g[i] = 1, v[i] = bf16_from_float(2);
    const float step = 0.999f * 2 + (1 - 0.999f);
    assert_int_equal(bf16_from_float(step), v[0]);
    for (int s = 0; s < STEPS; s++)
        loops_here()->update_adamw_bf16(w, g, m, v, COUNT, &u, (uint32_t)(s * 77 + 1), 0);
    for (int i = 0; i < COUNT; i++) sum += (double)bf16_to_float(v[i]);
    assert_within(sum / COUNT, 1 + pow(0.999, STEPS), 0.01);
}

/* What is drawn depends on the element's number and the key, not on the range. */
static void ranges_may_be_cut_anywhere(void **state) {
    (void)state;
    static Run whole, parts, other;
    const Loops *loops = loops_here();
    start(&whole);
    start(&parts);
    start(&other);
    loops->update_adamw_bf16(whole.w, whole.g, whole.m16, whole.v16, COUNT, &UPDATE, 3,
                             40);
    for (int first = 0, n; first < COUNT; first += n) {
        n = 1 + (first * 7 + 3) % 50;
        if (n > COUNT - first) n = COUNT - first;
        loops->update_adamw_bf16(parts.w + first, parts.g + first, parts.m16 + first,
                                 parts.v16 + first, n, &UPDATE, 3, 40 + (uint32_t)first);
    }
    assert_memory_equal(whole.w, parts.w, sizeof whole.w);
    assert_memory_equal(whole.m16, parts.m16, sizeof whole.m16);
    assert_memory_equal(whole.v16, parts.v16, sizeof whole.v16);
    loops->update_adamw_bf16(other.w, other.g, other.m16, other.v16, COUNT, &UPDATE, 4,
                             40);
    assert_memory_not_equal(whole.m16, other.m16, sizeof whole.m16);
    assert_memory_not_equal(whole.v16, other.v16, sizeof whole.v16);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_with_floats),
        cmocka_unit_test(rounding_is_right_in_the_mean),
        cmocka_unit_test(second_moments_do_not_stand_still),
        cmocka_unit_test(ranges_may_be_cut_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
