/* Optimisers against a plain scalar reference, and learning-rate schedules. */
#include "exec/train/train_options.h"
#include "tests/exec/train_fixture.h"

/* The model above in double precision, without dropout; all samples are one batch. */
typedef struct Reference {
    double w[WEIGHTS], g[WEIGHTS], m[WEIGHTS], v[WEIGHTS], average[WEIGHTS];
    double lr, norm;
} Reference;

static void reference_sample(Reference *r, int64_t sample) {
    const double *w1 = r->w, *b1 = w1 + HIDDEN * WIDTH, *w2 = b1 + HIDDEN,
                 *b2 = w2 + CLASSES * HIDDEN;
    double *g1 = r->g, *gb1 = g1 + HIDDEN * WIDTH, *g2 = gb1 + HIDDEN,
           *gb2 = g2 + CLASSES * HIDDEN;
    double h[HIDDEN], dh[HIDDEN] = {0}, p[CLASSES], sum = 0;
    for (int i = 0; i < HIDDEN; i++) {
        h[i] = b1[i];
        for (int k = 0; k < WIDTH; k++)
            h[i] += w1[i * WIDTH + k] * (double)toy_feature(sample, k);
        h[i] = tanh(h[i]);
    }
    for (int c = 0; c < CLASSES; c++) {
        double z = b2[c];
        for (int i = 0; i < HIDDEN; i++) z += w2[c * HIDDEN + i] * h[i];
        sum += p[c] = exp(z);
    }
    for (int c = 0; c < CLASSES; c++) {
        const double target =
            0.975 * (c == toy_label(sample)) + 0.025 / CLASSES; /* of both parts */
        const double dz = (p[c] / sum - target) / SAMPLES;
        gb2[c] += dz;
        for (int i = 0; i < HIDDEN; i++) {
            g2[c * HIDDEN + i] += dz * h[i];
            dh[i] += dz * w2[c * HIDDEN + i];
        }
    }
    for (int i = 0; i < HIDDEN; i++) {
        const double da = dh[i] * (1 - h[i] * h[i]);
        gb1[i] += da;
        for (int k = 0; k < WIDTH; k++)
            g1[i * WIDTH + k] += da * (double)toy_feature(sample, k);
    }
}

static void reference_gradient(Reference *r, double clip) {
    memset(r->g, 0, sizeof r->g);
    for (int64_t s = 0; s < SAMPLES; s++) reference_sample(r, s);
    r->norm = 0;
    for (int i = 0; i < WEIGHTS; i++) r->norm += r->g[i] * r->g[i];
    r->norm = sqrt(r->norm);
    if (clip > 0 && r->norm > clip)
        for (int i = 0; i < WEIGHTS; i++) r->g[i] *= clip / r->norm;
}

/* Whether weight i belongs to a matrix, and to the second layer. */
static bool is_matrix(int i) {
    const int b1 = HIDDEN * WIDTH, w2 = b1 + HIDDEN, b2 = w2 + CLASSES * HIDDEN;
    return i < b1 || (i >= w2 && i < b2);
}

static bool is_second(int i) {
    return i >= HIDDEN * WIDTH + HIDDEN;
}

static void reference_step(Reference *r, const TrainOptions *o, int step) {
    const double t = step + 1;
    reference_gradient(r, o->clip);
    for (int i = 0; i < WEIGHTS - 9; i++) {
        const double lr = o->lr * (is_second(i) ? 0.5 : 1);
        if (is_matrix(i)) r->w[i] *= 1 - lr * o->weight_decay;
        if (o->optimizer == 0) {
            r->m[i] = o->beta1 * r->m[i] + (1 - o->beta1) * r->g[i];
            r->v[i] = o->beta2 * r->v[i] + (1 - o->beta2) * r->g[i] * r->g[i];
            const double m = r->m[i] / (1 - pow(o->beta1, t));
            r->w[i] -= lr * m / (sqrt(r->v[i] / (1 - pow(o->beta2, t))) + o->eps);
        } else {
            r->m[i] = o->momentum * r->m[i] + r->g[i];
            r->w[i] -= lr * r->m[i];
        }
    }
    const double decay = fmin(o->ema, (1 + t) / (10 + t));
    for (int i = 0; i < WEIGHTS; i++)
        r->average[i] = decay * r->average[i] + (1 - decay) * r->w[i];
}

static void compare_with_reference(int optimizer, double momentum, double clip,
                                   double ema) {
    Fixture f;
    TrainReport report;
    TrainOptions options = train_defaults;
    const char *groups[] = {"out.*=0.5"};
    options.steps = 5;
    options.batch_size = 1000; /* more than there are */
    options.optimizer = optimizer;
    options.lr = 0.01;
    options.eps = 0.05; /* updates differ by 1 / eps times what gradients do */
    options.momentum = momentum;
    options.clip = clip;
    options.ema = ema;
    options.warmup = 0;
    options.schedule = 2; /* constant */
    options.lr_groups = (StringList){groups, 1};
    model_open(&f, 0);
    float start[WEIGHTS], end[WEIGHTS];
    Reference *r = memory_alloc(1, sizeof *r);
    copy_weights(f.graph, start);
    for (int i = 0; i < WEIGHTS; i++) r->w[i] = r->average[i] = (double)start[i];
    double largest = 0, size = 0; /* norm and element of the gradients */
    for (int step = 0; step < 5; step++) {
        reference_step(r, &options, step);
        largest = fmax(largest, r->norm);
        size = fmax(size, largest_value(r->g, WEIGHTS));
    }
    assert_ok(run_training(&f, &options, 1, 2, &report), f.diag);
    const double slope = optimizer == 0 ? 1 / options.eps : 1 / (1 - momentum);
    const double tolerance = weight_tolerance(&f, &options, 5, slope, size);
    copy_weights(f.graph, end);
    for (int i = 0; i < WEIGHTS; i++) {
        const double want = ema > 0 ? r->average[i] : r->w[i];
        assert_within(end[i], want, tolerance);
    }
    const int64_t sizes[DIM_SYMBOLS] = {SAMPLES};
    const double terms = rounding_gradient_terms(f.graph, f.loss, NULL, sizes);
    assert_within(report.largest_norm, largest,
                  rounding_tolerance(PRECISION_F32, terms, largest));
    free(r);
    model_close(&f);
}

static void test_adamw(void **state) {
    (void)state;
    compare_with_reference(0, 0, 0, 0);
    compare_with_reference(0, 0, 0.05, 0);
    compare_with_reference(0, 0, 0, 0.9);
    compare_with_reference(0, 0, 0, 0.2);
}

static void test_sgd(void **state) {
    (void)state;
    compare_with_reference(1, 0.9, 0, 0);
    compare_with_reference(1, 0, 0.05, 0);
    compare_with_reference(1, 0.5, 0.05, 0.5);
}

static void check_factor(const TrainOptions *options, int64_t step, double expected) {
    const double got = schedule_factor(options, step, 100);
    if (!(fabs(got - expected) <= rounding_tolerance(PRECISION_F64, FUNCTION_TERMS,
                                                     1))) /* factors are 1 at most */
        fail_msg("step %d: expected %g, got %g", (int)step, expected, got);
}

static void test_schedules(void **state) {
    (void)state;
    TrainOptions options = train_defaults;
    options.warmup = 0.2;
    options.final_lr = 0.1;
    for (options.schedule = 0; options.schedule < 3; options.schedule++) {
        check_factor(&options, 0, 0.05);
        check_factor(&options, 9, 0.5);
        check_factor(&options, 19, 1);
        check_factor(&options, 20, 1);
    }
    options.schedule = 0;
    check_factor(&options, 60, 0.55);
    check_factor(&options, 40, 0.1 + 0.9 * 0.5 * (1 + cos(M_PI / 4)));
    options.schedule = 1;
    check_factor(&options, 40, 0.775);
    check_factor(&options, 99, 0.1 + 0.9 / 80);
    options.schedule = 2;
    check_factor(&options, 99, 1);
    options.warmup = 1;
    check_factor(&options, 99, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_schedules),
    };
    return cmocka_run_group_tests_name("optimizer", tests, NULL, NULL);
}
