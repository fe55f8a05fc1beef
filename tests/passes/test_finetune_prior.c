/* finetune and distill under Gaussian priors, through the pipeline: threads, plans,
 * files, records, what is refused. */
#include "exec/ops.h"
#include "io/formats/modelfile.h"
#include "ir/random.h"
#include "ir/storage.h"
#include "tests/support/check.h"
#include "tests/support/passes.h"
#include "tests/support/rounding.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ORIGIN "0123456789abcdef0123456789abcdef"
#define HEAD   "version: 1\nseed: 3\ndata: {toy: {format: toy}}\npasses:\n"
#define RUN    "data: toy, epochs: 2, batch_size: 16, lr: 0.01"

/* Positive numbers for variances and their like; a diagonal matrix when `square`. */
static void fill(Tensor *tensor, uint64_t key, bool square, Diag *diag) {
    void *to = NULL;
    assert_ok(tensor_writable(tensor, &to, diag), diag);
    for (int64_t i = 0; i < tensor_count(tensor); i++) {
        const bool zero = square && i % (tensor->dim[0] + 1) != 0;
        ((float *)to)[i] =
            zero ? 0 : (float)(0.01 + 0.01 * random_uniform(key, (uint64_t)i));
    }
}

/* A Gaussian around the storage's weights. */
static void put_gaussian(Model *model, Storage *storage, GaussianForm form, Diag *diag) {
    Gaussian *g = gaussian_create(model->arena, form, DTYPE_F32, &storage->tensor,
                                  form == GAUSSIAN_LOW_RANK ? 3 : 0, ORIGIN);
    assert_ok(gaussian_allocate(g, diag), diag);
    void *mean = NULL;
    assert_ok(tensor_writable(&g->mean, &mean, diag), diag);
    tensor_read_f32(&storage->tensor, 0, tensor_count(&storage->tensor), mean);
    if (form == GAUSSIAN_KRON) {
        fill(&g->row, 1, true, diag);
        fill(&g->column, 2, true, diag);
    } else {
        fill(&g->diagonal, 3, false, diag);
        if (form == GAUSSIAN_LOW_RANK) fill(&g->factor, 4, false, diag);
    }
    storage->gaussian = g;
}

/* A model whose layers have Gaussians of all forms, its head none. */
static Model *model_with_priors(Diag *diag) {
    Model *model = toy_vit(1);
    for (int i = 0; i < model->graph->storage_count; i++) {
        Storage *storage = model->graph->storages[i];
        if (strncmp(storage->name, "classifier", 10) == 0) continue;
        const bool matrix = storage->tensor.rank == 2;
        const GaussianForm form = strstr(storage->name, "query") ? GAUSSIAN_LOW_RANK
                                  : matrix && strstr(storage->name, "key")
                                      ? GAUSSIAN_KRON
                                      : GAUSSIAN_DIAGONAL;
        put_gaussian(model, storage, form, diag);
    }
    return model;
}

/* Leaves shapes alone, as a plan has them. */
static void drop_data(Model *model) {
    for (int i = 0; i < model->graph->storage_count; i++) {
        Storage *storage = model->graph->storages[i];
        const Tensor *t = &storage->tensor;
        const Tensor shape = tensor_shape(t->dtype, t->rank, t->dim);
        tensor_release(&storage->tensor);
        storage->tensor = shape;
        gaussian_release(storage->gaussian);
    }
}

static Model *run(const char *yaml, bool plan, int threads) {
    Diag *diag = diag_create();
    Model *model = model_with_priors(diag);
    if (plan) drop_data(model);
    assert_ok(test_run_recipe(model, "test", yaml, plan, threads, diag), diag);
    diag_destroy(diag);
    return model;
}

static void expect_same(Model *one, Model *two) {
    char a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
    model_hash(one, a);
    model_hash(two, b);
    assert_string_equal(a, b);
}

static const Gaussian *gaussian_of(const Model *model, const char *name) {
    const Storage *storage = graph_storage(model->graph, name);
    assert_non_null(storage);
    return storage->gaussian;
}

#define QUERY "vit.encoder.layer.0.attention.attention.query.weight"

static const char *const RECIPES[] = {
    HEAD "  - finetune: {objective: map, " RUN "}\n",
    HEAD "  - finetune: {objective: variational, prior_weight: 0.1, " RUN "}\n",
    HEAD "  - finetune: {objective: variational, freeze: ['*.query.*'], " RUN "}\n",
    HEAD "  - distill: {objective: variational, label: 1, attention: 0, hidden: 0, " RUN
         "}\n"
         "  - finetune: {objective: map, prior_scale: 2, " RUN "}\n",
    HEAD "  - estimate_posterior: {samples: 3, " RUN "}\n"
         "  - remove_layer: {drop: [2]}\n"
         "  - finetune: {objective: variational, " RUN "}\n"
         "  - finetune: {objective: map, " RUN "}\n",
    HEAD "  - finetune: {objective: variational, keep_prior: false, " RUN "}\n",
};

enum { RECIPE_COUNT = sizeof RECIPES / sizeof *RECIPES };

static void test_threads(void **state) {
    (void)state;
    for (int i = 0; i < RECIPE_COUNT; i++) {
        Model *one = run(RECIPES[i], false, 1), *two = run(RECIPES[i], false, 2);
        expect_same(one, two);
        model_destroy(one);
        model_destroy(two);
    }
}

/* A prior that is not kept has trained the same weights, and nothing is left of it. */
static void test_without_prior(void **state) {
    (void)state;
    static const char *const PAIRS[][2] = {
        {HEAD "  - finetune: {objective: map, " RUN "}\n",
         HEAD "  - finetune: {objective: map, keep_prior: false, " RUN "}\n"},
        {HEAD "  - finetune: {objective: variational, " RUN "}\n",
         HEAD "  - finetune: {objective: variational, keep_prior: false, " RUN "}\n"},
    };
    for (int i = 0; i < 2; i++) {
        Model *kept = run(PAIRS[i][0], false, 1), *gone = run(PAIRS[i][1], false, 1);
        assert_true(graph_gaussian_count(kept->graph) > 0);
        assert_int_equal(graph_gaussian_count(gone->graph), 0);
        assert_int_equal(kept->graph->storage_count, gone->graph->storage_count);
        for (int j = 0; j < kept->graph->storage_count; j++) {
            const Tensor *a = &kept->graph->storages[j]->tensor;
            const Tensor *b = &gone->graph->storages[j]->tensor;
            assert_memory_equal(tensor_data(a), tensor_data(b), tensor_bytes(a));
        }
        model_destroy(kept);
        model_destroy(gone);
    }
}

static void expect_same_types(const Model *one, const Model *two) {
    assert_int_equal(one->graph->storage_count, two->graph->storage_count);
    for (int i = 0; i < one->graph->storage_count; i++) {
        const Storage *a = one->graph->storages[i], *b = two->graph->storages[i];
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->tensor.dtype, b->tensor.dtype);
        assert_int_equal(!a->gaussian, !b->gaussian);
        if (!a->gaussian) continue;
        assert_int_equal(a->gaussian->form, b->gaussian->form);
        assert_int_equal(a->gaussian->mean.dtype, b->gaussian->mean.dtype);
        assert_int_equal(gaussian_bytes(a->gaussian), gaussian_bytes(b->gaussian));
        assert_true(gaussian_fits(a->gaussian, &a->tensor));
        assert_true(gaussian_fits(b->gaussian, &b->tensor));
    }
}

/* A plan leaves weights and Gaussians of the types and forms that a run leaves. */
static void test_plan(void **state) {
    (void)state;
    for (int i = 0; i < RECIPE_COUNT; i++) {
        Model *ran = run(RECIPES[i], false, 2), *planned = run(RECIPES[i], true, 1);
        expect_same_types(ran, planned);
        model_destroy(ran);
        model_destroy(planned);
    }
}

/* Variational inference leaves weights as means and variances that have moved; frozen
 * storages and, with map, all keep their Gaussian. */
static void test_result(void **state) {
    (void)state;
    Model *model = run(RECIPES[1], false, 2);
    const Gaussian *q = gaussian_of(model, QUERY);
    const Tensor *weights = &graph_storage(model->graph, QUERY)->tensor;
    assert_int_equal(q->form, GAUSSIAN_DIAGONAL);
    assert_string_equal(q->origin, ORIGIN);
    for (int64_t i = 0; i < tensor_count(weights); i++) {
        double w, mean, variance;
        tensor_read_f64(weights, i, 1, &w);
        gaussian_mean_f64(q, i, 1, &mean);
        gaussian_variance_f64(q, i, 1, &variance);
        assert_true(w == mean && variance > 0 && isfinite(variance));
    }
    assert_null(gaussian_of(model, "classifier.weight"));
    model_destroy(model);
    model = run(RECIPES[2], false, 2);
    assert_int_equal(gaussian_of(model, QUERY)->form, GAUSSIAN_LOW_RANK);
    model_destroy(model);
    model = run(RECIPES[0], false, 2);
    assert_int_equal(gaussian_of(model, QUERY)->form, GAUSSIAN_LOW_RANK);
    model_destroy(model);
}

/* The posterior is in the model's file. */
static void test_file(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Arena *arena = arena_create();
    const char *base = getenv("TMPDIR");
    char *path = arena_printf(arena, "%s/prior.XXXXXX", base ? base : "/tmp");
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    Model *model = run(RECIPES[1], false, 2), *read = NULL;
    assert_ok(modelfile_write(model, path, NULL, diag), diag);
    assert_ok(modelfile_read(&read, path, ops_table(), true, diag), diag);
    expect_same(model, read);
    unlink(path);
    model_destroy(model);
    model_destroy(read);
    arena_destroy(arena);
    diag_destroy(diag);
}

static const Tree *first_record(const Model *model) {
    const Tree *steps = tree_get(model->provenance, "steps");
    assert_non_null(steps);
    const Tree *record = tree_get(steps->first, "record");
    assert_non_null(record);
    return record;
}

static void test_record(void **state) {
    (void)state;
    Model *model = run(RECIPES[0], false, 2);
    const Tree *record = first_record(model);
    const Tree *names = tree_get(record, "without_prior");
    assert_non_null(tree_get(record, "last_prior"));
    assert_non_null(names);
    assert_int_equal(names->count, 2);
    model_destroy(model);
    model = run(HEAD "  - finetune: {" RUN "}\n", false, 2);
    assert_null(tree_get(first_record(model), "last_prior"));
    model_destroy(model);
}

/* ---- evaluation with drawn weights ---- */

/* What evaluate records of a model. */
static const Tree *evaluate(Model *model, const char *options, int threads) {
    Diag *diag = diag_create();
    char yaml[256];
    snprintf(yaml, sizeof yaml, HEAD "  - evaluate: {data: toy%s}\n", options);
    assert_ok(test_run_recipe(model, "test", yaml, false, threads, diag), diag);
    diag_destroy(diag);
    return last_record(model);
}

/* The mean of predictions has at most the mean of their losses (Jensen), and is the
 * prediction itself when there is one draw, or no variance. */
static void test_draws(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Model *model = model_with_priors(diag);
    const double plain = number(evaluate(model, "", 1), "loss");
    const Tree *record = evaluate(model, ", draws: 8", 1);
    const Tree *single = tree_get(record, "single_draws");
    const double loss = number(record, "loss"), mean = number(single, "loss");
    assert_true(loss < mean - 1e-3);
    assert_true(fabs(loss - plain) > 1e-3);
    assert_true(number(record, "samples") == 60 && number(record, "draws") == 8);
    assert_true(number(evaluate(model, ", draws: 8", 2), "loss") == loss);
    record = evaluate(model, ", draws: 1, limit: 50", 2);
    assert_true(number(record, "samples") == 50);
    /* losses of predictions, of which floats are averaged */
    assert_within(number(record, "loss"),
                  number(tree_get(record, "single_draws"), "loss"),
                  rounding_tolerance(PRECISION_F32, FUNCTION_TERMS, 1));
    for (int i = 0; i < model->graph->storage_count; i++) {
        Gaussian *g = model->graph->storages[i]->gaussian;
        if (!g) continue;
        Tensor *all[] = {&g->diagonal, &g->factor, &g->row};
        for (int t = 0; t < 3; t++) {
            void *to = NULL;
            if (!all[t]->buf) continue;
            assert_ok(tensor_writable(all[t], &to, diag), diag);
            memset(to, 0, tensor_bytes(all[t]));
        }
    }
    record = evaluate(model, ", draws: 3", 1);
    assert_within(number(record, "loss"), plain,
                  rounding_tolerance(PRECISION_F32, FUNCTION_TERMS, 1));
    model_destroy(model);
    diag_destroy(diag);
}

static void set_all(Tensor *tensor, float value, Diag *diag) {
    void *to = NULL;
    assert_ok(tensor_writable(tensor, &to, diag), diag);
    for (int64_t i = 0; i < tensor_count(tensor); i++) ((float *)to)[i] = value;
}

/* Logits that are the drawn bias alone, N(0, 4) each: the mean loss of a draw is
 * E log(e^a + e^b + e^c), here from draws of the test's own; the mean prediction is
 * uniform. */
static void test_draws_of_bias(void **state) {
    (void)state;
    enum { MANY = 20000, DRAWS = 400 };
    Diag *diag = diag_create();
    Model *model = toy_vit(1);
    Storage *bias = graph_storage(model->graph, "classifier.bias");
    set_all(&graph_storage(model->graph, "classifier.weight")->tensor, 0, diag);
    put_gaussian(model, bias, GAUSSIAN_DIAGONAL, diag);
    set_all(&bias->gaussian->mean, 0, diag);
    set_all(&bias->gaussian->diagonal, 4, diag);
    double want = 0;
    for (uint64_t i = 0; i < MANY; i++)
        want += log(exp(2 * random_normal(1, i)) + exp(2 * random_normal(2, i)) +
                    exp(2 * random_normal(3, i)));
    const Tree *record = evaluate(model, ", draws: 400", 2);
    const double mean = number(tree_get(record, "single_draws"), "loss");
    const double deviation = 2; /* of one draw's loss, at most about */
    assert_true(fabs(mean - want / MANY) < 3 * deviation / sqrt(DRAWS));
    assert_true(fabs(number(record, "loss") - log(3)) < 0.02);
    model_destroy(model);
    diag_destroy(diag);
}

/* ---- what is refused ---- */

static void expect_refused(Model *model, const char *pass, bool plan, const char *options,
                           Status status, const char *message) {
    Diag *diag = diag_create();
    assert_int_equal(test_run_pass(model, pass, options, plan, diag), status);
    char *text = diag_text(diag);
    if (!strstr(text, message)) fail_msg("no \"%s\" in: %s", message, text);
    free(text);
    diag_destroy(diag);
}

static void test_refused(void **state) {
    (void)state;
    for (int plan = 0; plan < 2; plan++) {
        Model *model = toy_vit(1);
        if (plan) drop_data(model);
        expect_refused(model, "finetune", plan, "{objective: map, data: toy}",
                       STATUS_MODEL, "estimate_posterior");
        expect_refused(model, "finetune", plan, "{objective: variational, data: toy}",
                       STATUS_MODEL, "Gaussian prior");
        expect_refused(model, "evaluate", plan, "{draws: 2, data: toy}", STATUS_MODEL,
                       "estimate_posterior");
        model_destroy(model);
    }
    static const char *const OPTIONS[][2] = {
        {"{data: toy, prior_weight: 2}", "prior_weight: needs objective: map or"},
        {"{data: toy, prior_scale: 2}", "prior_scale: needs objective: map or"},
        {"{data: toy, objective: map, init_variance: 1}",
         "init_variance: needs objective: variational"},
        {"{data: toy, objective: map, variance_lr: 2}",
         "variance_lr: needs objective: variational"},
    };
    Model *model = toy_vit(1);
    for (size_t i = 0; i < sizeof OPTIONS / sizeof *OPTIONS; i++)
        expect_refused(model, "finetune", true, OPTIONS[i][0], STATUS_RECIPE,
                       OPTIONS[i][1]);
    expect_refused(model, "evaluate", true, "{data: toy, draws: 2, exits: each}",
                   STATUS_RECIPE, "last exit");
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads), cmocka_unit_test(test_without_prior),
        cmocka_unit_test(test_plan),    cmocka_unit_test(test_result),
        cmocka_unit_test(test_file),    cmocka_unit_test(test_record),
        cmocka_unit_test(test_draws),   cmocka_unit_test(test_draws_of_bias),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("finetune_prior", tests, NULL, NULL);
}
