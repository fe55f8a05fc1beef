/* Probes against scikit-learn and NumPy: 24 random cases, recorded by tests/data/metrics/
 * make_probes.py. */
#include "io/files/json.h"
#include "passes/evaluate/probe.h"
#include "tests/support/check.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>

enum { CASES = 24, ROWS = 16, WIDTH = 8 };

static double number_of(const Tree *value) {
    return value->kind == TREE_INT ? (double)value->integer : value->real;
}

/* Rows of a list of lists as unit rows; their number. */
static int64_t read_rows(float *out, int64_t *width, const Tree *list) {
    int64_t n = 0;
    for (const Tree *row = list->first; row; row = row->next, n++) {
        double square = 0;
        *width = row->count;
        for (const Tree *x = row->first; x; x = x->next) square += pow(number_of(x), 2);
        for (const Tree *x = row->first; x; x = x->next)
            *out++ = (float)(number_of(x) / sqrt(square));
    }
    return n;
}

/* Mean cross-entropy of a classifier over its set. */
static double mean_loss(const LinearProbe *probe, const ProbeSet *set) {
    double loss = 0;
    for (int64_t i = 0; i < set->count; i++) {
        double scores[ROWS], sum = 0;
        for (int64_t k = 0; k < set->classes; k++) {
            const double *w = probe->weights + k * (set->width + 1);
            scores[k] = w[set->width];
            for (int64_t c = 0; c < set->width; c++)
                scores[k] += w[c] * (double)set->rows[i * set->width + c];
            sum += exp(scores[k]);
        }
        loss += (log(sum) - scores[set->labels[i]]) / (double)set->count;
    }
    return loss;
}

static void check_case(const Tree *at) {
    float rows[ROWS * WIDTH], test[ROWS * WIDTH];
    int32_t labels[ROWS];
    ProbeSet set = {.rows = rows, .labels = labels};
    set.count = read_rows(rows, &set.width, tree_get(at, "fit"));
    set.classes = tree_get(at, "classes")->integer;
    int64_t n = 0;
    for (const Tree *l = tree_get(at, "labels")->first; l; l = l->next)
        labels[n++] = (int32_t)l->integer;
    n = read_rows(test, &set.width, tree_get(at, "test"));
    LinearProbe probe;
    probe_fit(&probe, &set, number_of(tree_get(at, "l2")));
    assert_true(probe.gradient <= 1e-6);
    /* its gradient is below 1e-6, so the objective of a strongly convex problem (l2 0.01
     * at least) is within width x classes x 1e-12 / l2 of the least; rows are floats */
    assert_within(mean_loss(&probe, &set), number_of(tree_get(at, "loss")), 1e-5);
    const Tree *nearest = tree_get(at, "nearest")->first;
    const Tree *linear = tree_get(at, "linear")->first;
    for (int64_t i = 0; i < n; i++, nearest = nearest->next, linear = linear->next) {
        const float *row = test + i * set.width;
        assert_int_equal(probe_nearest(&set, row, tree_get(at, "neighbours")->integer,
                                       number_of(tree_get(at, "temperature"))),
                         nearest->integer);
        assert_int_equal(probe_classify(&probe, row), linear->integer);
    }
    free(probe.weights);
}

static void test_cases(void **state) {
    (void)state;
    static const char PATH[] = "tests/data/metrics/probes.jsonl";
    FILE *file = fopen(PATH, "r");
    assert_non_null(file);
    char *line = NULL;
    size_t room = 0;
    int count = 0;
    for (ssize_t length; (length = getline(&line, &room, file)) > 0; count++) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        Tree *at;
        assert_ok(
            json_parse_line(&at, arena, PATH, count + 1, line, (size_t)length, diag),
            diag);
        check_case(at);
        diag_destroy(diag);
        arena_destroy(arena);
    }
    assert_int_equal(count, CASES);
    free(line);
    fclose(file);
}

/* Votes that would overflow one by one, and fewer rows than neighbours. */
static void test_ends(void **state) {
    (void)state;
    const float rows[] = {1, 0, 0, 1, 0, 1};
    const int32_t labels[] = {0, 1, 1};
    const ProbeSet set = {rows, labels, 3, 2, 2};
    assert_int_equal(probe_nearest(&set, (const float[]){1, 0}, 20, 0.001), 0);
    assert_int_equal(probe_nearest(&set, (const float[]){0.6f, 0.8f}, 3, 0.07), 1);
    assert_int_equal(probe_nearest(&set, (const float[]){0, 0}, 2, 0.07), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
