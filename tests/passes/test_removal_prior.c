/* Priors of students: after a removal with `prior: gaussian` the weights and variances
 * that stay are those of the normal distribution given the zeros, computed here from the
 * dense covariance of the entries that are set. */
#include "tests/passes/dense_posterior.h"

/* Where element e of a student's storage was in the teacher's. */
static int64_t original(const Storage *storage, const Storage *before, int64_t e) {
    if (storage->tensor.rank != 2)
        return storage->tensor.rank == 1 ? lineage_index(&storage->kept[0], e) : e;
    const int64_t columns = storage->tensor.dim[1];
    return lineage_index(&storage->kept[0], e / columns) * before->tensor.dim[1] +
           lineage_index(&storage->kept[1], e % columns);
}

/* The entries' pull along each direction: an element of v moves by its row times this. */
static void pull(const Model *teacher, const Entries *entries, const double *x,
                 double w[SAMPLES_K]) {
    for (int k = 0; k < SAMPLES_K; k++) w[k] = 0;
    for (int j = 0; j < entries->count; j++) {
        const Entry *entry = &entries->items[j];
        const Storage *from = graph_storage(teacher->graph, entry->storage);
        for (int k = 0; k < SAMPLES_K; k++) w[k] += factor_at(from, entry->at, k) * x[j];
    }
}

/* Means, weights, and variances of some storages. */
static void check_student(const Model *teacher, const Model *student,
                          const Entries *entries) {
    double *x = solve_mean(teacher, entries), w[SAMPLES_K];
    pull(teacher, entries, x, w);
    for (int i = 0; i < student->graph->storage_count; i++) {
        const Storage *storage = student->graph->storages[i];
        const Storage *before = graph_storage(teacher->graph, storage->name);
        assert_non_null(storage->gaussian);
        for (int64_t e = 0; e < tensor_count(&storage->tensor); e++) {
            const int64_t at = original(storage, before, e);
            double mean = 0, got = 0, weight = 0;
            gaussian_mean_f64(before->gaussian, at, 1, &mean);
            for (int k = 0; k < SAMPLES_K; k++) mean += factor_at(before, at, k) * w[k];
            gaussian_mean_f64(storage->gaussian, e, 1, &got);
            tensor_read_f64(&storage->tensor, e, 1, &weight);
            const double rounding = rounding_tolerance(PRECISION_F32, 1, fabs(mean));
            if (!(fabs(got - mean) <= SOLVE_ROUNDING) ||
                !(fabs(weight - mean) <= rounding + SOLVE_ROUNDING))
                fail_msg("%s[%d]: mean %.12g, weight %.12g, expected %.12g",
                         storage->name, (int)e, got, weight, mean);
        }
        if (i % 16) continue;
        double variance = 0;
        gaussian_variance_f64(storage->gaussian, 0, 1, &variance);
        assert_within(
            variance,
            expected_variance(teacher, entries, before, original(storage, before, 0)),
            SOLVE_ROUNDING);
    }
    free(x);
}

static int64_t count_parameters(const Model *model) {
    return graph_parameter_count(model->graph);
}

/* Runs a removal and checks all that stays, and the counts that the step reports. */
static void check_prior(Model *teacher, const Entries *entries, const char *pass,
                        const char *options) {
    Model *student = model_copy(teacher);
    run_pass(student, pass, options);
    check_student(teacher, student, entries);
    const Tree *record = tree_get(last_record(student), "conditioning");
    const int64_t given = tree_get(record, "given")->integer;
    const int64_t removed = tree_get(record, "removed")->integer;
    const int64_t kept = tree_get(record, "kept")->integer;
    assert_int_equal(given, entries->count);
    assert_int_equal(given + removed + kept, count_parameters(teacher));
    assert_int_equal(kept, count_parameters(student));
    assert_true(tree_get(record, "moved")->real > 1e-4);
    assert_null(tree_get(record, "note"));
    model_destroy(student);
}

/* ---- layers and blocks ---- */

static void check_family(const Family *f) {
    char options[160];
    Model *teacher = draw_model(f, 5);
    add_posterior(teacher, GAUSSIAN_LOW_RANK);
    Entries entries = {.count = 0};
    add_layer(&entries, teacher, f, 1);
    snprintf(options, sizeof options, "{drop: [1], prior: gaussian, stack: %s}",
             f->stack);
    check_prior(teacher, &entries, "remove_layer", options);
    for (int kind = 0; kind < BLOCK_OTHER; kind++) {
        if (kind == BLOCK_CROSS_ATTENTION && !f->cross) continue;
        entries.count = 0;
        add_block(&entries, teacher, f, 1, (BlockKind)kind);
        snprintf(options, sizeof options,
                 "{block: %s, drop: [1], prior: gaussian, stack: %s}",
                 block_name((BlockKind)kind), f->stack);
        check_prior(teacher, &entries, "remove_block", options);
    }
    model_destroy(teacher);
}

static void test_families(void **state) {
    (void)state;
    for (int i = 0; i < FAMILY_COUNT; i++) check_family(&FAMILIES[i]);
}

static void test_additive_attention(void **state) {
    (void)state;
    static const char *const zeros[ZERO_COUNT] = {"all", "score", "projections"};
    for (int i = 0; i < RECURRENT_COUNT; i++)
        for (int zero = 0; zero < ZERO_COUNT; zero++) {
            char options[64];
            Entries entries = {.count = 0};
            Model *teacher = draw_model(&RECURRENTS[i], 5);
            add_posterior(teacher, GAUSSIAN_LOW_RANK);
            add_alignment(&entries, teacher, zero);
            snprintf(options, sizeof options, "{zero: %s, prior: gaussian}", zeros[zero]);
            check_prior(teacher, &entries, "remove_attention", options);
            model_destroy(teacher);
        }
}

/* Conditioning on the blocks of a layer in turn is conditioning on the layer. */
static void test_in_turn(void **state) {
    (void)state;
    const Family *f = &FAMILIES[0];
    Model *teacher = draw_model(f, 5), *student = model_copy(teacher);
    model_destroy(student);
    add_posterior(teacher, GAUSSIAN_LOW_RANK);
    student = model_copy(teacher);
    Entries entries = {.count = 0};
    add_layer(&entries, teacher, f, 1);
    run_pass(student, "remove_block", "{block: ffn, drop: [1], prior: gaussian}");
    run_pass(student, "remove_block", "{block: attention, drop: [1], prior: gaussian}");
    check_student(teacher, student, &entries);
    model_destroy(student);
    model_destroy(teacher);
}

static void expect_text(const Tree *record, const char *key, const char *part) {
    const Tree *value = tree_get(record, key);
    assert_non_null(value);
    assert_non_null(strstr(value->string, part));
}

/* Norms after the sum are at best an approximation, and the step says so. */
static void test_says_identity(void **state) {
    (void)state;
    for (int i = 0; i < FAMILY_COUNT; i++) {
        const Family *f = &FAMILIES[i];
        char options[128];
        Model *model = draw_model(f, 5);
        add_posterior(model, GAUSSIAN_DIAGONAL);
        snprintf(options, sizeof options, "{drop: [1], prior: gaussian, stack: %s}",
                 f->stack);
        run_pass(model, "remove_layer", options);
        expect_text(last_record(model), "identity",
                    f->place == NORM_POST ? "approximate" : "exact");
        model_destroy(model);
    }
}

/* A diagonal covariance selects: weights and variances as they were, and the step says
 * that it did nothing. */
static void test_diagonal(void **state) {
    (void)state;
    Model *model = draw_model(&FAMILIES[0], 5);
    add_posterior(model, GAUSSIAN_DIAGONAL);
    Model *copied = model_copy(model), *before = model_copy(model);
    run_pass(model, "remove_layer", "{drop: [1], prior: gaussian}");
    run_pass(copied, "remove_layer", "{drop: [1], prior: copy}");
    for (int i = 0; i < model->graph->storage_count; i++) {
        const Storage *a = model->graph->storages[i];
        const Storage *b = graph_storage(copied->graph, a->name);
        const Storage *old = graph_storage(before->graph, a->name);
        char x[HASH_TEXT_BYTES], y[HASH_TEXT_BYTES];
        tensor_hash(&a->tensor, x);
        tensor_hash(&b->tensor, y);
        assert_string_equal(x, y);
        double was = 0, got = 0, kept = 0;
        gaussian_variance_f64(old->gaussian, 0, 1, &was);
        gaussian_variance_f64(a->gaussian, 0, 1, &got);
        gaussian_variance_f64(b->gaussian, 0, 1, &kept);
        assert_true(was == got && was == kept);
    }
    expect_text(tree_get(last_record(model), "conditioning"), "note", "did nothing");
    assert_null(tree_get(last_record(copied), "conditioning"));
    model_destroy(model);
    model_destroy(copied);
    model_destroy(before);
}

/* New weights: by seed, of the same shapes, without Gaussians. */
static void test_random(void **state) {
    (void)state;
    static const struct {
        const char *pass, *random, *copy;
    } cases[] = {
        {"remove_layer", "{drop: [1], prior: random}", "{drop: [1]}"},
        {"remove_block", "{block: ffn, drop: [1], prior: random}",
         "{block: ffn, drop: [1]}"},
        {"prune_heads", "{keep: 1, score: magnitude, prior: random}",
         "{keep: 1, score: magnitude}"},
        {"prune_ffn", "{keep: 5, score: magnitude, prior: random}",
         "{keep: 5, score: magnitude}"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        Model *teacher = draw_model(&FAMILIES[0], 5);
        add_posterior(teacher, GAUSSIAN_DIAGONAL);
        Model *models[3] = {model_copy(teacher), model_copy(teacher),
                            model_copy(teacher)};
        char hash[3][HASH_TEXT_BYTES];
        for (int i = 0; i < 3; i++) {
            run_pass(models[i], cases[c].pass, i < 2 ? cases[c].random : cases[c].copy);
            model_content_hash(models[i], hash[i]);
        }
        assert_string_equal(hash[0], hash[1]);
        assert_string_not_equal(hash[0], hash[2]);
        assert_int_equal(count_parameters(models[0]), count_parameters(models[2]));
        assert_int_equal(graph_gaussian_count(models[0]->graph), 0);
        assert_true(graph_gaussian_count(models[2]->graph) > 0);
        assert_non_null(tree_get(last_record(models[0]), "posteriors_dropped"));
        for (int i = 0; i < 3; i++) model_destroy(models[i]);
        model_destroy(teacher);
    }
}

/* ---- heads and neurons ---- */

static void check_heads(const Family *f, bool value) {
    char options[160];
    Model *teacher = draw_model(f, 5);
    shrink_head(teacher, f, 0, 0.1F);
    add_posterior(teacher, GAUSSIAN_LOW_RANK);
    Entries entries = {.count = 0};
    for (int layer = 0; layer < LAYERS; layer++)
        add_head(&entries, teacher, f, layer, 0, value);
    snprintf(options, sizeof options,
             "{keep: 1, score: magnitude, prior: gaussian, zero: %s, stack: %s}",
             value ? "value" : "output", f->stack);
    check_prior(teacher, &entries, "prune_heads", options);
    model_destroy(teacher);
}

static void test_heads(void **state) {
    (void)state;
    for (int i = 0; i < FAMILY_COUNT; i++) {
        check_heads(&FAMILIES[i], false);
        check_heads(&FAMILIES[i], true);
    }
}

/* Heads whose scores and weights are mixed: what other heads read of one that goes is
 * zero as well. */
static void test_mixed_heads(void **state) {
    (void)state;
    const Family *f = &FAMILIES[0];
    Model *teacher = draw_model(f, 5);
    run_pass(teacher, "weight_multiplex",
             "{group: 1, position: none, mixing_init: trunc_normal, mixing_std: 0.5}");
    shrink_head(teacher, f, 0, 0.1F);
    for (int value = 0; value < 2; value++) {
        add_posterior(teacher, GAUSSIAN_LOW_RANK);
        Entries entries = {.count = 0};
        for (int layer = 0; layer < LAYERS; layer++) {
            const char *const mix[] = {"mix_before", "mix_after"};
            add_head(&entries, teacher, f, layer, 0, value);
            for (int i = 0; i < 2; i++)
                add_entries(&entries,
                            storage_at(teacher, f->stack, layer, ROLE_ATTENTION, mix[i]),
                            1, 0, 1, 0);
        }
        check_prior(teacher, &entries, "prune_heads",
                    value ? "{keep: 1, score: magnitude, prior: gaussian, zero: value}"
                          : "{keep: 1, score: magnitude, prior: gaussian}");
        for (int i = 0; i < teacher->graph->storage_count; i++)
            storage_drop_gaussian(teacher->graph->storages[i]);
    }
    model_destroy(teacher);
}

/* Hidden units: outgoing columns are zero, incoming rows (and gates) go. */
static void test_neurons(void **state) {
    (void)state;
    for (int i = 0; i < FAMILY_COUNT; i++) {
        const Family *f = &FAMILIES[i];
        char options[128];
        Model *teacher = draw_model(f, 5);
        for (int layer = 0; layer < LAYERS; layer++) {
            scale_units(teacher, f, layer, ROLE_FFN_OUT, true, 0, 4, 0.1F);
            scale_units(teacher, f, layer, ROLE_FFN_IN, false, 0, 4, 0.1F);
        }
        add_posterior(teacher, GAUSSIAN_LOW_RANK);
        Entries entries = {.count = 0};
        for (int layer = 0; layer < LAYERS; layer++)
            add_entries(&entries,
                        storage_at(teacher, f->stack, layer, ROLE_FFN_OUT, "weight"),
                        axis_of(teacher, f, layer, ROLE_FFN_OUT, true), 0, 4, 0);
        snprintf(options, sizeof options,
                 "{keep: 8, score: magnitude, prior: gaussian, stack: %s}", f->stack);
        check_prior(teacher, &entries, "prune_ffn", options);
        model_destroy(teacher);
    }
}

/* ---- errors ---- */

static void test_needs_posterior(void **state) {
    (void)state;
    Model *model = draw_model(&FAMILIES[0], 5);
    static const char *const cases[][2] = {
        {"remove_layer", "{drop: [1], prior: gaussian}"},
        {"remove_layer", "{count: 1, order: relevance}"},
        {"remove_block", "{block: ffn, drop: [1], prior: gaussian}"},
        {"prune_heads", "{keep: 1, score: magnitude, prior: gaussian}"},
        {"prune_ffn", "{keep: 1, score: relevance}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Model *copy = model_copy(model);
        expect_pass_fails(copy, cases[i][0], cases[i][1], STATUS_MODEL,
                          "expected a posterior of the model's weights, found none");
        model_destroy(copy);
    }
    model_destroy(model);
}

/* Weights that layers share cannot be zero in one of them. */
static void test_shared(void **state) {
    (void)state;
    Model *model = draw_model(&FAMILIES[0], 5);
    run_pass(model, "remove_layer", "{drop: [2]}");
    run_pass(model, "weight_multiplex", "{group: 2, position: none}");
    add_posterior(model, GAUSSIAN_DIAGONAL);
    expect_pass_fails(model, "remove_layer", "{drop: [1], prior: gaussian}", STATUS_MODEL,
                      "what stays uses it too");
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families), cmocka_unit_test(test_additive_attention),
        cmocka_unit_test(test_in_turn),  cmocka_unit_test(test_says_identity),
        cmocka_unit_test(test_diagonal), cmocka_unit_test(test_random),
        cmocka_unit_test(test_heads),    cmocka_unit_test(test_mixed_heads),
        cmocka_unit_test(test_neurons),  cmocka_unit_test(test_needs_posterior),
        cmocka_unit_test(test_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
