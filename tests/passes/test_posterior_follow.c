/* What passes, files and other models do with a posterior. */
#include "io/formats/modelfile.h"
#include "tests/io/io_test.h"
#include "tests/passes/posterior_fixture.h"
#include "tests/support/rounding.h"

static const char *const estimates[] = {
    "{" TRAIN ", steps: 5, samples: 3, covariance: diagonal}",
    "{" TRAIN ", steps: 5, samples: 3, covariance: low_rank}",
    "{" TRAIN ", steps: 5, samples: 3, covariance: kron}"};

/* Element of the original that element i of a cut storage was. */
static int64_t original(const Storage *storage, const Tensor *before, int64_t i) {
    int64_t at = 0, stride = 1;
    for (int axis = before->rank - 1; axis >= 0; axis--) {
        const int64_t dim = storage->tensor.dim[axis];
        at += lineage_index(&storage->kept[axis], i % dim) * stride;
        stride *= before->dim[axis];
        i /= dim;
    }
    return at;
}

/* After pruning, means, variances and covariances are those of the kept elements. */
static void test_pruned(void **state) {
    (void)state;
    for (int form = 0; form < 3; form++) {
        Model *model = toy_vit(4);
        run_pass(model, "estimate_posterior", estimates[form]);
        Model *before = model_copy(model);
        run_pass(model, "prune_ffn", "{keep: 11, score: magnitude}");
        assert_int_equal(graph_gaussian_count(model->graph),
                         graph_gaussian_count(before->graph));
        static const char *const names[] = {
            FFN_IN, FFN_OUT, "vit.encoder.layer.1.intermediate.dense.bias"};
        for (int s = 0; s < 3; s++) {
            const Storage *cut = storage_of(model, names[s]);
            const Storage *whole = storage_of(before, names[s]);
            const Gaussian *g = cut->gaussian, *from = whole->gaussian;
            assert_true(gaussian_fits(g, &cut->tensor));
            const int64_t count = tensor_count(&cut->tensor);
            assert_true(count < tensor_count(&whole->tensor));
            for (int64_t i = 0; i < count; i++) {
                const int64_t at = original(cut, &whole->tensor, i);
                const int64_t next = original(cut, &whole->tensor, (i + 7) % count);
                double a, b;
                gaussian_variance_f64(g, i, 1, &a);
                gaussian_variance_f64(from, at, 1, &b);
                assert_true(a == b);
                assert_true(read_one(&g->mean, i) == read_one(&from->mean, at));
                assert_true(covariance_of(g, i, g, (i + 7) % count) ==
                            covariance_of(from, at, from, next));
            }
        }
        model_destroy(before);
        model_destroy(model);
    }
}

/* Layers that share by averaging share the average's distribution; kron, or sharing by
 * least squares, drops it with a warning. */
static void test_shared(void **state) {
    (void)state;
    for (int form = 0; form < 3; form++) {
        Model *model = toy_vit(4);
        run_pass(model, "estimate_posterior", estimates[form]);
        Model *before = model_copy(model);
        Diag *diag = diag_create();
        assert_ok(test_run_pass(model, "weight_multiplex",
                                "{group: 2, mixing: none, position: none, "
                                "mlp_transform: none}",
                                false, diag),
                  diag);
        const Storage *shared =
            storage_of(model, "vit.encoder.layer.0.output.dense.weight");
        const Gaussian *a = storage_of(before, shared->name)->gaussian;
        const Gaussian *b = storage_of(before, FFN_OUT)->gaussian;
        char *text = diag_text(diag);
        if (form == 2) {
            assert_null(shared->gaussian);
            assert_non_null(strstr(text, "is dropped"));
        } else {
            for (int64_t i = 0; i < tensor_count(&shared->tensor); i++) {
                double variance;
                gaussian_variance_f64(shared->gaussian, i, 1, &variance);
                const double cross = covariance_of(a, i, b, i);
                const double wanted =
                    (covariance_of(a, i, a, i) + 2 * cross + covariance_of(b, i, b, i)) /
                    4;
                assert_within(variance, wanted,
                              rounding_tolerance(PRECISION_F32, FUNCTION_TERMS, wanted));
                const double mean = read_one(&shared->tensor, i);
                assert_within(read_one(&shared->gaussian->mean, i), mean,
                              rounding_tolerance(PRECISION_F32, 1, fabs(mean)));
            }
            assert_null(strstr(text, "is dropped"));
        }
        free(text);
        diag_destroy(diag);
        model_destroy(before);
        model_destroy(model);
    }
}

/* Training changes weights and leaves what is known of them. */
static void test_trained(void **state) {
    (void)state;
    Model *model = toy_vit(4);
    run_pass(model, "estimate_posterior", estimates[1]);
    const Gaussian *g = storage_of(model, FFN_IN)->gaussian;
    const double mean = read_one(&g->mean, 3);
    run_pass(model, "finetune", "{" TRAIN ", steps: 3}");
    assert_ptr_equal(storage_of(model, FFN_IN)->gaussian, g);
    assert_true(read_one(&g->mean, 3) == mean);
    assert_true(read_one(&storage_of(model, FFN_IN)->tensor, 3) != mean);
    run_pass(model, "reset_weights", "{}");
    assert_true(read_one(&g->mean, 3) == mean);
    model_destroy(model);
}

/* ---- files, other models ---- */

static void test_file(void **state) {
    (void)state;
    char folder[256], path[300];
    scratch_make(folder);
    snprintf(path, sizeof path, "%s/model.h5", folder);
    for (int form = 0; form < 3; form++) {
        Diag *diag = diag_create();
        Model *model = toy_vit(4), *read = NULL;
        char a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES], bare[HASH_TEXT_BYTES];
        run_pass(model, "estimate_posterior", estimates[form]);
        assert_ok(modelfile_write(model, path, NULL, diag), diag);
        assert_ok(modelfile_read(&read, path, ops_table(), true, diag), diag);
        model_hash(model, a);
        model_hash(read, b);
        assert_string_equal(a, b);
        assert_int_equal(graph_gaussian_count(read->graph),
                         graph_gaussian_count(model->graph));
        run_pass(read, "prune_ffn", "{keep: 8, score: magnitude}"); /* mapped data */
        graph_drop_gaussians(model->graph);
        model_hash(model, bare);
        assert_string_not_equal(a, bare);
        model_destroy(read);
        model_destroy(model);
        diag_destroy(diag);
    }
    scratch_remove(folder);
}

static void test_take(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = toy_vit(4);
    run_pass(model, "estimate_posterior", estimates[1]);
    Model *same = model_copy(model), *bare = toy_vit(4), *other = model_copy(model);
    graph_drop_gaussians(same->graph);
    graph_drop_gaussians(other->graph);
    assert_ok(model_take_gaussians(same, model, diag), diag);
    char a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
    model_hash(model, a);
    model_hash(same, b);
    assert_string_equal(a, b);
    run_pass(other, "finetune", "{" TRAIN ", steps: 1}");
    assert_int_equal(model_take_gaussians(other, model, diag), STATUS_MODEL);
    assert_int_equal(graph_gaussian_count(other->graph), 0);
    assert_int_equal(model_take_gaussians(model, bare, diag), STATUS_MODEL);
    model_destroy(other);
    model_destroy(bare);
    model_destroy(same);
    model_destroy(model);
    diag_destroy(diag);
}

/* A plan gives every storage that is trained a Gaussian without numbers. */
static void test_plan(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = toy_vit(4), *run = toy_vit(4);
    assert_ok(test_run_pass(model, "estimate_posterior", estimates[2], true, diag), diag);
    run_pass(run, "estimate_posterior", estimates[2]);
    assert_int_equal(graph_gaussian_count(model->graph),
                     graph_gaussian_count(run->graph));
    const Storage *storage = storage_of(model, FFN_IN);
    assert_true(gaussian_fits(storage->gaussian, &storage->tensor));
    assert_false(gaussian_has_data(storage->gaussian));
    assert_ok(
        test_run_pass(model, "prune_ffn", "{keep: 9, score: magnitude}", true, diag),
        diag);
    assert_true(gaussian_fits(storage->gaussian, &storage->tensor));
    model_destroy(run);
    model_destroy(model);
    diag_destroy(diag);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pruned),  cmocka_unit_test(test_shared),
        cmocka_unit_test(test_trained), cmocka_unit_test(test_file),
        cmocka_unit_test(test_take),    cmocka_unit_test(test_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
