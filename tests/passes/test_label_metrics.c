/* Metrics of labels, entities and numbers against scikit-learn, SciPy and the published
 * rules of entities: 200 random cases each, recorded by tests/data/metrics/
 * make_metrics.py with twelve digits. */
#include "io/files/json.h"
#include "passes/evaluate/correlation.h"
#include "passes/evaluate/entities.h"
#include "tests/support/check.h"
#include "tests/support/rounding.h"

#include <stdlib.h>
#include <string.h>

enum { CASES = 200, MOST = 16 };

/* What twelve digits leave of a number, with room. */
#define DIGITS 1e-11

/* Reads a file of cases, one JSON object a line, and calls `check` with each. */
static void each_case(const char *path, void (*check)(const Tree *at, Arena *arena)) {
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *line = NULL;
    size_t room = 0;
    int count = 0;
    for (ssize_t length; (length = getline(&line, &room, file)) > 0; count++) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        Tree *at;
        assert_ok(
            json_parse_line(&at, arena, path, count + 1, line, (size_t)length, diag),
            diag);
        check(at, arena);
        diag_destroy(diag);
        arena_destroy(arena);
    }
    assert_int_equal(count, CASES);
    free(line);
    fclose(file);
}

static double number(const Tree *value) {
    return value->kind == TREE_INT ? (double)value->integer : value->real;
}

static double number_of(const Tree *at, const char *key) {
    return number(tree_get(at, key));
}

/* ---- labels ---- */

typedef struct LabelCase {
    int64_t samples, labels;
    float score[MOST][MOST], truth[MOST][MOST]; /* by label, by sample */
    LabelCounts counts[MOST];
    double exact; /* samples with all labels right */
} LabelCase;

static void read_labels(LabelCase *c, const Tree *at) {
    *c = (LabelCase){0};
    const Tree *truth = tree_get(at, "truth")->first,
               *score = tree_get(at, "score")->first;
    for (; truth; truth = truth->next, score = score->next, c->samples++) {
        const Tree *t = truth->first, *s = score->first;
        bool right = true;
        for (c->labels = 0; t; t = t->next, s = s->next, c->labels++) {
            LabelCounts *counts = &c->counts[c->labels];
            const bool is = t->integer != 0, found = s->integer >= 0;
            c->truth[c->labels][c->samples] = is;
            /* a threshold is about numbers from 0 on; 2^x keeps their order */
            c->score[c->labels][c->samples] = (float)exp2((double)s->integer);
            counts->hits += is && found;
            counts->predicted += found;
            counts->labelled += is;
            right &= is == found;
        }
        c->exact += right;
    }
}

/* F1 of one label when a threshold chooses. */
static double f1_at(const LabelCase *c, int64_t label, double threshold) {
    LabelCounts counts = {0};
    for (int64_t i = 0; i < c->samples; i++) {
        const bool is = c->truth[label][i] > 0;
        const bool found = (double)c->score[label][i] >= threshold;
        counts.hits += is && found;
        counts.predicted += found;
        counts.labelled += is;
    }
    return label_f1(counts);
}

static void check_labels(const Tree *at, Arena *arena) {
    (void)arena;
    LabelCase c;
    read_labels(&c, at);
    const LabelCounts sum = label_counts_sum(c.counts, c.labels);
    assert_within(label_f1(sum), number_of(at, "f1_micro"), DIGITS);
    assert_within(label_f1_macro(c.counts, c.labels, false), number_of(at, "f1_macro"),
                  DIGITS);
    assert_within(c.exact / (double)c.samples, number_of(at, "accuracy"), DIGITS);
    const Tree *f1 = tree_get(at, "f1")->first, *best = tree_get(at, "best")->first;
    const Tree *precision = tree_get(at, "precision")->first;
    const Tree *recall = tree_get(at, "recall")->first;
    for (int64_t l = 0; l < c.labels; l++) {
        double reached;
        const double threshold =
            label_best_threshold(c.score[l], c.truth[l], c.samples, -1, &reached);
        assert_within(label_f1(c.counts[l]), number(f1), DIGITS);
        assert_within(label_precision(c.counts[l]), number(precision), DIGITS);
        assert_within(label_recall(c.counts[l]), number(recall), DIGITS);
        assert_within(reached, number(best), DIGITS);
        assert_true(c.counts[l].labelled > 0 || threshold == -1);
        assert_true(threshold == -1 || f1_at(&c, l, threshold) == reached);
        f1 = f1->next, best = best->next, precision = precision->next;
        recall = recall->next;
    }
}

static void test_labels(void **state) {
    (void)state;
    each_case("tests/data/metrics/labels.jsonl", check_labels);
}

/* Classes that do not occur are left out where that is asked for. */
static void test_occurring(void **state) {
    (void)state;
    const LabelCounts counts[] = {{1, 2, 2}, {0, 0, 0}, {3, 3, 3}, {0, 0, 1}};
    assert_within(label_f1_macro(counts, 4, false), (0.5 + 1) / 4, DIGITS);
    assert_within(label_f1_macro(counts, 4, true), (0.5 + 1) / 3, DIGITS);
    assert_true(label_f1_macro(counts + 1, 1, true) == 0);
}

/* Of thresholds with one F1 the highest, in the middle between two scores. */
static void test_threshold(void **state) {
    (void)state;
    const float scores[] = {0.9f, 0.5f, 0.25f, 0.25f}, labels[] = {1, 0, 1, 0};
    double f1;
    assert_true(label_best_threshold(scores, labels, 4, 0.5, &f1) == (0.9f + 0.5) / 2);
    assert_within(f1, 2.0 / 3, DIGITS); /* as it is with all four */
    const float all[] = {1, 1, 1, 1};
    assert_true(label_best_threshold(scores, all, 4, 0.5, NULL) == 0.125);
}

/* ---- correlations ---- */

static double series(const Tree *list, double x[MOST], int64_t *n) {
    double low = INFINITY, high = -INFINITY, size = 0;
    *n = 0;
    for (const Tree *value = list->first; value; value = value->next) {
        const double v = x[(*n)++] = number(value);
        low = fmin(low, v);
        high = fmax(high, v);
        size = fmax(size, fabs(v));
    }
    return high > low ? size / (high - low) : 1; /* by which a mean's error grows */
}

static void check_correlation(const Tree *at, Arena *arena) {
    (void)arena;
    double x[MOST], y[MOST];
    int64_t n;
    const double condition =
        series(tree_get(at, "x"), x, &n) + series(tree_get(at, "y"), y, &n);
    const double bound = rounding_tolerance(
        PRECISION_F64, 4 * (double)n + 4 * FUNCTION_TERMS, (double)n * (1 + condition));
    assert_within(correlation_pearson(x, y, n), number_of(at, "pearson"), bound + DIGITS);
    assert_within(correlation_spearman(x, y, n), number_of(at, "spearman"), DIGITS);
}

static void test_correlations(void **state) {
    (void)state;
    each_case("tests/data/metrics/correlations.jsonl", check_correlation);
}

/* What is constant correlates with nothing; far numbers overflow nothing. */
static void test_correlation_ends(void **state) {
    (void)state;
    const double x[] = {1e300, -1e300, 5e299}, y[] = {1e-300, -1e-300, 5e-301};
    const double same[] = {0.1, 0.1, 0.1};
    assert_within(correlation_pearson(x, y, 3), 1, DIGITS);
    assert_true(correlation_pearson(x, same, 3) == 0);
    assert_true(correlation_spearman(same, y, 3) == 0);
    assert_true(correlation_pearson(x, y, 1) == 0);
}

/* ---- entities ---- */

static int64_t sequence(const Tree *list, int32_t out[MOST]) {
    int64_t n = 0;
    for (const Tree *tag = list->first; tag; tag = tag->next)
        out[n++] = (int32_t)tag->integer;
    return n;
}

static void check_entities(const Tree *at, Arena *arena) {
    static const char *const MODES[] = {"default", "strict"};
    static const char *const SCHEMES[] = {"iob2", "iobes", "plain"};
    const char *names[MOST];
    int64_t classes = 0;
    EntityTags tags;
    for (const Tree *name = tree_get(at, "names")->first; name; name = name->next)
        names[classes++] = name->string;
    entity_tags_read(&tags, arena, names, classes);
    assert_string_equal(SCHEMES[tags.scheme], tree_get(at, "scheme")->string);
    for (int strict = 0; strict < 2; strict++) {
        LabelCounts counts[MOST] = {{0}};
        const Tree *want = tree_get(at, MODES[strict]);
        const Tree *pair = tree_get(at, "sentences")->first;
        for (; pair; pair = pair->next) {
            int32_t labels[MOST], found[MOST];
            const int64_t n = sequence(pair->first, labels);
            sequence(pair->first->next, found);
            entities_count(counts, &tags, strict, labels, found, n);
        }
        const LabelCounts sum = label_counts_sum(counts, tags.type_count);
        assert_within(label_precision(sum), number_of(want, "precision"), DIGITS);
        assert_within(label_recall(sum), number_of(want, "recall"), DIGITS);
        assert_within(label_f1(sum), number_of(want, "f1"), DIGITS);
        assert_within(label_f1_macro(counts, tags.type_count, true),
                      number_of(want, "f1_macro"), DIGITS);
    }
}

static void test_entities(void **state) {
    (void)state;
    each_case("tests/data/metrics/entities.jsonl", check_entities);
}

/* Names say the scheme; entities are where they should be. */
static void test_tag_names(void **state) {
    (void)state;
    static const struct {
        const char *names[5];
        TagScheme scheme;
        int types;
    } SCHEMES[] = {
        {{"O", "B-A", "I-A", "B-B-C", "I-B-C"}, TAGS_IOB2, 2},
        {{"B", "I", "O", "B-A", "I-A"}, TAGS_IOB2, 2},
        {{"O", "B-A", "I-A", "L-A", "U-A"}, TAGS_IOBES, 1},
        {{"O", "B-A", "I-A", "X-A", "S-A"}, TAGS_PLAIN, 4},
        {{"NOUN", "VERB", "BAR", "O", "I"}, TAGS_PLAIN, 4},
        {{"O", "O", "O", "O", "O"}, TAGS_PLAIN, 0},
    };
    Arena *arena = arena_create();
    for (size_t i = 0; i < sizeof SCHEMES / sizeof *SCHEMES; i++) {
        EntityTags tags;
        entity_tags_read(&tags, arena, SCHEMES[i].names, 5);
        assert_int_equal(tags.scheme, SCHEMES[i].scheme);
        assert_int_equal(tags.type_count, SCHEMES[i].types);
    }
    EntityTags tags;
    Entity found[6];
    entity_tags_read(&tags, arena, SCHEMES[2].names, 5);
    const int32_t bilou[] = {1, 2, 3, 4, 0, 2};
    assert_int_equal(entities_find(found, &tags, false, bilou, 6), 3);
    assert_int_equal(found[2].first, 5);
    assert_int_equal(entities_find(found, &tags, true, bilou, 6), 2);
    assert_int_equal(found[0].last, 2);
    entity_tags_read(&tags, arena, NULL, 3);
    const int32_t numbers[] = {0, 0, 1, 2};
    assert_int_equal(entities_find(found, &tags, true, numbers, 4), 3);
    arena_destroy(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_labels),    cmocka_unit_test(test_occurring),
        cmocka_unit_test(test_threshold), cmocka_unit_test(test_correlations),
        cmocka_unit_test(test_tag_names), cmocka_unit_test(test_correlation_ends),
        cmocka_unit_test(test_entities),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
