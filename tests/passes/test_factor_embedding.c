/* Factoring the word embedding: errors against the tail of a spectrum that is known in
 * closed form, ranks by energy, the function that is left, and factoring again. */
#include "ir/irtext.h"
#include "tests/passes/factor_fixture.h"

static double norm_of(const double *table) {
    double squares = 0;
    for (int i = 0; i < WORDS * WIDTH; i++) squares += table[i] * table[i];
    return sqrt(squares);
}

/* ---- error and shape ---- */

/* How far U S of singular value k may be off: eigenvectors of the Gram matrix turn by its
 * error, which exec/linalg/tsvd.h says is 1e-7 of the largest eigenvalue and which the
 * table's own rounding to float doubles, over the distance to the next eigenvalue (Davis
 * and Kahan, 1970). */
static double vector_tolerance(int64_t k) {
    const double s = SIGMA[k] * SIGMA[k];
    const double next = k + 1 < WIDTH ? SIGMA[k + 1] * SIGMA[k + 1] : 0;
    const double gap = k > 0 ? fmin(s - next, SIGMA[k - 1] * SIGMA[k - 1] - s) : s - next;
    return 2e-7 * SIGMA[0] * SIGMA[0] / gap * SIGMA[k];
}

/* The error is the tail of the spectrum, and the factors are the known vectors. */
static void check_rank(int rank) {
    Model *model = classifier();
    set_spectrum(model, SIGMA);
    const int64_t before = graph_parameter_count(model->graph);
    double *table = elements(model, TABLE);
    factor_to(model, rank);
    assert_rank(model, rank);
    double *both = product(model), *left = elements(model, TABLE);
    const double error = sqrt(tail(SIGMA, rank)), norm = sqrt(tail(SIGMA, 0));
    const double found = distance(table, both, WORDS * WIDTH);
    assert_within(found, error, FACTORS * norm);
    assert_within(recorded(model, "error"), found,
                  rounding_tolerance(PRECISION_F64, WORDS * WIDTH + WIDTH, norm));
    assert_within(recorded(model, "relative_error"), error / norm, FACTORS);
    assert_within(recorded(model, "energy"), 1 - tail(SIGMA, rank) / (norm * norm),
                  2 * FACTORS);
    for (int64_t v = 0; v < WORDS; v++)
        for (int64_t k = 0; k < rank; k++)
            assert_within(fabs(left[v * rank + k]), fabs(SIGMA[k] * cosine(WORDS, k, v)),
                          FACTORS * norm + vector_tolerance(k));
    assert_int_equal(graph_parameter_count(model->graph),
                     before - WORDS * WIDTH + (WORDS + WIDTH) * rank);
    assert_true(recorded(model, "parameters_before") == WORDS * WIDTH);
    assert_true(recorded(model, "parameters_after") == (WORDS + WIDTH) * rank);
    assert_within(recorded(model, "break_even"), 60.0 * 8 / 68,
                  rounding_tolerance(PRECISION_F64, 4, 8));
    free(table), free(both), free(left);
    model_destroy(model);
}

static void test_tail_of_spectrum(void **state) {
    (void)state;
    for (int rank = 1; rank <= WIDTH; rank++) check_rank(rank);
}

static void test_structure(void **state) {
    (void)state;
    Model *model = classifier();
    const Node *sum = graph_find(model->graph, NULL, -1, ROLE_TOKEN_TYPE);
    factor_to(model, 3);
    const Node *lookup = graph_find(model->graph, "embeddings", -1, ROLE_EMBED);
    const Node *wide = graph_find(model->graph, "embeddings", -1, ROLE_EMBED_PROJECTION);
    assert_non_null(wide);
    assert_string_equal(wide->op->name, "linear");
    assert_ptr_equal(wide->in[0], lookup);
    assert_ptr_equal(sum->in[0], wide);
    assert_null(node_operand(wide, "bias"));
    assert_int_equal(lookup->type.dim[2], 3);
    assert_int_equal(wide->type.dim[2], WIDTH);
    model_destroy(model);
}

/* What the classifier computes is what it computes with the product as its table. */
static void test_function(void **state) {
    (void)state;
    Model *factored = classifier(), *plain = classifier();
    Diag *diag = diag_create();
    double got[VALUES], want[VALUES];
    void *data = NULL;
    factor_to(factored, 3);
    double *both = product(factored);
    assert_ok(tensor_writable(&storage(plain, TABLE)->tensor, &data, diag), diag);
    for (int i = 0; i < WORDS * WIDTH; i++) ((float *)data)[i] = (float)both[i];
    const int64_t count = configured_run(factored, "logits", 1, got, VALUES);
    assert_int_equal(configured_run(plain, "logits", 1, want, VALUES), count);
    expect_logits(plain, got, want, count, PRECISION_F32); /* of a table in float */
    free(both);
    model_destroy(factored);
    model_destroy(plain);
    diag_destroy(diag);
}

/* A table stored in half precision gives factors in f32. */
static void test_half_table(void **state) {
    (void)state;
    Model *model = classifier();
    Diag *diag = diag_create();
    Tensor half, *tensor = &storage(model, TABLE)->tensor;
    void *data = NULL;
    assert_ok(tensor_create(&half, DTYPE_F16, 2, tensor->dim, diag), diag);
    assert_ok(tensor_writable(&half, &data, diag), diag);
    for (int i = 0; i < WORDS * WIDTH; i++)
        ((uint16_t *)data)[i] = (uint16_t)(0x3000 + 37 * (i % 61));
    tensor_release(tensor);
    *tensor = half;
    double *table = elements(model, TABLE);
    factor_to(model, WIDTH);
    double *both = product(model);
    assert_rank(model, WIDTH);
    assert_within(distance(table, both, WORDS * WIDTH), 0, FACTORS * norm_of(table));
    free(table), free(both);
    model_destroy(model);
    diag_destroy(diag);
}

/* ---- energy ---- */

/* The share asked for gives this rank, and the bytes of `rank`. */
static void check_energy(double energy, int rank) {
    Model *model = classifier(), *same = classifier();
    char options[64], a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
    set_spectrum(model, SIGMA);
    set_spectrum(same, SIGMA);
    snprintf(options, sizeof options, "{energy: %.17g, allow_growth: true}", energy);
    factor(model, options);
    factor_to(same, rank);
    assert_rank(model, rank);
    model_hash(model, a);
    model_hash(same, b);
    assert_string_equal(a, b);
    model_destroy(model);
    model_destroy(same);
}

static void test_energy(void **state) {
    (void)state;
    for (int rank = 1; rank < WIDTH; rank++) {
        const double kept = 1 - tail(SIGMA, rank) / tail(SIGMA, 0);
        check_energy(kept - 1e-5, rank);
        check_energy(kept + 1e-5, rank + 1);
    }
    check_energy(1e-9, 1);
    check_energy(1, WIDTH);
}

/* All of the energy of a table of lower rank: that rank, and the same function, which the
 * pipeline checks as the pass claims it. */
static void test_energy_of_low_rank(void **state) {
    (void)state;
    const double sigma[WIDTH] = {7, 5, 2, 1.5, 1};
    Model *model = classifier();
    double before[VALUES], after[VALUES];
    set_spectrum(model, sigma);
    const int64_t count = configured_run(model, "logits", 0, before, VALUES);
    factor(model, "{energy: 1}");
    assert_rank(model, 5);
    configured_run(model, "logits", 0, after, VALUES);
    expect_logits(model, after, before, count, PRECISION_F32); /* of new factors */
    model_destroy(model);
}

/* Runs the pass without the pipeline; whether it claims to preserve the function. */
static bool claims_exact(int64_t rank) {
    const Pass *pass = pass_find("factor_embedding");
    Model *model = classifier();
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    PassContext ctx = {
        .arena = arena, .threads = 1, .record = tree_new(arena, TREE_MAP, LOC_NONE)};
    void *options = memory_alloc(1, pass->options_size);
    const Tree value = {.kind = TREE_INT, .integer = rank};
    const Tree grow = {.kind = TREE_BOOL, .boolean = true};
    assert_ok(field_set(field_find(pass->fields, "rank"), &value, options, arena,
                        STATUS_RECIPE, diag),
              diag);
    assert_ok(field_set(field_find(pass->fields, "allow_growth"), &grow, options, arena,
                        STATUS_RECIPE, diag),
              diag);
    assert_ok(pass->run(&ctx, model, options, diag), diag);
    free(options);
    arena_destroy(arena);
    diag_destroy(diag);
    model_destroy(model);
    return ctx.exact;
}

static void test_exactness(void **state) {
    (void)state;
    assert_true(claims_exact(WIDTH));
    assert_false(claims_exact(WIDTH - 1));
}

/* ---- twice ---- */

static void check_same(const Model *a, const Model *b) {
    Text x = {0}, y = {0};
    graph_print(&x, a->graph);
    graph_print(&y, b->graph);
    assert_string_equal(x.data, y.data);
    text_free(&x), text_free(&y);
    double *p = product(a), *q = product(b);
    assert_within(distance(p, q, WORDS * WIDTH), 0, 2 * FACTORS * norm_of(p));
    free(p), free(q);
}

/* Truncating twice is truncating once; the tied head included. */
static void test_twice(void **state) {
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        Model *twice = tied ? masked(true) : classifier();
        Model *once = tied ? masked(true) : classifier();
        set_spectrum(twice, SIGMA);
        set_spectrum(once, SIGMA);
        factor(twice, "{rank: 6}");
        factor(twice, "{rank: 3}");
        factor(once, "{rank: 3}");
        check_same(twice, once);
        assert_true(recorded(twice, "parameters_before") == 6 * (WORDS + WIDTH));
        const double norm = sqrt(tail(SIGMA, 0) - tail(SIGMA, 6));
        const double error = sqrt(tail(SIGMA, 3) - tail(SIGMA, 6));
        assert_within(recorded(twice, "relative_error"), error / norm, 2 * FACTORS);
        model_destroy(twice);
        model_destroy(once);
    }
}

/* Factors that training moved apart are decomposed as their product. */
static void test_trained_factors(void **state) {
    (void)state;
    Model *model = classifier();
    Diag *diag = diag_create();
    void *data = NULL;
    double before[VALUES], after[VALUES];
    factor(model, "{rank: 5}");
    assert_ok(tensor_writable(&storage(model, PROJECTION)->tensor, &data, diag), diag);
    for (int i = 0; i < 5 * WIDTH; i++) ((float *)data)[i] += (float)sin(3 * i);
    double *changed = product(model);
    const int64_t count = configured_run(model, "logits", 0, before, VALUES);
    factor(model, "{rank: 5}");
    double *again = product(model);
    assert_within(distance(changed, again, WORDS * WIDTH), 0, FACTORS * norm_of(changed));
    configured_run(model, "logits", 0, after, VALUES);
    expect_logits(model, after, before, count, PRECISION_F32); /* of new factors */
    free(changed), free(again);
    model_destroy(model);
    diag_destroy(diag);
}

/* A projection that has a bias keeps it. */
static void test_projection_with_bias(void **state) {
    (void)state;
    Model *model = classifier();
    Diag *diag = diag_create();
    Storage *bias = NULL;
    double before[VALUES], after[VALUES];
    factor(model, "{rank: 5}");
    Node *wide = graph_find(model->graph, NULL, -1, ROLE_EMBED_PROJECTION);
    const Tensor shape = tensor_shape(DTYPE_F32, 1, (int64_t[]){WIDTH});
    assert_ok(graph_add_storage(&bias, model->graph, "b", &shape, diag), diag);
    bias->init = (Init){INIT_NORMAL, 1};
    node_set_operand(model->graph, wide, "bias", graph_param(model->graph, bias));
    wide->role = ROLE_NONE; /* as in a model that came with a projection */
    assert_ok(model_init_weights(model, 1, diag), diag);
    const int64_t count = configured_run(model, "logits", 0, before, VALUES);
    factor(model, "{rank: 5}");
    configured_run(model, "logits", 0, after, VALUES);
    expect_logits(model, after, before, count, PRECISION_F32); /* of new factors */
    factor(model, "{rank: 2}");
    assert_rank(model, 2);
    assert_non_null(node_operand(wide, "bias"));
    assert_null(graph_find(model->graph, NULL, -1, ROLE_EMBED_PROJECTION));
    model_destroy(model);
    diag_destroy(diag);
}

/* ALBERT has a norm between table and projection: the narrow table is factored. */
static void test_albert(void **state) {
    (void)state;
    Model *model = configured_model(
        "{model_type: albert, architectures: [AlbertForMaskedLM], embedding_size: 6,\n" SHAPE
        "}\n",
        3);
    factor(model, "{rank: 2}");
    const Tensor *table =
        &storage(model, "albert.embeddings.word_embeddings.weight")->tensor;
    const Tensor *inner =
        &storage(model, "albert.embeddings.word_embeddings_projection.weight")->tensor;
    const Tensor *outer =
        &storage(model, "albert.encoder.embedding_hidden_mapping_in.weight")->tensor;
    assert_int_equal(table->dim[1], 2);
    assert_int_equal(inner->dim[0], 6);
    assert_int_equal(outer->dim[1], 6);
    assert_true(recorded(model, "tied_heads") == 1);
    double out[VALUES];
    assert_int_equal(configured_run(model, "logits", 0, out, VALUES), 2 * 5 * WORDS);
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tail_of_spectrum),
        cmocka_unit_test(test_structure),
        cmocka_unit_test(test_function),
        cmocka_unit_test(test_half_table),
        cmocka_unit_test(test_energy),
        cmocka_unit_test(test_energy_of_low_rank),
        cmocka_unit_test(test_exactness),
        cmocka_unit_test(test_twice),
        cmocka_unit_test(test_trained_factors),
        cmocka_unit_test(test_projection_with_bias),
        cmocka_unit_test(test_albert),
    };
    return cmocka_run_group_tests_name("factored embeddings", tests, NULL, NULL);
}
