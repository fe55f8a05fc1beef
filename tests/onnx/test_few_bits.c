/* Quantised weights in ONNX files: the bytes of their initialisers, files there and back
 * with and without notes, and what is refused. What onnxruntime computes from them is
 * compared by tests/consumers/. */
#include "onnx_file.h"
#include "onnx_scratch.h"

#include "io/onnx/onnx_form.h"
#include "ir/half.h"
#include "tests/support/few_bits.h"
#include "tests/support/onnx_notes.h"

#include <math.h>

/* A quantised tensor of rows of drawn numbers. */
static Tensor few_of(Tensor few) {
    Diag *diag = diag_create();
    assert_ok(tensor_allocate(&few, diag), diag);
    const int64_t K = quantised_width(&few);
    float row[400];
    assert_true(K <= 400);
    for (int64_t m = 0; m < quantised_rows(&few); m++) {
        for (int64_t k = 0; k < K; k++)
            row[k] = (float)(sin((double)(m * K + k) * 1.7) * (1 + (double)m) + 0.3);
        quantised_round_row(&few, m, row);
    }
    diag_destroy(diag);
    return few;
}

static void expect_same_bytes(const Tensor *a, const Tensor *b) {
    assert_true(tensor_same_form(a, b));
    assert_memory_equal(tensor_data(a), tensor_data(b), tensor_bytes(a));
}

/* The bytes of a form, which the caller releases by `made`. */
static const uint8_t *bytes_of(Buf **made, const Tensor *tensor, OnnxForm form,
                               size_t length) {
    const uint8_t *bytes;
    Diag *diag = diag_create();
    assert_ok(onnx_form_bytes(&bytes, made, tensor, form, diag), diag);
    assert_int_equal(onnx_form_length(tensor, form), length);
    diag_destroy(diag);
    return bytes;
}

/* Whatever widths and groups are, the forms hold all that the tensor is. */
static void test_forms(void **state) {
    const int64_t odd[] = {3, 37}, even[] = {5, 128}, wide[] = {2, 3, 50};
    const struct {
        Tensor shape;
        OnnxForm form;
        size_t numbers, scales, zeros;
    } CASES[] = {
        {q8_shape(2, odd), ONNX_AS_IT_IS, 3 * 37, 3 * 4, 0},
        {q8_shape(2, odd), ONNX_TRANSPOSED, 3 * 37, 3 * 4, 0},
        {q8_shape(3, wide), ONNX_TRANSPOSED, 2 * 150, 2 * 4, 0},
        {q4_shape(2, odd, 32, false), ONNX_BLOCKS, 3 * 2 * 16, 3 * 2 * 4, 0},
        {q4_shape(2, odd, 32, true), ONNX_BLOCKS, 3 * 2 * 16, 3 * 2 * 4, 3 * 1},
        {q4_shape(2, even, 64, false), ONNX_BLOCKS, 5 * 2 * 32, 5 * 2 * 4, 0},
        {q4_shape(3, wide, 32, true), ONNX_BLOCKS, 2 * 5 * 16, 2 * 5 * 4, 2 * 3},
        {q4_shape(2, odd, 128, true), ONNX_BLOCKS, 3 * 64, 3 * 4, 3 * 1},
    };
    (void)state;
    Diag *diag = diag_create();
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Tensor few = few_of(CASES[i].shape), back;
        Buf *made[3] = {NULL, NULL, NULL};
        const uint8_t *zeros = NULL;
        const uint8_t *numbers =
            bytes_of(&made[0], &few, CASES[i].form, CASES[i].numbers);
        const uint8_t *scales = bytes_of(&made[1], &few, ONNX_SCALES, CASES[i].scales);
        if (few.zeros) zeros = bytes_of(&made[2], &few, ONNX_ZEROS, CASES[i].zeros);
        assert_ok(
            onnx_form_quantised(&back, &few, numbers, CASES[i].form, scales, zeros, diag),
            diag);
        expect_same_bytes(&few, &back);
        for (int j = 0; j < 3; j++) buf_release(made[j]);
        tensor_release(&few);
        tensor_release(&back);
    }
    diag_destroy(diag);
}

/* MatMulNBits: element k of a row in half k % 2 of byte k / 2 of its block, the zero
 * point of group g in half g % 2 of byte g / 2 of its row. */
static void test_blocks(void **state) {
    const int64_t dim[] = {2, 70};
    (void)state;
    Tensor few = few_of(q4_shape(2, dim, 32, true));
    Buf *made[3];
    const uint8_t *numbers = bytes_of(&made[0], &few, ONNX_BLOCKS, 2 * 3 * 16);
    const uint8_t *scales = bytes_of(&made[1], &few, ONNX_SCALES, 2 * 3 * 4);
    const uint8_t *zeros = bytes_of(&made[2], &few, ONNX_ZEROS, 2 * 2);
    float wanted[140];
    tensor_read_f32(&few, 0, 140, wanted);
    for (int m = 0; m < 2; m++)
        for (int k = 0; k < 70; k++) {
            const int g = k / 32, byte = numbers[(m * 3 + g) * 16 + k % 32 / 2];
            const int zero = zeros[m * 2 + g / 2] >> (g % 2 ? 4 : 0) & 15;
            float scale;
            memcpy(&scale, scales + 4 * (m * 3 + g), sizeof scale);
            assert_float_equal(((byte >> (k % 2 ? 4 : 0) & 15) - zero) * scale,
                               wanted[m * 70 + k], 0);
        }
    for (int i = 0; i < 3; i++) buf_release(made[i]);
    tensor_release(&few);
}

static void expect_refused(const Tensor *like, const void *numbers, OnnxForm form,
                           const void *scales, const char *why) {
    Diag *diag = diag_create();
    Tensor out;
    assert_int_equal(onnx_form_quantised(&out, like, numbers, form, scales, NULL, diag),
                     STATUS_FORMAT);
    char *text = diag_text(diag);
    if (!strstr(text, why)) fail_msg("expected '%s', found: %s", why, text);
    free(text);
    diag_destroy(diag);
}

/* Initialisers are a file's own, and may hold anything. */
static void test_damaged(void **state) {
    const int64_t dim[] = {2, 32};
    const Tensor q8 = q8_shape(2, dim), q4 = q4_shape(2, dim, 32, false);
    int8_t numbers[64] = {1, 2, 3};
    float scales[2] = {1, 0.5F};
    (void)state;
    scales[1] = -1;
    expect_refused(&q8, numbers, ONNX_AS_IT_IS, scales, "scale");
    scales[1] = NAN;
    expect_refused(&q8, numbers, ONNX_AS_IT_IS, scales, "scale");
    expect_refused(&q4, numbers, ONNX_BLOCKS, scales, "scale");
    scales[1] = 1.0F / 3;
    expect_refused(&q4, numbers, ONNX_BLOCKS, scales, "half");
    numbers[5] = -128;
    expect_refused(&q8, numbers, ONNX_AS_IT_IS, scales, "");
}

static Model *few_bits_model(const char *name, const Tensor *linears,
                             const Tensor *tables) {
    Model *model = load_reference(name);
    round_matrices(model->graph, "linear", linears);
    if (tables) round_matrices(model->graph, "embedding", tables);
    return model;
}

static void write_model(Model *model, const OnnxOptions *options) {
    Diag *diag = diag_create();
    Written written = {0};
    expect_ok(diag, onnx_check(model, options, diag));
    expect_ok(diag, onnx_file_write(model, ONNX_WHOLE, path, false, false, options,
                                    &written, diag));
    diag_destroy(diag);
}

static int operators(const char *op) {
    ReadBack file;
    read_back(&file, path);
    check_file(file.file.model);
    const int count = count_ops(file.file.model->graph, op);
    const bool microsoft = count_ops(file.file.model->graph, "MatMulNBits") > 0;
    assert_int_equal(file.file.model->n_opset_import, microsoft ? 2 : 1);
    if (microsoft)
        assert_string_equal(file.file.model->opset_import[1]->domain, "com.microsoft");
    read_back_end(&file);
    return count;
}

static int linears_of(const Model *model) {
    int count = 0;
    for (const Node *node = model->graph->first; node; node = node->next)
        count += strcmp(node->op->name, "linear") == 0 &&
                 dtype_is_quantised(storage_tensor(node->in[1]->storage)->dtype);
    return count;
}

/* With the notes a file gives the storages that it was written from; without them the
 * real numbers that they stand for. */
static void test_there_and_back(void **state) {
    const int64_t any[] = {1, 32};
    const Tensor q8 = q8_shape(2, any), q4 = q4_shape(2, any, 32, false),
                 zeros = q4_shape(2, any, 64, true);
    const struct {
        const char *model;
        const Tensor *linears, *tables;
        const char *op;
    } CASES[] = {
        {"bert", &q8, NULL, "DequantizeLinear"},
        {"bert", &q8, &q8, "DequantizeLinear"},
        {"llama", &q8, &q8, "DequantizeLinear"},
        {"vit", &q4, NULL, "MatMulNBits"},
        {"llama", &q4, &q4, "MatMulNBits"},
        {"bert", &zeros, &zeros, "MatMulNBits"},
        {"distilbert", &zeros, &q8, "MatMulNBits"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        for (int cache = 0; cache < 2; cache++) {
            OnnxOptions options = ONNX_DEFAULTS;
            options.cache = cache;
            Model *model =
                few_bits_model(CASES[i].model, CASES[i].linears, CASES[i].tables);
            write_model(model, &options);
            const int found = operators(CASES[i].op), wanted = linears_of(model);
            if (found != wanted)
                fail_msg("%s: %d %s for %d linears", CASES[i].model, found, CASES[i].op,
                         wanted);
            Model *back = load_model(path);
            for (int j = 0; j < model->graph->storage_count; j++) {
                const Storage *storage = model->graph->storages[j];
                const Storage *other = graph_storage(back->graph, storage->name);
                assert_non_null(other);
                expect_same_bytes(&storage->tensor, &other->tensor);
            }
            model_destroy(back);
            model_destroy(model);
        }
}

static void round_activations(Graph *graph) {
    Diag *diag = diag_create();
    for (Node *node = graph->first; node; node = node->next)
        if (strcmp(node->op->name, "linear") == 0)
            assert_ok(node_set(graph, node, diag, "act=i8"), diag);
    diag_destroy(diag);
}

/* Products of whole numbers: values are rounded once for all that read them, by
 * onnxruntime's operator or row by row; either way the file gives its model back. */
static void test_activations(void **state) {
    const int64_t any[] = {1, 32};
    const Tensor q8 = q8_shape(2, any), q4 = q4_shape(2, any, 32, false);
    static const char *const NAMES[] = {"bert", "llama"};
    (void)state;
    for (int i = 0; i < 16; i++) {
        const bool q8s = i % 8 < 4, with_sign = i >= 8;
        OnnxOptions options = ONNX_DEFAULTS;
        options.activations =
            i / 2 % 2 ? ONNX_ACTIVATIONS_ROWS : ONNX_ACTIVATIONS_DYNAMIC;
        options.bytes = with_sign ? ONNX_BYTES_SIGNED : ONNX_BYTES_UNSIGNED;
        Model *model = few_bits_model(NAMES[i % 2], q8s ? &q8 : &q4, q8s ? &q8 : NULL);
        round_activations(model->graph);
        write_model(model, &options);
        const int linears = linears_of(model);
        const int rounded = operators(i / 2 % 2 ? "Round" : "DynamicQuantizeLinear");
        assert_int_equal(operators(q8s ? "MatMulInteger" : "MatMulNBits"), linears);
        const int shifted = operators("Cast") - (q8s ? linears : 0);
        if (q8s && !with_sign) assert_true(shifted >= linears); /* to i32 and back */
        if (q8s && with_sign && !options.activations) assert_true(shifted < linears);
        if (rounded < linears / 2 || rounded > linears * 3 / 4)
            fail_msg("%d values are rounded for %d products", rounded, linears);
        Model *back = load_model(path);
        char one[HASH_TEXT_BYTES], two[HASH_TEXT_BYTES];
        assert_string_equal((model_hash(model, one), one), (model_hash(back, two), two));
        model_destroy(back);
        model_destroy(model);
    }
}

/* Whether a linear reads a storage as [in, out], which is what MatMulNBits becomes. */
static bool is_transposed(const Graph *graph, const Storage *storage) {
    for (const Node *node = graph->first; node; node = node->next)
        if (strcmp(node->op->name, "linear") == 0 && node->in[1]->storage == storage)
            return node_flag(node, "transposed");
    return false;
}

/* Every weight of a model that was read from a graph alone is that of the model, as real
 * numbers. */
static void expect_real(const Model *model, const Model *back) {
    for (int i = 0; i < back->graph->storage_count; i++) {
        const Storage *storage = back->graph->storages[i];
        const Storage *own = graph_storage(model->graph, storage->name);
        if (!own) fail_msg("a weight is called '%s'", storage->name);
        const bool turned = is_transposed(back->graph, storage);
        const int64_t rows = own->tensor.dim[0];
        assert_int_equal(tensor_count(&storage->tensor), tensor_count(&own->tensor));
        assert_int_equal(storage->tensor.dim[turned], rows);
        const int64_t count = tensor_count(&own->tensor);
        float *a = calloc((size_t)count, sizeof *a),
              *b = calloc((size_t)count, sizeof *b);
        tensor_read_f32(&storage->tensor, 0, count, a);
        tensor_read_f32(&own->tensor, 0, count, b);
        for (int64_t j = 0; j < count; j++) {
            const int64_t at = turned ? j % rows * (count / rows) + j / rows : j;
            if (a[j] != b[at])
                fail_msg("%s: %.9g at %lld, expected %.9g", storage->name, (double)a[j],
                         (long long)j, (double)b[at]);
        }
        free(a);
        free(b);
    }
}

static void test_without_notes(void **state) {
    const int64_t any[] = {1, 32};
    const Tensor q8 = q8_shape(2, any), q4 = q4_shape(2, any, 32, true);
    (void)state;
    for (int i = 0; i < 6; i++) {
        Model *model = few_bits_model(i % 3 == 1 ? "llama" : "bert",
                                      i % 3 < 2 ? &q8 : &q4, i % 3 < 2 ? &q8 : NULL);
        OnnxOptions options = ONNX_DEFAULTS;
        if (i >= 3) round_activations(model->graph);
        options.bytes = i == 4 ? ONNX_BYTES_SIGNED : ONNX_BYTES_UNSIGNED;
        write_model(model, &options);
        forget_notes(path);
        Model *back = load_model(path);
        expect_real(model, back);
        model_destroy(back);
        model_destroy(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test_setup_teardown(test_there_and_back, enter, leave),
        cmocka_unit_test_setup_teardown(test_activations, enter, leave),
        cmocka_unit_test_setup_teardown(test_without_notes, enter, leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
