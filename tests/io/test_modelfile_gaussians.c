/* Gaussians in the model file: what is refused when index, data sets and weights do not
 * belong together. (Round trips, damaged bytes: test_modelfile.c.) */
#include "exec/ops.h"
#include "io/formats/modelfile.h"
#include "ir/storage.h"
#include "tests/io/io_test.h"

#define ORIGIN "00112233445566778899aabbccddeeff"

static char folder[256];

static const char *path_of(const char *name) {
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* A linear layer with a posterior: low_rank of the weight, diagonal of the bias. */
static Model *make(Diag *diag) {
    Model *model = model_create(ops_table());
    Graph *graph = model->graph;
    const Type type = {DTYPE_F32, 2, {DIM_N, 4}};
    Node *in[3] = {graph_input(graph, "x", &type)};
    for (int i = 0; i < 2; i++) {
        Storage *storage = NULL;
        const Tensor shape = tensor_shape(DTYPE_F32, 2 - i, (int64_t[]){3, 4});
        assert_ok(graph_add_storage(&storage, graph, i ? "b" : "w", &shape, diag), diag);
        storage->init = (Init){INIT_NORMAL, 1};
        storage->gaussian =
            gaussian_create(model->arena, i ? GAUSSIAN_DIAGONAL : GAUSSIAN_LOW_RANK,
                            DTYPE_F32, &shape, 2, ORIGIN);
        assert_ok(gaussian_allocate(storage->gaussian, diag), diag);
        in[i + 1] = graph_param(graph, storage);
    }
    Node *linear = graph_insert(graph, NULL, op_find(ops_table(), "linear"), in, 3);
    assert_ok(node_infer(linear, diag), diag);
    graph_set_output(graph, "y", linear);
    assert_ok(model_init_weights(model, 1, diag), diag);
    return model;
}

/* The file's bytes, in place of `from`, which stands there once, `to` of equal length. */
static void spill_edited(const char *from, const char *to) {
    FILE *in = fopen(path_of("good.h5"), "rb");
    assert_non_null(in);
    static char bytes[1 << 20];
    const size_t length = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    assert_int_equal(strlen(from), strlen(to));
    char *at = memmem(bytes, length, from, strlen(from));
    if (!at) fail_msg("the file does not hold %s", from);
    memcpy(at, to, strlen(to));
    put_file(path_of("edited.h5"), bytes, length);
}

static void expect_refused(const char *from, const char *to, const char *part) {
    Diag *diag = diag_create();
    Model *model = NULL;
    spill_edited(from, to);
    assert_int_equal(
        modelfile_read(&model, path_of("edited.h5"), ops_table(), true, diag),
        STATUS_FORMAT);
    char *text = diag_text(diag);
    if (!strstr(text, part)) fail_msg("expected \"%s\" in: %s", part, text);
    assert_null(model);
    free(text);
    diag_destroy(diag);
}

static void test_index(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = make(diag), *read = NULL;
    assert_ok(modelfile_write(model, path_of("good.h5"), NULL, diag), diag);
    spill_edited(ORIGIN, ORIGIN);
    assert_ok(modelfile_read(&read, path_of("edited.h5"), ops_table(), true, diag), diag);
    assert_int_equal(graph_gaussian_count(read->graph), 2);
    assert_int_equal(gaussian_samples(graph_storage(read->graph, "w")->gaussian), 2);
    expect_refused("\"form\":\"low_rank\"", "\"form\":\"diagonal\"", "impossible shape");
    expect_refused("\"form\":\"low_rank\"", "\"form\":\"low-rank\"",
                   "a row of the priors");
    expect_refused("\"form\":\"diagonal\"", "\"form\":\"low_rank\"", "impossible shape");
    expect_refused("\"samples\":2", "\"samples\":3", "another shape or type");
    expect_refused("\"samples\":2", "\"samples\":0", "impossible shape");
    expect_refused(ORIGIN, "00112233445566778899aabbccddeef0", "belong to another model");
    expect_refused("\"dtype\":\"f32\",\"samples\":2", "\"dtype\":\"f16\",\"samples\":2",
                   "does not fit");
    expect_refused("\"priors\":{\"model\":\"", "\"priors\":{\"mode_\":\"",
                   "no list of priors");
    expect_refused("\"priors\":{", "\"prior_\":{", "no list of priors");
    expect_refused("{\"name\":\"w\",\"form\"", "{\"name\":\"b\",\"form\"",
                   "is not there once");
    expect_refused("{\"name\":\"b\",\"form\"", "{\"name\":\"v\",\"form\"",
                   "is not of the graph");
    expect_refused("\"hashes\":{\"mean\"", "\"hashes\":{\"maan\"", "has no mean");
    model_destroy(read);
    model_destroy(model);
    diag_destroy(diag);
}

/* A posterior beside other weights: every hash of the index is right, the whole is not.
 */
static void test_other_weights(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = make(diag);
    assert_ok(modelfile_write(model, path_of("good.h5"), NULL, diag), diag);
    FILE *in = fopen(path_of("good.h5"), "rb");
    static char bytes[1 << 20];
    const size_t length = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    const char *key = memmem(bytes, length, "\"priors\":{\"model\":\"", 19);
    assert_non_null(key);
    char from[52], to[52];
    memcpy(from, key, 51), memcpy(to, key, 51);
    from[51] = to[51] = 0;
    to[30] = to[30] == '0' ? '1' : '0';
    expect_refused(from, to, "the priors belong to another model");
    model_destroy(model);
    diag_destroy(diag);
}

static void expect_unwritable(Model *model, const char *part) {
    Diag *diag = diag_create();
    assert_int_not_equal(modelfile_write(model, path_of("bad.h5"), NULL, diag),
                         STATUS_OK);
    char *text = diag_text(diag);
    if (!strstr(text, part)) fail_msg("expected \"%s\" in: %s", part, text);
    free(text);
    diag_destroy(diag);
}

static void test_numbers(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = make(diag);
    Gaussian *g = graph_storage(model->graph, "w")->gaussian;
    assert_ok(tensor_write_f64(&g->diagonal, 3, 1, (double[]){-1}, diag), diag);
    expect_unwritable(model, "found a negative one");
    assert_ok(tensor_write_f64(&g->diagonal, 3, 1, (double[]){1}, diag), diag);
    assert_ok(tensor_write_f64(&g->factor, 3, 1, (double[]){1e300}, diag), diag);
    expect_unwritable(model, "not finite");
    gaussian_release(g);
    expect_unwritable(model, "a Gaussian without numbers");
    model_destroy(model);
    diag_destroy(diag);
}

static int setup(void **state) {
    (void)state;
    scratch_make(folder);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    scratch_remove(folder);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_other_weights),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
