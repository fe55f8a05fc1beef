/* Quantised weights in GGUF files: their numbers stay, scales are f16; models whose
 * linears were turned to have outputs as rows; what does not fit whole blocks. */
#include "exec/ops.h"
#include "io/formats/hf.h"
#include "io/gguf/few_bits.h"
#include "io/gguf/gguf_model.h"
#include "io/gguf/outline.h"
#include "ir/rewrite.h"
#include "tests/io/io_test.h"
#include "tests/support/few_bits.h"

#include <math.h>

extern const ModelFormat model_format_gguf;

enum { WIDTH_MAX = 256 };

static Tensor few_of(Tensor few, double size) {
    Diag *diag = diag_create();
    float row[WIDTH_MAX];
    assert_ok(tensor_allocate(&few, diag), diag);
    const int64_t width = quantised_width(&few);
    for (int64_t m = 0; m < quantised_rows(&few); m++) {
        for (int64_t k = 0; k < width; k++)
            row[k] = (float)(size * (sin((double)(m * width + k) * 1.3) + 0.4));
        quantised_round_row(&few, m, row);
    }
    diag_destroy(diag);
    return few;
}

/* A scale is off by half of an f16's last bit at most, and so is an offset, or the number
 * where rows are not whole blocks. */
static double bound(const Tensor *few, int64_t row, int64_t k, double value) {
    const Grid grid = quantised_read_grid(few, row, k / few->group);
    const double part = ldexp(1, -11);
    if (few->dtype == DTYPE_Q8 || !few_bits_type(few)) return part * fabs(value);
    return few->zeros ? part * fabs((double)grid.scale * grid.zero) : 0;
}

static void rows_keep_their_numbers(void **state) {
    const int64_t dim[] = {5, 96}, wide[] = {3, 2, 96};
    const Tensor shapes[] = {q8_shape(2, dim),
                             q8_shape(3, wide),
                             q4_shape(2, dim, 32, false),
                             q4_shape(2, dim, 64, false),
                             q4_shape(3, wide, 128, true),
                             q4_shape(2, dim, 32, true)};
    static const char *const NAMES[] = {"q8_0", "q8_0", "q4_0", "q4_0", "q4_1", "q4_1"};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        Tensor few = few_of(shapes[i], 3);
        const int64_t width = quantised_width(&few);
        const BlockType *type = few_bits_type(&few);
        unsigned char blocks[WIDTH_MAX * 2];
        float found[WIDTH_MAX], wanted[WIDTH_MAX];
        assert_non_null(type);
        assert_string_equal(type->name, NAMES[i]);
        assert_true(few_bits_fit(&few));
        for (int64_t m = 0; m < quantised_rows(&few); m++) {
            few_bits_row(&few, m, blocks);
            blocks_decode(type, blocks, found, width);
            tensor_read_f32(&few, m * width, width, wanted);
            for (int64_t k = 0; k < width; k++)
                if (fabs((double)found[k] - (double)wanted[k]) >
                    bound(&few, m, k, (double)wanted[k]) * (1 + 1e-6))
                    fail_msg("%s: %.9g at [%lld, %lld], expected %.9g", NAMES[i],
                             (double)found[k], (long long)m, (long long)k,
                             (double)wanted[k]);
        }
        tensor_release(&few);
    }
}

static void some_do_not_fit(void **state) {
    const int64_t narrow[] = {4, 40}, dim[] = {4, 64};
    const Tensor shape = q8_shape(2, narrow), floats = tensor_shape(DTYPE_F32, 2, dim);
    (void)state;
    assert_null(few_bits_type(&shape));
    assert_null(few_bits_type(&floats));
    Tensor large = few_of(q8_shape(2, dim), 1e8);
    assert_false(few_bits_fit(&large));
    tensor_release(&large);

    /* -15 d is no half, though d is; without zero points there is no such number */
    Tensor lowest = few_of(q4_shape(2, dim, 32, true), 1);
    Tensor halves = few_of(q4_shape(2, dim, 32, false), 1);
    const int8_t q[32] = {0};
    assert_true(few_bits_fit(&lowest));
    quantised_write(&lowest, 3, 1, &(Grid){.scale = 8192, .zero = 15, .most = 15}, q);
    quantised_write(&halves, 3, 1, &(Grid){.scale = 8192, .zero = 8, .most = 15}, q);
    assert_false(few_bits_fit(&lowest));
    assert_true(few_bits_fit(&halves));
    tensor_release(&lowest);
    tensor_release(&halves);
}

/* Makes linears that read [in, out] read [out, in]. */
static void turn_linears(Graph *graph, Diag *diag) {
    for (Node *node = graph->first; node; node = node->next) {
        if (strcmp(node->op->name, "linear") != 0 || !node_flag(node, "transposed"))
            continue;
        const Tensor *from = storage_tensor(node->in[1]->storage);
        const int64_t K = from->dim[0], M = from->dim[1], dim[] = {M, K};
        Tensor turned;
        void *data;
        assert_ok(
            storage_blank(&turned, &data, node->in[1]->storage, DTYPE_F32, 2, dim, diag),
            diag);
        for (int64_t m = 0; m < M; m++)
            for (int64_t k = 0; k < K; k++)
                tensor_read_f32(from, k * M + m, 1, (float *)data + m * K + k);
        storage_set_values(node->in[1]->storage, turned);
        memcpy(node->in[1]->type.dim, dim, sizeof dim);
        assert_ok(node_set(graph, node, diag, "transposed=false"), diag);
    }
    assert_ok(graph_infer(graph, diag), diag);
}

/* What a file gives for a weight that is [out, in] in the model, and perhaps [in, out] in
 * the file's. */
static void compare_weight(const Storage *back, const Storage *own) {
    const Tensor *found = &back->tensor, *wanted = &own->tensor;
    const int64_t width = wanted->rank == 2 ? wanted->dim[1] : tensor_count(wanted);
    const bool turned = strstr(back->name, "c_attn") || strstr(back->name, "c_proj") ||
                        strstr(back->name, "c_fc") || strstr(back->name, ".attn.");
    for (int64_t i = 0; i < tensor_count(wanted); i++) {
        const int64_t m = i / width, k = i % width;
        const bool matrix = turned && wanted->rank == 2;
        float a, b;
        tensor_read_f32(wanted, i, 1, &a);
        tensor_read_f32(found, matrix ? k * wanted->dim[0] + m : i, 1, &b);
        const double limit =
            dtype_is_quantised(wanted->dtype) ? bound(wanted, m, k, (double)a) : 0;
        if (fabs((double)a - (double)b) > limit * (1 + 1e-6))
            fail_msg("%s: %.9g at %lld, expected %.9g", back->name, (double)b,
                     (long long)i, (double)a);
    }
}

static void round_trip(const char *name, const char *file, const Tensor *linears,
                       const Tensor *tables) {
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    const WriteOptions options = {.dtype = "keep"};
    Written written = {0};
    Model *model, *back;
    const Storage **weights;
    char from[100];
    snprintf(from, sizeof from, "tests/data/reference/%s", name);
    expect_ok(diag, hf_read(&model, from, ops_table(), diag));
    turn_linears(model->graph, diag);
    round_matrices(model->graph, "linear", linears);
    round_matrices(model->graph, "embedding", tables);
    expect_ok(diag, model_format_gguf.check(model, &options, diag));
    diag_clear(diag);
    expect_ok(diag, model_format_gguf.write(model, file, &options, &written, diag));
    /* of rows that are not whole blocks */
    const bool uneven = strcmp(name, "llama") == 0;
    char *text = diag_text(diag);
    if (!strstr(text, "3 matrices are f16 in place of few bits") == uneven)
        fail_msg("%s: %s", name, text);
    free(text);
    expect_ok(diag, gguf_read_model(&back, file, NULL, ops_table(), true, diag));
    expect_ok(diag, outline_match(&weights, arena, back->graph, model->graph, diag));
    for (int i = 0; i < back->graph->storage_count; i++)
        compare_weight(back->graph->storages[i], weights[i]);
    model_destroy(back);
    model_destroy(model);
    arena_destroy(arena);
    diag_destroy(diag);
}

static void models_there_and_back(void **state) {
    const int64_t any[] = {1, 32};
    const Tensor q8 = q8_shape(2, any), q4 = q4_shape(2, any, 32, false),
                 zeros = q4_shape(2, any, 64, true);
    static const char *const NAMES[] = {"llama", "gpt2", "bert"};
    char folder[256], file[300];
    (void)state;
    scratch_make(folder);
    snprintf(file, sizeof file, "%s/a.gguf", folder);
    for (int i = 0; i < 3; i++) {
        round_trip(NAMES[i], file, &q8, &q8);
        round_trip(NAMES[i], file, &q4, &q8);
        round_trip(NAMES[i], file, &zeros, &q4);
    }
    scratch_remove(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_keep_their_numbers),
        cmocka_unit_test(some_do_not_fit),
        cmocka_unit_test(models_there_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
