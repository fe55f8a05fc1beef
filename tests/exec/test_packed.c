/* Packed weights of inference against float ones: which storages are kept how, equal
 * bytes where sums are whole numbers and rows are looked up, rounding elsewhere. */
#include "exec/linalg/packed.h"
#include "exec/linalg/products.h"
#include "exec/plan/plan_build.h"
#include "exec/run/run.h"
#include "ir/mapped.h"
#include "ir/quantised.h"
#include "ir/random.h"
#include "tests/support/check.h"
#include "tests/support/rounding.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N = 2, T = 9, WIDTH = 72, WIDE = 40, WORDS = 30 };

typedef struct Fixture {
    Arena *arena;
    Diag *diag;
    Graph *graph;
    Params *plain, *packed, *later; /* later: by every product */
} Fixture;

/* A leaf of normal numbers [m, k], in the form of `like`: q8, q4 or float. */
static Node *weight(Fixture *f, const char *name, Tensor like, int64_t m, int64_t k) {
    const int64_t dim[] = {m, k};
    Tensor tensor = tensor_shape_like(&like, 2, dim);
    Storage *storage = NULL;
    float row[WIDTH + WIDE];
    const uint64_t key = random_key_name(3, name);
    assert_ok(graph_add_storage(&storage, f->graph, name, &tensor, f->diag), f->diag);
    assert_ok(tensor_allocate(&tensor, f->diag), f->diag);
    for (int64_t r = 0; r < m; r++) {
        for (int64_t i = 0; i < k; i++)
            row[i] = (float)(0.2 * random_normal(key, (uint64_t)(r * k + i)));
        if (dtype_is_quantised(tensor.dtype))
            quantised_round_row(&tensor, r, row);
        else
            memcpy((float *)(uintptr_t)tensor_data(&tensor) + r * k, row,
                   (size_t)k * sizeof(float));
    }
    storage->tensor = tensor;
    return graph_param(f->graph, storage);
}

static Node *make(Fixture *f, const char *op, Node *a, Node *b, const char *attrs) {
    Node *node =
        graph_insert(f->graph, NULL, op_find(f->graph->ops, op), (Node *[]){a, b}, 2);
    if (attrs) assert_ok(node_set(f->graph, node, f->diag, "%s", attrs), f->diag);
    assert_ok(node_infer(node, f->diag), f->diag);
    return node;
}

static const Tensor Q8 = {.dtype = DTYPE_Q8}, REALS = {.dtype = DTYPE_F32},
                    Q4 = {.dtype = DTYPE_Q4, .group = 32, .zeros = true};

static void fixture_open(Fixture *f) {
    *f = (Fixture){.arena = arena_create(), .diag = diag_create()};
    f->graph = graph_create(f->arena, ops_table());
    const Type type = {.dtype = DTYPE_I32, .rank = 2, .dim = {DIM_N, DIM_T}};
    Node *ids = graph_input(f->graph, "ids", &type);
    Node *table = weight(f, "table", Q8, WORDS, WIDTH),
         *both = weight(f, "both", Q8, WIDE, WIDTH);
    Node *rows = make(f, "embedding", ids, table, NULL);
    graph_set_output(f->graph, "rows", rows);
    graph_set_output(f->graph, "tied", make(f, "linear", rows, table, NULL));
    graph_set_output(f->graph, "whole", make(f, "linear", rows, both, "act=i8"));
    graph_set_output(f->graph, "real", make(f, "linear", rows, both, NULL));
    graph_set_output(f->graph, "four",
                     make(f, "linear", rows, weight(f, "four", Q4, WIDE, WIDTH), NULL));
    graph_set_output(
        f->graph, "rounded",
        make(f, "linear", rows, weight(f, "rounded", Q4, WIDE, WIDTH), "act=i8"));
    graph_set_output(
        f->graph, "turned",
        make(f, "linear", rows, weight(f, "turned", Q8, WIDTH, WIDE), "transposed=true"));
    graph_set_output(f->graph, "float_turned",
                     make(f, "linear", rows,
                          weight(f, "float_turned", REALS, WIDTH, WIDE),
                          "transposed=true"));
    graph_set_output(
        f->graph, "float",
        make(f, "linear", rows, weight(f, "float", REALS, WIDE, WIDTH), NULL));
    assert_ok(params_create(&f->plain, f->graph, PRECISION_F32, false, f->diag), f->diag);
    assert_ok(params_create_packed(&f->packed, f->graph, PARAMS_OFTEN, f->diag), f->diag);
    assert_ok(params_create_packed(&f->later, f->graph, 1, f->diag), f->diag);
}

static void fixture_close(Fixture *f) {
    params_destroy(f->plain);
    params_destroy(f->packed);
    params_destroy(f->later);
    graph_release(f->graph);
    arena_destroy(f->arena);
    diag_destroy(f->diag);
}

static bool has_floats(const Fixture *f, const char *name) {
    const Storage *storage = graph_storage(f->graph, name);
    assert_non_null(params_data(f->plain, storage));
    return params_data(f->packed, storage) != NULL;
}

static void test_forms(void **state) {
    (void)state;
    Fixture f;
    fixture_open(&f);
    assert_false(has_floats(&f, "table"));
    assert_false(has_floats(&f, "both"));
    assert_false(has_floats(&f, "four"));
    assert_false(has_floats(&f, "rounded"));
    assert_true(has_floats(&f, "turned"));
    assert_false(has_floats(&f, "float"));
    assert_false(has_floats(&f, "float_turned"));
    const Node *whole = graph_output(f.graph, "whole"),
               *real = graph_output(f.graph, "real");
    assert_int_equal(params_packed(f.packed, whole, 1)->kind, STEP_INT8);
    assert_int_equal(params_packed(f.packed, real, 1)->kind, STEP_Q8);
    assert_int_equal(params_packed(f.packed, graph_output(f.graph, "four"), 1)->kind,
                     STEP_Q4);
    assert_int_equal(params_packed(f.packed, graph_output(f.graph, "rounded"), 1)->kind,
                     STEP_INT4);
    assert_null(params_packed(f.packed, graph_output(f.graph, "turned"), 1));
    assert_null(params_packed(f.packed, graph_output(f.graph, "rows"), 1));
    assert_null(params_packed(f.plain, whole, 1));
    static const char *const FLOATS[] = {"float", "float_turned"};
    for (int i = 0; i < 2; i++) {
        const Node *node = graph_output(f.graph, FLOATS[i]);
        const Matrix *ahead = params_packed(f.packed, node, 1),
                     *later = params_packed(f.later, node, 1);
        assert_int_equal(ahead->kind, STEP_F32);
        assert_int_equal(ahead->rows, WIDE);
        assert_int_equal(later->columns, WIDTH);
        assert_non_null(ahead->data);
        assert_null(later->data);
        assert_ptr_equal(params_data(f.later, node->in[1]->storage),
                         tensor_data(&node->in[1]->storage->tensor));
    }
    assert_int_equal(params_room_bytes(f.packed), 0);
    assert_int_equal(params_room_bytes(f.later), matrix_room_bytes(WIDTH));

    /* whole panels of rows; the table's rows lie as they are stored as well */
    const int64_t words = 32, wide = 48, groups = 3;
    const int64_t table = words * WIDTH + words * 4;
    const int64_t four = wide * WIDTH / 2 + wide * groups * (2 + 1);
    assert_int_equal(params_packed_bytes(f.graph),
                     table +
                         (int64_t)tensor_bytes(&graph_storage(f.graph, "table")->tensor) +
                         2 * (wide * WIDTH + wide * 4) + 2 * four + 3 * 4 * WIDTH * WIDE);
    fixture_close(&f);
}

static size_t scratch_of(const Plan *plan, const Node *node) {
    return plan->buffers[plan->nodes[plan_find(plan, node)].forward_scratch].bytes;
}

/* The outputs, one after the other. */
static float *run(const Fixture *f, const Params *params, int64_t *count) {
    Plan *plan = NULL;
    Workspace *workspace = NULL;
    Node *results[16];
    for (int i = 0; i < f->graph->output_count; i++)
        results[i] = f->graph->outputs[i].node;
    const PlanOptions options = {
        .sizes = {[DIM_INDEX(DIM_N)] = N, [DIM_INDEX(DIM_T)] = T},
        .results = results,
        .result_count = f->graph->output_count};
    assert_ok(plan_create(&plan, f->graph, &options, f->diag), f->diag);
    /* one row of bytes where numbers are whole; all rows in float where they are not */
    const size_t whole = scratch_of(plan, graph_output(f->graph, "whole")),
                 rounded = scratch_of(plan, graph_output(f->graph, "rounded"));
    assert_true(whole >= WIDTH && whole < WIDTH + PLAN_ALIGNMENT);
    assert_true(rounded >= N * T * WIDTH * sizeof(float));
    assert_ok(workspace_create(&workspace, f->diag), f->diag);
    assert_ok(workspace_bind(workspace, plan, params, f->diag), f->diag);
    int32_t *ids = workspace_input(workspace, "ids");
    for (int i = 0; i < N * T; i++) ids[i] = i * 7 % WORDS;
    run_forward(workspace, (RunMode){0});
    float *out = calloc((size_t)(N * T * 16 * WIDTH), sizeof *out);
    *count = 0;
    for (int i = 0; i < f->graph->output_count; i++) {
        const int64_t n = plan->nodes[plan_find(plan, results[i])].count;
        memcpy(out + *count, workspace_value(workspace, results[i]),
               (size_t)n * sizeof *out);
        *count += n;
    }
    workspace_destroy(workspace);
    plan_destroy(plan);
    return out;
}

static void test_outputs(void **state) {
    (void)state;
    Fixture f;
    int64_t count, at = 0;
    fixture_open(&f);
    float *want = run(&f, f.plain, &count), *got = run(&f, f.packed, &count),
          *later = run(&f, f.later, &count);
    assert_memory_equal(got, later, (size_t)count * sizeof *got);
    for (int i = 0; i < f.graph->output_count; i++) {
        const char *name = f.graph->outputs[i].name;
        const Type *type = &f.graph->outputs[i].node->type;
        const int64_t n = N * T * type->dim[2];
        const bool equal = strcmp(name, "rows") == 0 || strcmp(name, "whole") == 0;
        /* numbers of deviation 0.2 on both sides: their products' sizes add up to less */
        const double tolerance =
            equal ? 0 : rounding_tolerance(PRECISION_F32, WIDTH + 4, WIDTH * 0.4);
        for (int64_t k = 0; k < n; k++)
            if (!(fabs((double)got[at + k] - want[at + k]) <= tolerance))
                fail_msg("%s, element %lld: %.9g, not %.9g", name, (long long)k,
                         got[at + k], want[at + k]);
        at += n;
    }
    assert_int_equal(at, count);
    free(want), free(got), free(later);
    fixture_close(&f);
}

/* With --products openblas floats stay floats. */
static void test_openblas(void **state) {
    (void)state;
    Fixture f;
    Diag *diag = diag_create();
    assert_string_equal(products_name(), "packed weights");
    assert_ok(products_choose(PRODUCTS_OPENBLAS, diag), diag);
    assert_null(products_name());
    fixture_open(&f);
    assert_true(has_floats(&f, "float"));
    assert_true(has_floats(&f, "float_turned"));
    assert_null(params_packed(f.packed, graph_output(f.graph, "float"), 1));
    fixture_close(&f);
    test_outputs(NULL);
    assert_ok(products_choose(PRODUCTS_AUTO, diag), diag);
    assert_true(products_packed());
    diag_destroy(diag);
}

enum { ROWS = 512, COLUMNS = 1024, FILE_BYTES = ROWS * COLUMNS * (int)sizeof(float) };

static void unmap(void *data, size_t bytes) {
    munmap(data, bytes);
}

/* Pages of a mapping of FILE_BYTES that are in this process's memory. */
static int pages_in_memory(const void *data) {
    const long page = sysconf(_SC_PAGESIZE);
    const int file = open("/proc/self/pagemap", O_RDONLY);
    int count = 0;
    assert_true(file >= 0);
    for (int i = 0; i < FILE_BYTES / page; i++) {
        uint64_t entry = 0;
        const off_t at = (off_t)((uintptr_t)data / (uintptr_t)page) + i;
        assert_int_equal(pread(file, &entry, sizeof entry, at * 8), sizeof entry);
        count += entry >> 63 != 0; /* "present": Documentation/admin-guide/mm/pagemap */
    }
    close(file);
    return count;
}

/* Whether pages stay when a linear's weights, mapped from a file, are made ready for so
 * many runs. */
static bool pages_stay(int fd, bool is_file, int64_t runs, const float *want) {
    Fixture f = {.arena = arena_create(), .diag = diag_create()};
    const Type type = {.dtype = DTYPE_F32, .rank = 2, .dim = {DIM_N, COLUMNS}};
    const int64_t dim[] = {ROWS, COLUMNS};
    Tensor tensor = tensor_shape(DTYPE_F32, 2, dim);
    Storage *storage = NULL;
    void *data = mmap(NULL, FILE_BYTES, PROT_READ, MAP_PRIVATE, fd, 0);
    assert_true(data != MAP_FAILED);
    f.graph = graph_create(f.arena, ops_table());
    assert_ok(graph_add_storage(&storage, f.graph, "w", &tensor, f.diag), f.diag);
    storage->tensor.buf = is_file ? buf_wrap_file(data, FILE_BYTES, unmap)
                                  : buf_wrap(data, FILE_BYTES, unmap);
    Node *x = graph_input(f.graph, "x", &type), *w = graph_param(f.graph, storage);
    graph_set_output(f.graph, "y", make(&f, "linear", x, w, NULL));
    assert_memory_equal(data, want, FILE_BYTES);
    const int before = pages_in_memory(data);
    assert_ok(params_create_packed(&f.packed, f.graph, runs, f.diag), f.diag);
    const int after = pages_in_memory(data);
    assert_true(before > 0 && (after == before || after == 0));
    assert_memory_equal(data, want, FILE_BYTES);
    fixture_close(&f);
    return after > 0;
}

/* Pages of a file go when they were packed, and only those. */
static void test_pages(void **state) {
    (void)state;
    char path[] = "/tmp/test_packed_XXXXXX";
    const int fd = mkstemp(path);
    float *numbers = memory_alloc(ROWS * COLUMNS, sizeof *numbers);
    for (int i = 0; i < ROWS * COLUMNS; i++) numbers[i] = (float)(i % 1000);
    assert_true(fd >= 0 && write(fd, numbers, FILE_BYTES) == FILE_BYTES);
    unlink(path);
    assert_true(pages_stay(fd, true, 1, numbers));
    assert_false(pages_stay(fd, true, PARAMS_OFTEN, numbers));
    assert_true(pages_stay(fd, false, PARAMS_OFTEN, numbers));
    close(fd);
    free(numbers);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_openblas),
        cmocka_unit_test(test_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
