/* Relevance of weights that are set, against the dense covariance, and what is chosen by
 * it. */
#include "passes/posterior/relevance.h"

#include "tests/passes/dense_posterior.h"

/* ---- relevance ---- */

static PassContext context(Arena *arena) {
    return (PassContext){.ops = ops_table(),
                         .arena = arena,
                         .source.key = "test",
                         .record = tree_new(arena, TREE_MAP, LOC_NONE)};
}

static void expect_relevance(const ConditionSlice *given, int count, double want) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    PassContext ctx = context(arena);
    double got = 0;
    assert_ok(relevance_of(&got, &ctx, given, count, NULL, diag), diag);
    assert_within(got, want, SOLVE_ROUNDING * fabs(want));
    arena_destroy(arena);
    diag_destroy(diag);
}

/* Whole storages, rows and columns, of both forms, against the dense covariance. */
static void test_relevance(void **state) {
    (void)state;
    const Family *f = &FAMILIES[0];
    static const int64_t some[] = {1, 4, 5};
    for (int form = GAUSSIAN_DIAGONAL; form <= GAUSSIAN_LOW_RANK; form++) {
        Model *model = draw_model(f, 5);
        add_posterior(model, (GaussianForm)form);
        Storage *w = storage_at(model, f->stack, 1, ROLE_FFN_OUT, "weight");
        Storage *b = storage_at(model, f->stack, 0, ROLE_OUT, "bias");
        const ConditionSlice given[] = {
            {.storage = b, .axis = -1, .value = 0.5},
            {.storage = w, .axis = 1, .index = some, .count = 3}};
        const ConditionSlice rows = {.storage = w, .axis = 0, .index = some, .count = 3};
        Entries entries = {.count = 0};
        add_entries(&entries, b, -1, 0, 0, 0.5);
        add_entries(&entries, w, 1, 1, 1, 0);
        add_entries(&entries, w, 1, 4, 2, 0);
        expect_relevance(given, 2, dense_relevance(model, &entries));
        entries.count = 0;
        add_entries(&entries, w, 0, 1, 1, 0);
        add_entries(&entries, w, 0, 4, 2, 0);
        expect_relevance(&rows, 1, dense_relevance(model, &entries));
        model_destroy(model);
    }
}

/* A A^T + I in double. */
static void fill_covariance(Tensor *tensor, uint64_t key) {
    Diag *diag = diag_create();
    double *s = NULL;
    const int64_t n = tensor->dim[0];
    assert_ok(tensor_writable(tensor, (void **)&s, diag), diag);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            s[i * n + j] = i == j;
            for (int64_t k = 0; k < 4; k++)
                s[i * n + j] += random_normal(key, (uint64_t)(i * 4 + k)) *
                                random_normal(key, (uint64_t)(j * 4 + k));
        }
    diag_destroy(diag);
}

static double read_one(const Tensor *tensor, int64_t at) {
    double value = 0;
    tensor_read_f64(tensor, at, 1, &value);
    return value;
}

/* Relevance of entries (rows x columns of a matrix) from the dense Kronecker product. */
static double dense_kron(const Storage *w, const int64_t *rows, int row_count,
                         const int64_t *columns, int column_count, double value) {
    const Gaussian *g = w->gaussian;
    const int64_t n = w->tensor.dim[0], m = w->tensor.dim[1];
    const int count = row_count * column_count;
    double *s = calloc((size_t)(count * count), sizeof *s);
    double *x = calloc((size_t)count, sizeof *x), *d = calloc((size_t)count, sizeof *d);
    for (int a = 0; a < count; a++) {
        const int64_t i = rows[a / column_count], j = columns[a % column_count];
        d[a] = x[a] = value - read_one(&g->mean, i * m + j);
        for (int b = 0; b < count; b++) {
            const int64_t k = rows[b / column_count], l = columns[b % column_count];
            s[a * count + b] =
                read_one(&g->row, i * n + k) * read_one(&g->column, j * m + l);
        }
    }
    solve(s, x, count);
    double sum = 0;
    for (int a = 0; a < count; a++) sum += d[a] * x[a];
    free(s);
    free(x);
    free(d);
    return sum / 2;
}

static void test_relevance_of_matrices(void **state) {
    (void)state;
    static const int64_t all[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
                         some[] = {1, 4, 5};
    const Family *f = &FAMILIES[0];
    Model *model = draw_model(f, 5);
    Diag *diag = diag_create();
    Storage *w = storage_at(model, f->stack, 1, ROLE_FFN_OUT, "weight"); /* [8, 12] */
    Gaussian *g =
        gaussian_create(model->arena, GAUSSIAN_KRON, DTYPE_F64, &w->tensor, 0, "x");
    assert_ok(gaussian_allocate(g, diag), diag);
    fill(&g->mean, 4, 0, 1);
    fill_covariance(&g->row, 5);
    fill_covariance(&g->column, 6);
    w->gaussian = g;
    const ConditionSlice whole = {.storage = w, .axis = -1, .value = 0.25};
    const ConditionSlice rows = {.storage = w, .axis = 0, .index = some, .count = 3};
    const ConditionSlice columns = {.storage = w, .axis = 1, .index = some, .count = 3};
    expect_relevance(&whole, 1, dense_kron(w, all, 8, all, 12, 0.25));
    expect_relevance(&rows, 1, dense_kron(w, some, 3, all, 12, 0));
    expect_relevance(&columns, 1, dense_kron(w, all, 8, some, 3, 0));
    model_destroy(model);
    diag_destroy(diag);
}

/* ---- choosing by relevance ---- */

/* The first to go is the one of the smallest relevance; the second, given the first, adds
 * up with it to the relevance of both. */
static void test_order(void **state) {
    (void)state;
    for (int i = 0; i < FAMILY_COUNT; i++) {
        const Family *f = &FAMILIES[i];
        char options[128];
        Model *teacher = draw_model(f, 7 + (uint64_t)i);
        add_posterior(teacher, GAUSSIAN_LOW_RANK);
        Model *student = model_copy(teacher);
        snprintf(options, sizeof options,
                 "{block: ffn, drop_count: 2, order: relevance, stack: %s}", f->stack);
        run_pass(student, "remove_block", options);
        const Tree *rows = tree_get(last_record(student), "relevance");
        double least = 0, sum = 0;
        int best = -1;
        for (int layer = 0; layer < LAYERS; layer++) {
            Entries entries = {.count = 0};
            add_block(&entries, teacher, f, layer, BLOCK_FFN);
            const double relevance = dense_relevance(teacher, &entries);
            if (best < 0 || relevance < least) best = layer, least = relevance;
        }
        Entries both = {.count = 0};
        for (const Tree *row = rows->first; row; row = row->next) {
            add_block(&both, teacher, f, (int)tree_get(row, "layer")->integer, BLOCK_FFN);
            sum += tree_get(row, "relevance")->real;
        }
        assert_int_equal(rows->count, 2);
        assert_int_equal(tree_get(rows->first, "layer")->integer, best);
        assert_within(tree_get(rows->first, "relevance")->real, least,
                      SOLVE_ROUNDING * least);
        assert_within(sum, dense_relevance(teacher, &both), SOLVE_ROUNDING * sum);
        model_destroy(student);
        model_destroy(teacher);
    }
}

/* Heads and units by relevance: those that stay are the least plausible to be zero. */
static void test_units_by_relevance(void **state) {
    (void)state;
    const Family *f = &FAMILIES[0];
    for (int value = 0; value < 2; value++) {
        Model *teacher = draw_model(f, 5);
        add_posterior(teacher, GAUSSIAN_LOW_RANK);
        Model *student = model_copy(teacher);
        run_pass(student, "prune_heads",
                 value ? "{keep: 1, score: relevance, zero: value, prior: gaussian}"
                       : "{keep: 1, score: relevance}");
        for (int layer = 0; layer < LAYERS; layer++) {
            double of[2];
            for (int head = 0; head < 2; head++) {
                Entries entries = {.count = 0};
                add_head(&entries, teacher, f, layer, head, value);
                of[head] = dense_relevance(teacher, &entries);
            }
            const Storage *out = storage_at(student, f->stack, layer, ROLE_OUT, "weight");
            assert_int_equal(lineage_index(&out->kept[1], 0),
                             of[0] < of[1] ? HEAD_WIDTH : 0);
        }
        model_destroy(student);
        model_destroy(teacher);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_relevance),
        cmocka_unit_test(test_relevance_of_matrices),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_units_by_relevance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
