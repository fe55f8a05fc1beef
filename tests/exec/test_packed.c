/* Packed weights of inference against float ones: which storages are kept how, equal
 * bytes where sums are whole numbers and rows are looked up, rounding elsewhere; and
 * equal bytes where threads share the products. */
#include "exec/linalg/packed.h"
#include "exec/linalg/products.h"
#include "exec/plan/plan_build.h"
#include "exec/run/run.h"
#include "ir/half.h"
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

/* Large enough that every product is cut. */
enum { MANY_TOKENS = 900, MANY_WIDE = 264, MANY_WORDS = 270 };

typedef struct Fixture {
    Arena *arena;
    Diag *diag;
    Graph *graph;
    Params *plain, *packed, *later, *stored; /* later: by every product */
    int64_t tokens, wide, words;
} Fixture;

/* A leaf of normal numbers [m, k], in the form of `like`: q8, q4 or float. */
static Node *weight(Fixture *f, const char *name, Tensor like, int64_t m, int64_t k) {
    const int64_t dim[] = {m, k};
    Tensor tensor = tensor_shape_like(&like, 2, dim);
    Storage *storage = NULL;
    float row[WIDTH + MANY_WIDE];
    const uint64_t key = random_key_name(3, name);
    assert_ok(graph_add_storage(&storage, f->graph, name, &tensor, f->diag), f->diag);
    assert_ok(tensor_allocate(&tensor, f->diag), f->diag);
    for (int64_t r = 0; r < m; r++) {
        for (int64_t i = 0; i < k; i++)
            row[i] = (float)(0.2 * random_normal(key, (uint64_t)(r * k + i)));
        if (dtype_is_quantised(tensor.dtype))
            quantised_round_row(&tensor, r, row);
        else if (tensor.dtype == DTYPE_F32)
            memcpy((float *)(uintptr_t)tensor_data(&tensor) + r * k, row,
                   (size_t)k * sizeof(float));
        else
            for (int64_t i = 0; i < k; i++)
                ((uint16_t *)(uintptr_t)tensor_data(&tensor))[r * k + i] =
                    bf16_from_float(row[i]);
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
                    HALVES = {.dtype = DTYPE_BF16},
                    Q4 = {.dtype = DTYPE_Q4, .group = 32, .zeros = true};

static void fixture_of(Fixture *f, int64_t tokens, int64_t wide, int64_t words) {
    *f = (Fixture){.arena = arena_create(),
                   .diag = diag_create(),
                   .tokens = tokens,
                   .wide = wide,
                   .words = words};
    f->graph = graph_create(f->arena, ops_table());
    const Type type = {.dtype = DTYPE_I32, .rank = 2, .dim = {DIM_N, DIM_T}};
    Node *ids = graph_input(f->graph, "ids", &type);
    Node *table = weight(f, "table", Q8, words, WIDTH),
         *both = weight(f, "both", Q8, wide, WIDTH);
    Node *rows = make(f, "embedding", ids, table, NULL);
    graph_set_output(f->graph, "rows", rows);
    graph_set_output(f->graph, "tied", make(f, "linear", rows, table, NULL));
    graph_set_output(f->graph, "whole", make(f, "linear", rows, both, "act=i8"));
    graph_set_output(f->graph, "real", make(f, "linear", rows, both, NULL));
    graph_set_output(f->graph, "four",
                     make(f, "linear", rows, weight(f, "four", Q4, wide, WIDTH), NULL));
    graph_set_output(
        f->graph, "rounded",
        make(f, "linear", rows, weight(f, "rounded", Q4, wide, WIDTH), "act=i8"));
    graph_set_output(
        f->graph, "turned",
        make(f, "linear", rows, weight(f, "turned", Q8, WIDTH, wide), "transposed=true"));
    graph_set_output(f->graph, "float_turned",
                     make(f, "linear", rows,
                          weight(f, "float_turned", REALS, WIDTH, wide),
                          "transposed=true"));
    graph_set_output(
        f->graph, "float",
        make(f, "linear", rows, weight(f, "float", REALS, wide, WIDTH), NULL));
    if (tokens == MANY_TOKENS)
        graph_set_output(
            f->graph, "half",
            make(f, "linear", rows, weight(f, "half", HALVES, wide, WIDTH), NULL));
    assert_ok(params_create(&f->plain, f->graph, PRECISION_F32, false, f->diag), f->diag);
    assert_ok(params_create_packed(&f->packed, f->graph, PARAMS_OFTEN, f->diag), f->diag);
    assert_ok(params_create_packed(&f->later, f->graph, 1, f->diag), f->diag);
    assert_ok(params_create_stored(&f->stored, f->graph, f->diag), f->diag);
}

static void fixture_open(Fixture *f) {
    fixture_of(f, T, WIDE, WORDS);
}

static void fixture_close(Fixture *f) {
    params_destroy(f->plain);
    params_destroy(f->packed);
    params_destroy(f->later);
    params_destroy(f->stored);
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

/* Parts that a node's product is cut into with these weights. */
static int64_t parts_of(const Plan *plan, const Params *params, const Node *node) {
    const PlanNode *planned = &plan->nodes[plan_find(plan, node)];
    View in[3] = {{0}};
    Call call;
    plan_call(&call, in, plan, planned);
    in[1].data = (void *)(uintptr_t)params_data(params, node->in[1]->storage);
    in[1].packed = params_packed(params, node, 1);
    call.workers = 2;
    return planned->kernel->forward_tiles(&call);
}

/* The outputs, one after the other, by the threads of a team (NULL = the calling one). */
static float *run_shared(const Fixture *f, const Params *params, Team *team,
                         int64_t *count) {
    Plan *plan = NULL;
    Workspace *workspace = NULL;
    Node *results[16];
    for (int i = 0; i < f->graph->output_count; i++)
        results[i] = f->graph->outputs[i].node;
    const PlanOptions options = {
        .sizes = {[DIM_INDEX(DIM_N)] = N, [DIM_INDEX(DIM_T)] = f->tokens},
        .results = results,
        .result_count = f->graph->output_count};
    assert_ok(plan_create(&plan, f->graph, &options, f->diag), f->diag);
    /* one row of bytes where numbers are whole; all rows in float where they are not */
    const size_t whole = scratch_of(plan, graph_output(f->graph, "whole")),
                 rounded = scratch_of(plan, graph_output(f->graph, "rounded"));
    assert_true(whole >= WIDTH && whole < WIDTH + PLAN_ALIGNMENT);
    assert_true(rounded >= (size_t)(N * f->tokens * WIDTH) * sizeof(float));
    assert_ok(workspace_create(&workspace, f->diag), f->diag);
    workspace_share(workspace, team);
    assert_ok(workspace_bind(workspace, plan, params, f->diag), f->diag);
    int32_t *ids = workspace_input(workspace, "ids");
    for (int i = 0; i < N * f->tokens; i++) ids[i] = (int32_t)(i * 7 % f->words);
    run_forward(workspace, (RunMode){0});
    float *out = calloc((size_t)(N * f->tokens * 16 * (WIDTH + f->wide)), sizeof *out);
    *count = 0;
    for (int i = 0; i < f->graph->output_count; i++) {
        const int64_t n = plan->nodes[plan_find(plan, results[i])].count;
        memcpy(out + *count, workspace_value(workspace, results[i]),
               (size_t)n * sizeof *out);
        *count += n;
        if (team && results[i]->op == op_find(f->graph->ops, "linear") &&
            params_packed(params, results[i], 1) &&
            parts_of(plan, params, results[i]) < 2)
            fail_msg("%s: whole", f->graph->outputs[i].name);
    }
    workspace_destroy(workspace);
    plan_destroy(plan);
    return out;
}

static float *run(const Fixture *f, const Params *params, int64_t *count) {
    return run_shared(f, params, NULL, count);
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

/* Threads that share the products: the same bytes. */
static void test_teams(void **state) {
    (void)state;
    Fixture f;
    int64_t count;
    fixture_of(&f, MANY_TOKENS, MANY_WIDE, MANY_WORDS);
    const Params *const kept[] = {f.packed, f.later, f.stored};
    assert_null(params_data(f.stored, graph_storage(f.graph, "half")));
    for (int i = 0; i < 3; i++) {
        float *want = run(&f, kept[i], &count);
        for (int threads = 2; threads <= 5; threads++) {
            Team *team = NULL;
            assert_ok(team_create(&team, threads, f.diag), f.diag);
            float *got = run_shared(&f, kept[i], team, &count);
            assert_memory_equal(got, want, (size_t)count * sizeof *got);
            free(got);
            team_destroy(team);
        }
        free(want);
    }
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
        cmocka_unit_test(test_forms), cmocka_unit_test(test_outputs),
        cmocka_unit_test(test_teams), cmocka_unit_test(test_openblas),
        cmocka_unit_test(test_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
