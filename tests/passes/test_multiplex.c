/* What weight multiplexing must do to the numbers: identical layers stay exactly what
 * they computed; merged weights are what they are said to be. */
#include "exec/run/run.h"
#include "ir/random.h"
#include "tests/support/check.h"
#include "tests/support/passes.h"
#include "tests/support/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Copies layer 0's weights into the other layers, norms excepted unless `norms`. */
static void make_layers_identical(Graph *graph) {
    static const char prefix[] = "vit.encoder.layer.0.";
    for (int i = 0; i < graph->storage_count; i++) {
        const Storage *from = graph->storages[i];
        if (strncmp(from->name, prefix, sizeof prefix - 1) != 0) continue;
        if (strstr(from->name, "layernorm")) continue;
        for (int l = 1; l < 4; l++) {
            char name[256];
            snprintf(name, sizeof name, "vit.encoder.layer.%d.%s", l,
                     from->name + sizeof prefix - 1);
            Storage *to = graph_storage(graph, name);
            assert_non_null(to);
            tensor_release(&to->tensor);
            to->tensor = tensor_retain(&from->tensor);
        }
    }
}

/* Logits of the first 6 toy samples in double. */
static void logits_of(Model *model, double out[18]) {
    Node *logits = graph_output(model->graph, "logits");
    Batches *toy = toy_batches();
    Diag *diag = diag_create();
    float pixels[6 * 64];
    int32_t labels[6];
    const int64_t index[6] = {0, 1, 2, 3, 4, 5};
    assert_ok(toy->fetch(toy, &(Fetch){index, 6, 0, 0}, (void *[]){pixels, labels}, diag),
              diag);
    Runner r;
    runner_open(&r, model->graph, 6, PRECISION_F64, NULL, &logits, 1);
    double *input = workspace_input(r.workspace, "pixel_values");
    for (int i = 0; i < 6 * 64; i++) input[i] = (double)pixels[i];
    runner_run(&r);
    memcpy(out, workspace_value(r.workspace, logits), 18 * sizeof(double));
    runner_close(&r);
    batches_destroy(toy);
    diag_destroy(diag);
}

static void expect_logits(Model *model, const double *got, const double *want,
                          Precision precision) {
    const int64_t sizes[DIM_SYMBOLS] = {6};
    const double terms =
        rounding_terms(model->graph, graph_output(model->graph, "logits"), sizes);
    rounding_compare("logits", got, want, 18, precision, terms, 0);
}

static void check_identity(const char *options) {
    Model *model = toy_vit(3);
    Diag *diag = diag_create();
    double before[18], after[18];
    make_layers_identical(model->graph);
    logits_of(model, before);
    const int64_t count = graph_parameter_count(model->graph);
    assert_ok(test_run_pass(model, "weight_multiplex", options, false, diag), diag);
    logits_of(model, after);
    expect_logits(model, after, before, PRECISION_F64);
    assert_true(graph_parameter_count(model->graph) < count);
    model_destroy(model);
    diag_destroy(diag);
}

static void test_identical_layers(void **state) {
    (void)state;
    check_identity("{group: 2, init: first}");
    check_identity("{group: 4, init: mean}");
    check_identity("{group: 2, init: lsq}");
    check_identity("{groups: [1, 3], init: mean, mixing: before}");
    check_identity("{group: 4, init: mean, mlp_transform: conv, kernel: 3}");
}

static void read_weight(const Graph *graph, const char *name, double *out,
                        int64_t count) {
    const Storage *storage = graph_storage(graph, name);
    assert_non_null(storage);
    assert_int_equal(tensor_count(&storage->tensor), count);
    tensor_read_f64(&storage->tensor, 0, count, out);
}

#define QUERY(l) "vit.encoder.layer." l ".attention.attention.query.weight"
#define NORM(l)  "vit.encoder.layer." l ".layernorm_before.weight"

static void test_mean(void **state) {
    (void)state;
    enum { COUNT = 16 * 16 };
    Model *model = toy_vit(5);
    Diag *diag = diag_create();
    double a[COUNT], b[COUNT], shared[COUNT];
    read_weight(model->graph, QUERY("0"), a, COUNT);
    read_weight(model->graph, QUERY("1"), b, COUNT);
    assert_ok(test_run_pass(model, "weight_multiplex", "{group: 2}", false, diag), diag);
    read_weight(model->graph, QUERY("0"), shared, COUNT);
    for (int i = 0; i < COUNT; i++)
        assert_true(shared[i] == (double)(float)((a[i] + b[i]) / 2));
    assert_null(graph_storage(model->graph, QUERY("1")));
    model_destroy(model);
    diag_destroy(diag);
}

/* Layer 1 = layer 0 with scaled input columns is exactly representable by lsq: the
 * scales go into the norms and the function stays the same. */
static void scale_layer(Graph *graph, int layer, const double *scale) {
    static const char *const parts[] = {
        "attention.attention.query.weight", "attention.attention.key.weight",
        "attention.attention.value.weight", "intermediate.dense.weight"};
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
        char name[256];
        snprintf(name, sizeof name, "vit.encoder.layer.%d.%s", layer, parts[p]);
        Storage *storage = graph_storage(graph, name);
        void *data = NULL;
        Diag *diag = diag_create();
        assert_ok(tensor_writable(&storage->tensor, &data, diag), diag);
        diag_destroy(diag);
        for (int64_t i = 0; i < tensor_count(&storage->tensor); i++)
            ((float *)data)[i] *= (float)scale[i % 16];
    }
}

static void test_least_squares(void **state) {
    (void)state;
    Model *model = toy_vit(9);
    Diag *diag = diag_create();
    double scale[16], before[18], after[18];
    make_layers_identical(model->graph);
    for (int i = 0; i < 16; i++) scale[i] = 0.5 + 1.5 * random_uniform(1, (uint64_t)i);
    scale_layer(model->graph, 1, scale);
    logits_of(model, before);
    assert_ok(test_run_pass(model, "weight_multiplex", "{groups: [2, 2], init: lsq}",
                            false, diag),
              diag);
    logits_of(model, after);
    expect_logits(model, after, before, PRECISION_F32); /* of scales in float */
    double first[16], second[16];
    read_weight(model->graph, NORM("0"), first, 16);
    read_weight(model->graph, NORM("1"), second, 16);
    /* weights that are rounded to float, of the columns that are solved for, and the
     * quotient of the norms' */
    for (int i = 0; i < 16; i++)
        assert_within(second[i] / first[i], scale[i],
                      rounding_tolerance(PRECISION_F32, 16 + FUNCTION_TERMS, scale[i]));
    model_destroy(model);
    diag_destroy(diag);
}

/* Columns of opposite sign cancel out in the mean; lsq finds the scales 1 and -1. */
static void test_opposite_columns(void **state) {
    (void)state;
    Model *model = toy_vit(4);
    Diag *diag = diag_create();
    double scale[16], before[18], after[18];
    make_layers_identical(model->graph);
    for (int i = 0; i < 16; i++) scale[i] = i % 2 ? -1 : 1;
    scale_layer(model->graph, 1, scale);
    logits_of(model, before);
    assert_ok(
        test_run_pass(model, "weight_multiplex", "{group: 2, init: lsq}", false, diag),
        diag);
    logits_of(model, after);
    expect_logits(model, after, before, PRECISION_F32); /* of scales in float */
    model_destroy(model);
    diag_destroy(diag);
}

/* What the plan says about shapes is what the run gives, for every option. */
static void test_lossy_options_run(void **state) {
    (void)state;
    static const char *const options[] = {
        "{group: 2, pooling: mean}", "{group: 2, mlp_transform: norm_conv}",
        "{group: 4, mixing_init: trunc_normal, mixing_std: 0.5}"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        Model *model = toy_vit(2);
        Diag *diag = diag_create();
        double logits[18];
        assert_ok(test_run_pass(model, "weight_multiplex", options[i], false, diag),
                  diag);
        logits_of(model, logits);
        for (int k = 0; k < 18; k++) assert_true(isfinite(logits[k]));
        model_destroy(model);
        diag_destroy(diag);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_identical_layers),  cmocka_unit_test(test_mean),
        cmocka_unit_test(test_least_squares),     cmocka_unit_test(test_opposite_columns),
        cmocka_unit_test(test_lossy_options_run),
    };
    return cmocka_run_group_tests_name("weight multiplexing", tests, NULL, NULL);
}
