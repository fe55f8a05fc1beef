/* What importance says: it is the derivative it claims to be, and pruning takes the
 * scores that are stored only if they fit. */
#include "tests/passes/prune_fixture.h"

static void expect_score(const Model *model, const char *list, int block, int unit,
                         const char *name, int64_t count) {
    double tolerance;
    const double slope = scaled_slope(model, name, unit * count, count, &tolerance);
    assert_within(stored_score(model, list, block, unit), fabs(slope),
                  tolerance + score_tolerance(model, slope));
}

static void test_taylor(void **state) {
    (void)state;
    Model *model = toy_vit(6);
    run_pass(model, "importance",
             "{data: toy, abs: block, accumulate: sum_then_abs, batch_size: 25}");
    for (int l = 0; l < LAYERS; l++) {
        for (int h = 0; h < HEADS; h++) expect_score(model, "heads", l, h, OUT(l), 8);
        for (int u = 0; u < HIDDEN; u += 5)
            expect_score(model, "ffn", l, u, FFN_OUT(l), 1);
    }
    model_destroy(model);
}

/* One batch: both orders of summing are one. Absolute values first give no less. */
static void test_reductions(void **state) {
    (void)state;
    static const char *const options[] = {
        "{data: toy, batch_size: 60}",
        "{data: toy, batch_size: 60, accumulate: sum_then_abs}",
        "{data: toy, batch_size: 7}",
        "{data: toy, batch_size: 60, abs: block}",
    };
    double score[4];
    for (int i = 0; i < 4; i++) {
        Model *model = toy_vit(6);
        run_pass(model, "importance", options[i]);
        score[i] = stored_score(model, "heads", 2, 1);
        model_destroy(model);
    }
    assert_within(score[0], score[1], rounding_tolerance(PRECISION_F64, 60, score[1]));
    assert_true(score[2] > score[0]);
    assert_true(score[3] < score[0]);
}

/* Layers that share weights get scores of their own; those of equal layers differ only by
 * place, and the group keeps what is best in sum. */
static void test_shared_importance(void **state) {
    (void)state;
    Model *model = toy_vit(6);
    run_pass(model, "weight_multiplex", "{group: 4}");
    run_pass(model, "importance", "{data: toy}");
    double sum[HEADS] = {0};
    for (int l = 0; l < LAYERS; l++)
        for (int h = 0; h < HEADS; h++) sum[h] += stored_score(model, "heads", l, h);
    assert_true(stored_score(model, "heads", 0, 0) != stored_score(model, "heads", 1, 0));
    run_pass(model, "prune_heads", "{keep: 1, score: taylor}");
    const Storage *out = find_storage(model, OUT(0));
    assert_int_equal(lineage_index(&out->kept[1], 0), sum[1] > sum[0] ? 8 : 0);
    for (int l = 0; l < LAYERS; l++) assert_int_equal(attention_heads(model, l), 1);
    model_destroy(model);
}

/* Stored scores come from a file and may be anything. */
static void test_damaged_scores(void **state) {
    (void)state;
    static const struct {
        const char *path, *part;
        Tree value;
    } cases[] = {
        {"importance", "no stored", {.kind = TREE_INT}},
        {"importance.heads", "no stored", {.kind = TREE_MAP}},
        {"importance.heads.0", "other layers", {.kind = TREE_STRING, .string = "x"}},
        {"importance.heads.0.layer", "other layers", {.kind = TREE_INT, .integer = 3}},
        {"importance.heads.1.stack", "other layers", {.kind = TREE_NULL}},
        {"importance.heads.3.units", "other layers", {.kind = TREE_INT, .integer = 3}},
        {"importance.heads.0.scores", "damaged", {.kind = TREE_LIST}},
        {"importance.heads.0.scores.1", "damaged", {.kind = TREE_NULL}},
        {"importance.heads.0.scores.0", "damaged", {.kind = TREE_FLOAT, .real = NAN}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Model *model = toy_vit(1);
        Diag *diag = diag_create();
        run_pass(model, "importance", "{score: magnitude}");
        Tree *value = tree_copy(model->arena, &cases[i].value);
        assert_ok(tree_set(model->arena, model->provenance, cases[i].path, value, diag),
                  diag);
        expect_failure(model, "prune_heads", "{keep: 1}", cases[i].part);
        model_destroy(model);
        diag_destroy(diag);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taylor),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_shared_importance),
        cmocka_unit_test(test_damaged_scores),
    };
    return cmocka_run_group_tests_name("importance", tests, NULL, NULL);
}
