/* Choosing a token: greedy, top-k, top-p, min-p and the penalty by hand, frequencies
 * against probabilities. */
#include "exec/generate/sample.h"
#include "ir/random.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>

enum { WORDS = 8, DRAWS = 40000 };

/* Logarithms of 30, 5, 25, 10, 2, 8, 15, 5 percent; order 0, 2, 6, 3, 5, 1 = 7, 4. */
static const double PERCENT[WORDS] = {30, 5, 25, 10, 2, 8, 15, 5};

static void fill_logits(float *logits) {
    for (int i = 0; i < WORDS; i++) logits[i] = (float)log(PERCENT[i]) - 3;
}

/* One draw of a text that has no tokens yet. */
static int32_t draw(const Sampling *sampling, const float *logits, int64_t count,
                    int64_t position) {
    Sampler *sampler = sampler_create(count);
    sampler_start(sampler, sampling);
    const int32_t token = sampler_draw(sampler, logits, position);
    sampler_destroy(sampler);
    return token;
}

static void count_draws(const Sampling *sampling, int *counts) {
    float logits[WORDS];
    fill_logits(logits);
    for (int i = 0; i < WORDS; i++) counts[i] = 0;
    Sampler *sampler = sampler_create(WORDS);
    sampler_start(sampler, sampling);
    for (int i = 0; i < DRAWS; i++) {
        const int32_t token = sampler_draw(sampler, logits, i);
        assert_in_range(token, 0, WORDS - 1);
        counts[token]++;
    }
    sampler_destroy(sampler);
}

/* Chi-square of the draws against weights; 0 weights must not be drawn. With at most 7
 * degrees of freedom 29.9 is exceeded once in 10,000 tries. */
static void check_draws(const Sampling *sampling, const double *weights) {
    int counts[WORDS];
    double total = 0, chi = 0;
    count_draws(sampling, counts);
    for (int i = 0; i < WORDS; i++) total += weights[i];
    for (int i = 0; i < WORDS; i++) {
        const double want = DRAWS * weights[i] / total;
        if (want == 0)
            assert_int_equal(counts[i], 0);
        else
            chi += (counts[i] - want) * (counts[i] - want) / want;
    }
    if (chi > 29.9) fail_msg("chi-square %g", chi);
}

static void test_greedy(void **state) {
    (void)state;
    const Sampling greedy = {.top_p = 1};
    const float equal[] = {-1, 3, 2, 3, -INFINITY, 3};
    assert_int_equal(draw(&greedy, equal, 6, 0), 1);
    const float first[] = {-INFINITY, -INFINITY, -2};
    assert_int_equal(draw(&greedy, first, 3, 5), 2);
    const Sampling k1 = {.temperature = 1, .top_k = 1, .top_p = 1, .seed = 4};
    for (int i = 0; i < 20; i++) assert_int_equal(draw(&k1, equal, 6, i), 1);
}

/* Logits of which one is NaN, wherever it stands, or the largest not finite give no
 * token, whatever the options; -inf beside others is impossible and no more. */
static void test_not_finite(void **state) {
    (void)state;
    enum { MANY = 37 }; /* two rows of lanes and some */
    const Sampling all[] = {{.top_p = 1},
                            {.temperature = 1, .top_p = 1},
                            {.temperature = 1, .top_k = 1, .top_p = 1},
                            {.temperature = 1, .top_k = 3, .top_p = 1},
                            {.temperature = 1, .top_p = 0.5},
                            {.temperature = 1, .top_p = 1, .min_p = 0.5},
                            {.top_p = 1, .repetition_penalty = 2}};
    for (size_t s = 0; s < sizeof all / sizeof *all; s++) {
        float logits[MANY] = {0};
        for (int i = 0; i < MANY; i++) {
            logits[i] = NAN;
            assert_int_equal(draw(&all[s], logits, MANY, 0), -1);
            logits[i] = INFINITY;
            assert_int_equal(draw(&all[s], logits, MANY, 0), -1);
            logits[i] = 0;
        }
        for (int i = 0; i < MANY; i++) logits[i] = -INFINITY;
        assert_int_equal(draw(&all[s], logits, MANY, 0), -1);
        logits[17] = -2;
        assert_int_equal(draw(&all[s], logits, MANY, 0), 17);
    }
}

static void test_frequencies(void **state) {
    (void)state;
    double weights[WORDS];
    for (double temperature = 0.5; temperature < 3; temperature *= 2) {
        const Sampling sampling = {.temperature = temperature, .top_p = 1, .seed = 7};
        for (int i = 0; i < WORDS; i++) weights[i] = pow(PERCENT[i], 1 / temperature);
        check_draws(&sampling, weights);
    }
}

static void test_top_k(void **state) {
    (void)state;
    const Sampling three = {.temperature = 1, .top_k = 3, .top_p = 1, .seed = 1};
    check_draws(&three, (const double[WORDS]){30, 0, 25, 0, 0, 0, 15, 0});
    /* of the equals 1 and 7 the first comes first */
    const Sampling six = {.temperature = 1, .top_k = 6, .top_p = 1, .seed = 2};
    check_draws(&six, (const double[WORDS]){30, 5, 25, 10, 0, 8, 15, 0});
    const Sampling many = {.temperature = 1, .top_k = 100, .top_p = 1, .seed = 3};
    check_draws(&many, PERCENT);
}

static void test_top_p(void **state) {
    (void)state;
    /* 30 + 25 = 55 is short of 60; 70 reaches it */
    const Sampling sixty = {.temperature = 1, .top_p = 0.6, .seed = 1};
    check_draws(&sixty, (const double[WORDS]){30, 0, 25, 0, 0, 0, 15, 0});
    const Sampling half = {.temperature = 1, .top_p = 0.54, .seed = 2};
    check_draws(&half, (const double[WORDS]){30, 0, 25, 0, 0, 0, 0, 0});
    const Sampling least = {.temperature = 1, .top_p = 0, .seed = 3};
    check_draws(&least, (const double[WORDS]){30, 0, 0, 0, 0, 0, 0, 0});
    /* of the three of top-k, 30 + 25 are 55 / 70 = 0.79 */
    const Sampling both = {.temperature = 1, .top_k = 3, .top_p = 0.75, .seed = 4};
    check_draws(&both, (const double[WORDS]){30, 0, 25, 0, 0, 0, 0, 0});
    /* temperature first: squares are 900, 625, 225, 100, 64, 25, 25, 4 of 1968 */
    const Sampling cold = {.temperature = 0.5, .top_p = 0.8, .seed = 5};
    check_draws(&cold, (const double[WORDS]){900, 0, 625, 0, 0, 0, 225, 0});
}

static void test_min_p(void **state) {
    (void)state;
    /* half of 30 is 15, which is still in: 1e-6 for the rounding of logits */
    const Sampling half = {.temperature = 1, .top_p = 1, .min_p = 0.5 - 1e-6, .seed = 1};
    check_draws(&half, (const double[WORDS]){30, 0, 25, 0, 0, 0, 15, 0});
    const Sampling more = {.temperature = 1, .top_p = 1, .min_p = 0.5 + 1e-6, .seed = 2};
    check_draws(&more, (const double[WORDS]){30, 0, 25, 0, 0, 0, 0, 0});
    const Sampling all = {.temperature = 1, .top_p = 1, .min_p = 1, .seed = 3};
    check_draws(&all, (const double[WORDS]){30, 0, 0, 0, 0, 0, 0, 0});
    /* temperature first: squares of 900, of which a quarter is 225 */
    const Sampling cold = {
        .temperature = 0.5, .top_p = 1, .min_p = 0.25 - 1e-6, .seed = 4};
    check_draws(&cold, (const double[WORDS]){900, 0, 625, 0, 0, 0, 225, 0});
    /* behind top-p, which leaves three, and top-k, which leaves two */
    const Sampling top = {.temperature = 1, .top_p = 0.6, .min_p = 0.6, .seed = 5};
    check_draws(&top, (const double[WORDS]){30, 0, 25, 0, 0, 0, 0, 0});
    const Sampling two = {
        .temperature = 1, .top_k = 2, .top_p = 1, .min_p = 0.1, .seed = 6};
    check_draws(&two, (const double[WORDS]){30, 0, 25, 0, 0, 0, 0, 0});
}

/* Logits above 0 are divided, others multiplied, once however often a token was seen. */
static void test_penalty(void **state) {
    (void)state;
    const float logits[] = {3, 2, -1, -2, 1};
    const Sampling two = {.top_p = 1, .repetition_penalty = 2};
    const Sampling weak = {.top_p = 1, .repetition_penalty = 1.25};
    const Sampling half = {.top_p = 1, .repetition_penalty = 0.5};
    const int32_t seen[] = {0, 0, 0, 7, 3};
    Sampler *sampler = sampler_create(5);
    sampler_start(sampler, &two);
    assert_int_equal(sampler_draw(sampler, logits, 0), 0);
    sampler_see(sampler, seen, 5); /* 3 / 2 */
    assert_int_equal(sampler_draw(sampler, logits, 0), 1);
    sampler_see(sampler, (const int32_t[]){1}, 1); /* 1.5, 1, -1, -4, 1 */
    assert_int_equal(sampler_draw(sampler, logits, 0), 0);
    sampler_start(sampler, &weak); /* an earlier text's tokens are forgotten; 3 / 1.25 */
    sampler_see(sampler, seen, 5);
    assert_int_equal(sampler_draw(sampler, logits, 0), 0);
    sampler_start(sampler, &half); /* 2 / 0.5 */
    sampler_see(sampler, (const int32_t[]){1}, 1);
    assert_int_equal(sampler_draw(sampler, logits, 0), 1);
    const float low[] = {-3, -2, -1};
    Sampler *other = sampler_create(3);
    sampler_start(other, &two); /* -3, -2, -2: the first of equals */
    sampler_see(other, (const int32_t[]){2}, 1);
    assert_int_equal(sampler_draw(other, low, 0), 1);
    sampler_destroy(other);
    sampler_destroy(sampler);
}

/* By the logits as they are, whatever the options. */
static void test_log_probability(void **state) {
    (void)state;
    float logits[WORDS];
    fill_logits(logits);
    const Sampling sampling = {
        .temperature = 3, .top_k = 2, .top_p = 1, .repetition_penalty = 5};
    Sampler *sampler = sampler_create(WORDS);
    sampler_start(sampler, &sampling);
    for (int32_t i = 0; i < WORDS; i++) {
        sampler_see(sampler, &i, 1);
        assert_true(fabs(sampler_log_probability(sampler, logits, i) -
                         log(PERCENT[i] / 100)) < 2e-6);
    }
    sampler_destroy(sampler);
}

/* A draw depends on seed and position alone. */
static void test_repeatable(void **state) {
    (void)state;
    float logits[WORDS];
    fill_logits(logits);
    int seeds = 0, positions = 0;
    for (int i = 0; i < 200; i++) {
        const Sampling a = {.temperature = 1, .top_p = 1, .seed = 1}, b = {1, 0, 1, 2};
        const int32_t token = draw(&a, logits, WORDS, i);
        assert_int_equal(draw(&a, logits, WORDS, i), token);
        seeds += draw(&b, logits, WORDS, i) != token;
        positions += draw(&a, logits, WORDS, i + 1000) != token;
    }
    assert_true(seeds > 100 && positions > 100);
}

/* Many tokens: the limits agree with a sort. */
static void test_large(void **state) {
    (void)state;
    enum { MANY = 5000, K = 40 };
    float *logits = malloc(MANY * sizeof *logits), least = INFINITY;
    for (int i = 0; i < MANY; i++) logits[i] = (float)(3 * random_normal(1, (uint64_t)i));
    const Sampling sampling = {.temperature = 5, .top_k = K, .top_p = 1, .seed = 1};
    for (int i = 0; i < 2000; i++)
        least = fminf(least, logits[draw(&sampling, logits, MANY, i)]);
    int larger = 0;
    for (int i = 0; i < MANY; i++) larger += logits[i] > least;
    assert_true(larger == K - 1); /* the 40th was drawn, the 41st was not */
    free(logits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy),      cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_frequencies), cmocka_unit_test(test_top_k),
        cmocka_unit_test(test_top_p),       cmocka_unit_test(test_large),
        cmocka_unit_test(test_repeatable),  cmocka_unit_test(test_min_p),
        cmocka_unit_test(test_penalty),     cmocka_unit_test(test_log_probability),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
