/* Factoring projections: ranks by energy and by budgets on spectra that are known in
 * closed form, and what becomes of a factored model in training and in files. */
#include "exec/linalg/blas.h"
#include "exec/linalg/gemm.h"
#include "exec/ops.h"
#include "io/formats/modelfile.h"
#include "io/onnx/onnx_read.h"
#include "io/onnx/write/onnx_file.h"
#include "passes/oneshot/calibration.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 16, VALUES = 64 };

static const char *query(int layer) {
    static char name[4][64];
    snprintf(name[layer], sizeof name[layer],
             "vit.encoder.layer.%d.attention.attention.query.weight", layer);
    return name[layer];
}

static Storage *storage(const Model *model, const char *name) {
    Storage *found = graph_storage(model->graph, name);
    if (!found) fail_msg("no storage %s", name);
    return found;
}

/* Entry i of basis vector k of the orthonormal cosines. */
static double cosine(int64_t k, int64_t i) {
    const double scale = sqrt((k == 0 ? 1.0 : 2.0) / WIDTH);
    return scale * cos(M_PI * ((double)i + 0.5) * (double)k / WIDTH);
}

/* Gives a query projection the singular values scale * ratio^k. */
static void set_spectrum(Model *model, int layer, double scale, double ratio) {
    Diag *diag = diag_create();
    void *data = NULL;
    assert_ok(tensor_writable(&storage(model, query(layer))->tensor, &data, diag), diag);
    for (int64_t m = 0; m < WIDTH; m++)
        for (int64_t k = 0; k < WIDTH; k++) {
            double sum = 0;
            for (int64_t i = 0; i < WIDTH; i++)
                sum += scale * pow(ratio, (double)i) * cosine(i, m) * cosine(i, k);
            ((float *)data)[m * WIDTH + k] = (float)sum;
        }
    diag_destroy(diag);
}

static int64_t rank_of(const Model *model, int layer) {
    const Tensor *tensor = &storage(model, query(layer))->tensor;
    return tensor->dim[1];
}

/* ---- ranks ---- */

/* Squares fall by 4 from one to the next: what is kept by r of them is 1 - 4^-r. */
static void test_energy(void **state) {
    (void)state;
    for (int rank = 1; rank < 6; rank++) {
        Model *model = toy_vit(1);
        char options[96];
        set_spectrum(model, 0, 3, 0.5);
        snprintf(options, sizeof options, "{energy: %.17g, roles: [q], layers: [0]}",
                 1 - pow(0.25, rank) - 1e-5);
        run_pass(model, "factor_linear", options);
        assert_int_equal(rank_of(model, 0), rank);
        const Tree *row =
            tree_get(last_record(model), "linears")->first; /* the error is the tail */
        assert_within(number(row, "relative_error"), pow(0.5, rank), 1e-5);
        model_destroy(model);
    }
}

/* A matrix whose energy needs more than pays stays as it is. */
static void test_energy_left(void **state) {
    (void)state;
    Model *model = toy_vit(1);
    set_spectrum(model, 0, 1, 1); /* orthogonal */
    set_spectrum(model, 1, 1, 0.5);
    run_pass(model, "factor_linear", "{energy: 0.9, roles: [q], layers: [0, 1]}");
    assert_int_equal(rank_of(model, 0), WIDTH);
    assert_int_equal(rank_of(model, 1), 2);
    assert_true(number(last_record(model), "factored") == 1);
    model_destroy(model);
}

/* Three spectra of ratios 1/2 under one budget: scales 1, 4 and 16 have the same squares
 * two and four places apart, so ranks r, r + 2 and r + 4 come in together. 3 * 256
 * parameters, 32 for a rank: 0.375 of them are 9 ranks. */
static void test_share(void **state) {
    (void)state;
    Model *model = toy_vit(1);
    set_spectrum(model, 0, 1, 0.5);
    set_spectrum(model, 1, 16, 0.5);
    set_spectrum(model, 2, 4, 0.5);
    run_pass(model, "factor_linear", "{share: 0.375, roles: [q], layers: [0, 1, 2]}");
    assert_int_equal(rank_of(model, 0), 1);
    assert_int_equal(rank_of(model, 1), 5);
    assert_int_equal(rank_of(model, 2), 3);
    assert_true(number(last_record(model), "parameters_after") == 9 * 32);
    model_destroy(model);
}

/* With room for more, the largest one is whole again before the others are: its last
 * rank that pays is 7, and all nine values behind it come in for what one costs. */
static void test_share_whole(void **state) {
    (void)state;
    Model *model = toy_vit(1);
    set_spectrum(model, 0, 1, 0.5);
    set_spectrum(model, 1, 1e4, 0.99);
    run_pass(model, "factor_linear", "{share: 0.625, roles: [q], layers: [0, 1]}");
    assert_int_equal(rank_of(model, 0), 2); /* 320 - 256 = 2 * 32 */
    assert_int_equal(rank_of(model, 1), WIDTH);
    model_destroy(model);
}

static void test_budget(void **state) {
    (void)state;
    static const char *const OPTIONS[] = {"{parameters: 0.7}", "{flops: 0.7}",
                                          "{bytes: 0.7}", "{flops: 0.7, stack: main}"};
    for (int i = 0; i < 4; i++) {
        Model *model = toy_vit(1);
        Measure before, after;
        Diag *diag = diag_create();
        assert_ok(model_measure(&before, model, diag), diag);
        run_pass(model, "factor_linear", OPTIONS[i]);
        assert_ok(model_measure(&after, model, diag), diag);
        static const MeasureKind KINDS[] = {MEASURE_PARAMETERS, MEASURE_FLOPS,
                                            MEASURE_BYTES, MEASURE_FLOPS};
        const double share =
            measure_get(&after, KINDS[i]) / measure_get(&before, KINDS[i]);
        assert_true(share <= 0.7 && share > 0.68);
        diag_destroy(diag);
        model_destroy(model);
    }
}

/* Factors of narrow weights are as narrow. With a relative rounding of u, W is off by u
 * |W|, and each factor adds at most u sum of s_i, here below 1.74 |W|. */
static void test_narrow(void **state) {
    (void)state;
    static const struct {
        const char *name;
        DType dtype;
        double u;
    } TYPES[] = {{"{dtype: f16}", DTYPE_F16, 0x1p-11},
                 {"{dtype: bf16}", DTYPE_BF16, 0x1p-8}};
    for (int i = 0; i < 2; i++) {
        Model *model = toy_vit(1);
        Measure before, after;
        Diag *diag = diag_create();
        set_spectrum(model, 0, 3, 0.5);
        run_pass(model, "cast", TYPES[i].name);
        run_pass(model, "factor_linear", "{rank: 4, roles: [q], layers: [0]}");
        assert_int_equal(storage(model, query(0))->tensor.dtype, TYPES[i].dtype);
        const Node *first = graph_find(model->graph, "encoder", 0, ROLE_FACTOR);
        assert_int_equal(first->in[1]->storage->tensor.dtype, TYPES[i].dtype);
        const Tree *row = tree_get(last_record(model), "linears")->first;
        assert_within(number(row, "relative_error"), 0.0625, 4.5 * TYPES[i].u);
        assert_ok(model_measure(&before, model, diag), diag);
        run_pass(model, "factor_linear", "{bytes: 0.7, layers: [1, 2, 3]}");
        assert_ok(model_measure(&after, model, diag), diag);
        const double share =
            measure_get(&after, MEASURE_BYTES) / measure_get(&before, MEASURE_BYTES);
        assert_true(share <= 0.7 && share > 0.68);
        diag_destroy(diag);
        model_destroy(model);
    }
}

/* ---- what follows ---- */

static void run_logits(Model *model, double out[VALUES]) {
    assert_true(configured_run(model, "logits", 0, out, VALUES) > 0);
}

/* At full rank of matrices of low rank nothing changes, and the pass says so. */
static void test_exact(void **state) {
    (void)state;
    Model *model = toy_vit(1);
    double was[VALUES] = {0}, is[VALUES] = {0};
    for (int layer = 0; layer < 4; layer++) set_spectrum(model, layer, 2, 0.001);
    run_logits(model, was);
    run_pass(model, "factor_linear", "{rank: 5, roles: [q]}");
    run_logits(model, is);
    rounding_compare("logits", is, was, VALUES, PRECISION_F32,
                     configured_terms(model, "logits"), 1);
    model_destroy(model);
}

/* Training moves both factors, and the loss falls. */
static void test_training(void **state) {
    (void)state;
    Model *model = toy_vit(1);
    run_pass(model, "factor_linear", "{rank: 3}");
    char name[96], was[HASH_TEXT_BYTES], is[HASH_TEXT_BYTES];
    snprintf(name, sizeof name, "%s",
             "vit.encoder.layer.2.attention.attention.query_factor.weight");
    tensor_hash(&storage(model, name)->tensor, was);
    run_pass(model, "finetune", "{data: toy, epochs: 12, batch_size: 12, lr: 3.0e-3}");
    tensor_hash(&storage(model, name)->tensor, is);
    assert_string_not_equal(was, is);
    run_pass(model, "evaluate", "{data: toy}");
    assert_true(number(last_record(model), "accuracy") > 80);
    model_destroy(model);
}

/* The model file and ONNX hold the two matrices, and give the same numbers back. */
static void test_files(void **state) {
    (void)state;
    Model *model = toy_vit(1), *back = NULL;
    Diag *diag = diag_create();
    char folder[] = "/tmp/compress-factor-XXXXXX", path[64];
    Written written = {0};
    assert_non_null(mkdtemp(folder));
    run_pass(model, "factor_linear", "{rank: 3}");
    double was[VALUES] = {0}, is[VALUES] = {0};
    run_logits(model, was);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/model.%s", folder, i ? "onnx" : "h5");
        if (i) {
            assert_ok(onnx_file_write(model, ONNX_WHOLE, path, false, false,
                                      &ONNX_DEFAULTS, &written, diag),
                      diag);
            assert_ok(onnx_read(&back, path, ops_table(), diag), diag);
        } else {
            assert_ok(modelfile_write(model, path, NULL, diag), diag);
            assert_ok(modelfile_read(&back, path, ops_table(), true, diag), diag);
        }
        assert_non_null(graph_find(back->graph, "encoder", 3, ROLE_FACTOR));
        assert_int_equal(graph_parameter_count(back->graph),
                         graph_parameter_count(model->graph));
        run_logits(back, is);
        assert_memory_equal(was, is, sizeof was);
        model_destroy(back);
        unlink(path);
    }
    rmdir(folder);
    diag_destroy(diag);
    model_destroy(model);
}

/* ---- inputs ---- */

/* The Gram matrix of what a layer's queries read, over all toy data. */
static Gram query_gram(Model *model, int layer) {
    Diag *diag = diag_create();
    RecipeInputs inputs = {.data = toy_batches(), .model = model};
    const CalibrationOptions options = {.data = "toy", .samples = 1000};
    PassContext ctx = {.ops = model->graph->ops,
                       .arena = model->arena,
                       .threads = 1,
                       .model = model,
                       .resources = inputs_resources(&inputs)};
    Node *q = graph_find(model->graph, "encoder", layer, ROLE_Q);
    Node *x = q->in[0]->role == ROLE_FACTOR ? q->in[0]->in[0] : q->in[0];
    Calibration *calibration = NULL;
    Gram gram;
    assert_ok(calibration_open(&calibration, &ctx, model->graph, &x, 1, &options, diag),
              diag);
    assert_ok(calibration_gram(calibration, &x, 1, &gram, diag), diag);
    gram_damp(&gram, 1e-6); /* as below: what a norm gives adds up to 0 */
    calibration_close(calibration);
    batches_destroy(inputs.data);
    diag_destroy(diag);
    return gram;
}

/* tr(D H D^T) of D[WIDTH, WIDTH] by plain loops. */
static double seen(const double *d, const Gram *gram) {
    double sum = 0;
    for (int64_t m = 0; m < WIDTH; m++)
        for (int64_t i = 0; i < WIDTH; i++)
            for (int64_t j = 0; j < WIDTH; j++)
                sum += d[m * WIDTH + i] * gram->sum[i * WIDTH + j] * d[m * WIDTH + j];
    return sum;
}

static double *read_query(const Model *model, int layer) {
    double *w = memory_alloc(WIDTH * WIDTH, sizeof *w);
    tensor_read_f64(&storage(model, query(layer))->tensor, 0, WIDTH * WIDTH, w);
    return w;
}

/* The error of a factored query, as inputs with this Gram matrix see it. */
static double error_of(const Model *model, int layer, const double *w, const Gram *gram) {
    char name[96];
    double d[WIDTH * WIDTH], b, a;
    const int64_t rank = rank_of(model, layer);
    snprintf(name, sizeof name,
             "vit.encoder.layer.%d.attention.attention.query_factor.weight", layer);
    for (int64_t m = 0; m < WIDTH; m++)
        for (int64_t k = 0; k < WIDTH; k++) {
            d[m * WIDTH + k] = w[m * WIDTH + k];
            for (int64_t r = 0; r < rank; r++) {
                tensor_read_f64(&storage(model, query(layer))->tensor, m * rank + r, 1,
                                &b);
                tensor_read_f64(&storage(model, name)->tensor, r * WIDTH + k, 1, &a);
                d[m * WIDTH + k] -= b * a;
            }
        }
    return sqrt(seen(d, gram) / seen(w, gram));
}

/* The least error of a rank: what is left of the squared singular values of W L. */
static double least_error(const double *w, const Gram *gram, int64_t rank) {
    double l[WIDTH * WIDTH], product[WIDTH * WIDTH], sigma[WIDTH], all = 0, rest = 0;
    memcpy(l, gram->sum, sizeof l);
    assert_int_equal(cholesky_f64(WIDTH, l), 0);
    for (int64_t i = 0; i < WIDTH; i++)
        for (int64_t j = i + 1; j < WIDTH; j++) l[i * WIDTH + j] = 0;
    gemm_f64(false, false, WIDTH, WIDTH, WIDTH, 1, w, WIDTH, l, WIDTH, 0, product, WIDTH);
    assert_int_equal(singular_values_f64(WIDTH, WIDTH, product, sigma), 0);
    for (int64_t i = WIDTH - 1; i >= 0; i--) {
        all += sigma[i] * sigma[i];
        if (i >= rank) rest += sigma[i] * sigma[i];
    }
    return sqrt(rest / all);
}

/* The error that is recorded is that of the outputs on the data, and the least there is;
 * of a layer behind others, on what those give once they are factored. */
static void test_calibrated(void **state) {
    (void)state;
    static const char *const STEPS[] = {
        "{rank: 3, data: toy, samples: 1000, damp: 1.0e-6, roles: [q], layers: [0]}",
        "{rank: 3, data: toy, samples: 1000, damp: 1.0e-6, roles: [q], layers: [0, 1]}",
        "{rank: 3, roles: [q], layers: [1]}"};
    Model *whole = toy_vit(1), *first = toy_vit(1), *both = toy_vit(1), *blind = NULL;
    run_pass(first, "factor_linear", STEPS[0]);
    run_pass(both, "factor_linear", STEPS[1]);
    double *w[2] = {read_query(whole, 0), read_query(whole, 1)};
    Gram gram[2] = {query_gram(whole, 0), query_gram(first, 1)};
    const Tree *row = tree_get(last_record(both), "linears")->first;
    for (int layer = 0; layer < 2; layer++) {
        const double least = least_error(w[layer], &gram[layer], 3);
        assert_int_equal(rank_of(both, layer), 3);
        assert_within(number(row, "relative_error"), least, 1e-5);
        assert_within(error_of(both, layer, w[layer], &gram[layer]), least, 1e-5);
        row = row->next;
    }
    blind = model_copy(first);
    run_pass(blind, "factor_linear", STEPS[2]);
    assert_true(error_of(blind, 1, w[1], &gram[1]) >
                1.05 * error_of(both, 1, w[1], &gram[1]));
    for (int i = 0; i < 2; i++) gram_destroy(&gram[i]), free(w[i]);
    model_destroy(whole);
    model_destroy(first);
    model_destroy(both);
    model_destroy(blind);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_energy), cmocka_unit_test(test_energy_left),
        cmocka_unit_test(test_share),  cmocka_unit_test(test_share_whole),
        cmocka_unit_test(test_budget), cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_exact),  cmocka_unit_test(test_training),
        cmocka_unit_test(test_files),  cmocka_unit_test(test_calibrated),
    };
    return cmocka_run_group_tests_name("factoring projections", tests, NULL, NULL);
}
