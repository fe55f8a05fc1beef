/* Comparing models: errors against closed forms, entries that were kept against what was
 * cut, and what a changed weight does to the outputs. */
#include "exec/ops.h"
#include "io/formats/load.h"
#include "io/formats/safetensors.h"
#include "ir/storage.h"
#include "session/compare/compare.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VIT "tests/data/reference/vit"

typedef struct Bench {
    Arena *arena;
    Diag *diag;
    Model *models[2];
    Comparison it;
} Bench;

static Bench bench_open(void) {
    Bench bench = {.arena = arena_create(), .diag = diag_create()};
    for (int i = 0; i < 2; i++)
        assert_ok(model_load(&bench.models[i], VIT, ops_table(), true, bench.diag),
                  bench.diag);
    return bench;
}

static void bench_compare(Bench *bench, double tolerance) {
    const CompareOptions options = {.tolerance = tolerance, .threads = 1};
    const char *const paths[] = {"a", "b"};
    assert_ok(compare_models(&bench->it, bench->arena, bench->models, paths, &options,
                             bench->diag),
              bench->diag);
}

static void bench_close(Bench *bench) {
    for (int i = 0; i < 2; i++) model_destroy(bench->models[i]);
    diag_destroy(bench->diag);
    arena_destroy(bench->arena);
}

/* Multiplies a storage of the second model. */
static void multiply(Bench *bench, const char *name, float by) {
    Storage *storage = graph_storage(bench->models[1]->graph, name);
    void *data;
    assert_non_null(storage);
    assert_ok(tensor_writable(&storage->tensor, &data, bench->diag), bench->diag);
    for (int64_t i = 0; i < tensor_count(&storage->tensor); i++) ((float *)data)[i] *= by;
}

static const StoragePair *pair_of(const Bench *bench, const char *where) {
    for (int i = 0; i < bench->it.storages.count; i++) {
        const StoragePair *pair = &bench->it.storages.pairs[i];
        if (pair->where && strcmp(pair->where, where) == 0) return pair;
    }
    fail_msg("no weight of %s", where);
    return NULL;
}

static const OutputPair *output_of(const Bench *bench, const char *name) {
    for (int i = 0; i < bench->it.outputs.count; i++)
        if (strcmp(bench->it.outputs.pairs[i].name, name) == 0)
            return &bench->it.outputs.pairs[i];
    fail_msg("no output %s", name);
    return NULL;
}

/* |a - 1.5 a| / |a| is 0.5, and logits that are doubled differ by as much as they were,
 * with the same class on top. */
static void test_errors(void **state) {
    (void)state;
    Bench bench = bench_open();
    multiply(&bench, "vit.encoder.layer.1.intermediate.dense.weight", 1.5f);
    bench_compare(&bench, 0);
    const StoragePair *pair = pair_of(&bench, "encoder.1.ffn_in weight");
    double largest = 0, value;
    for (int64_t i = 0; i < tensor_count(&pair->a->tensor); i++) {
        tensor_read_f64(&pair->a->tensor, i, 1, &value);
        largest = fmax(largest, fabs(value));
    }
    assert_int_equal(pair->change, STORAGE_CHANGED);
    assert_true(fabs(pair->relative - 0.5) < 1e-7);
    assert_true(fabs(pair->largest - 0.5 * largest) < 1e-7);
    assert_int_equal(bench.it.storages.counts[STORAGE_EQUAL], 55);
    assert_true(bench.it.storages_differ && bench.it.outputs_differ);
    assert_false(bench.it.structure_differs || bench.it.config_differs);
    bench_close(&bench);

    bench = bench_open();
    multiply(&bench, "classifier.weight", 2);
    multiply(&bench, "classifier.bias", 2);
    bench_compare(&bench, 0);
    assert_true(fabs(output_of(&bench, "logits")->relative - 1) < 1e-6);
    assert_true(output_of(&bench, "logits")->agreement == 1);
    assert_true(output_of(&bench, "last_hidden_state")->relative == 0);
    bench_compare(&bench, 1.01);
    assert_int_equal(bench.it.storages.counts[STORAGE_CLOSE], 2);
    assert_false(bench.it.differs);
    bench_close(&bench);
}

/* Rows with a NaN have no largest logit: they do not agree, even where both have one. */
static void test_nan(void **state) {
    (void)state;
    Bench bench = bench_open();
    multiply(&bench, "classifier.bias", NAN);
    bench_compare(&bench, 0);
    assert_true(output_of(&bench, "logits")->agreement == 0);
    assert_true(isnan(output_of(&bench, "logits")->relative));
    assert_true(bench.it.outputs_differ);
    model_destroy(bench.models[0]);
    bench.models[0] = model_copy(bench.models[1]);
    bench_compare(&bench, 0);
    assert_true(output_of(&bench, "logits")->agreement == 0);
    assert_true(output_of(&bench, "logits")->relative == 0);
    assert_false(bench.it.outputs_differ);
    bench_close(&bench);
}

/* Cuts feed-forward units of a layer of the second model and forgets which. */
static void cut_units(Bench *bench, int layer, const int64_t *keep, int64_t count) {
    static const struct {
        Role role;
        const char *operand;
        int axis;
    } CUTS[] = {{ROLE_FFN_IN, "weight", 0},
                {ROLE_FFN_IN, "bias", 0},
                {ROLE_FFN_OUT, "weight", 1}};
    Graph *graph = bench->models[1]->graph;
    for (int i = 0; i < 3; i++) {
        Node *leaf = node_operand(graph_find(graph, "encoder", layer, CUTS[i].role),
                                  CUTS[i].operand);
        assert_ok(storage_keep(graph, leaf, STORAGE_ALL_USERS, CUTS[i].axis, keep, count,
                               bench->diag),
                  bench->diag);
        storage_forget_lineage(leaf->storage, CUTS[i].axis);
    }
    for (Node *node = graph->first; node; node = node->next)
        if (!node_is_leaf(node)) assert_ok(node_infer(node, bench->diag), bench->diag);
}

static void expect_units(const Bench *bench, const char *where, int axis,
                         const int64_t *keep, int64_t count, double relative) {
    const StoragePair *pair = pair_of(bench, where);
    assert_int_equal(pair->change, STORAGE_CUT);
    assert_true(pair->by_values);
    assert_int_equal(lineage_size(&pair->kept[axis]), count);
    for (int64_t i = 0; i < count; i++)
        assert_int_equal(lineage_index(&pair->kept[axis], i), keep[i]);
    assert_true(fabs(pair->relative - relative) < 1e-6);
}

/* Units are found by their values, also when those are 1.25 times what they were. */
static void test_units(void **state) {
    static const int64_t KEEP[] = {0, 5, 6, 31, 32, 40, 63};
    enum { COUNT = 7 };
    (void)state;
    for (int round = 0; round < 2; round++) {
        Bench bench = bench_open();
        cut_units(&bench, 2, KEEP, COUNT);
        if (round)
            multiply(&bench, "vit.encoder.layer.2.intermediate.dense.weight", 1.25f);
        bench_compare(&bench, 0);
        expect_units(&bench, "encoder.2.ffn_in weight", 0, KEEP, COUNT, round ? 0.25 : 0);
        expect_units(&bench, "encoder.2.ffn_in bias", 0, KEEP, COUNT, 0);
        expect_units(&bench, "encoder.2.ffn_out weight", 1, KEEP, COUNT, 0);
        assert_int_equal(bench.it.nodes.changed, 2); /* ffn_in and what follows it */
        assert_int_equal(bench.it.config.count, 1);
        bench_close(&bench);
    }
}

/* Weights that belong to no unit of the other model are not said to be kept. */
static void test_strangers(void **state) {
    static const int64_t KEEP[] = {1, 2, 3};
    (void)state;
    Bench bench = bench_open();
    cut_units(&bench, 0, KEEP, 3);
    multiply(&bench, "vit.encoder.layer.0.intermediate.dense.weight", -1);
    bench_compare(&bench, 0);
    assert_int_equal(pair_of(&bench, "encoder.0.ffn_in weight")->change, STORAGE_OTHER);
    assert_int_equal(pair_of(&bench, "encoder.0.ffn_in bias")->change, STORAGE_OTHER);
    assert_int_equal(pair_of(&bench, "encoder.0.ffn_out weight")->change, STORAGE_CUT);
    bench_close(&bench);
}

/* Weights that became one differ, also where their values are the same. */
static void test_shared(void **state) {
    (void)state;
    Bench bench = bench_open();
    for (int m = 0; m < 2; m++) { /* norms of layers 0 and 1 get the same values */
        Graph *graph = bench.models[m]->graph;
        Node *first = graph_find(graph, "encoder", 0, ROLE_NORM1);
        Node *second = graph_find(graph, "encoder", 1, ROLE_NORM1);
        storage_copy_values(node_operand(second, "weight")->storage,
                            node_operand(first, "weight")->storage);
    }
    bench_compare(&bench, 0);
    assert_false(bench.it.differs);
    Graph *graph = bench.models[1]->graph;
    Node *norms[] = {graph_find(graph, "encoder", 0, ROLE_NORM1),
                     graph_find(graph, "encoder", 1, ROLE_NORM1)};
    storage_share((StorageUsers){norms, 2}, "weight");
    bench_compare(&bench, 0);
    assert_int_equal(pair_of(&bench, "encoder.1.norm1 weight")->change, STORAGE_EQUAL);
    assert_int_equal(pair_of(&bench, "encoder.1.norm1 weight")->merged, 2);
    assert_int_equal(pair_of(&bench, "encoder.1.norm1 weight")->split, 1);
    assert_int_equal(bench.it.storages.reshared, 2);
    assert_true(bench.it.storages_differ && !bench.it.outputs_differ);
    bench_close(&bench);
}

/* Writes token inputs of `tokens` tokens, of which four are real. */
static void write_tokens(const char *path, int64_t tokens, Diag *diag) {
    static const char *const names[] = {"attention_mask", "input_ids", "token_type_ids"};
    NamedTensor list[3];
    for (int i = 0; i < 3; i++) {
        void *data;
        list[i].name = names[i];
        assert_ok(
            tensor_create(&list[i].tensor, DTYPE_I32, 2, (int64_t[]){1, tokens}, diag),
            diag);
        assert_ok(tensor_writable(&list[i].tensor, &data, diag), diag);
        for (int64_t t = 0; t < tokens; t++)
            ((int32_t *)data)[t] = i == 0 ? t < 4 : i == 1 ? (int32_t)(3 + t) : 0;
    }
    assert_ok(safetensors_write(path, list, 3, diag), diag);
    for (int i = 0; i < 3; i++) tensor_release(&list[i].tensor);
}

/* Tokens that fill a text up count in no error. */
static void test_padding(void **state) {
    (void)state;
    double relative[2], largest[2];
    const char *const paths[] = {"a", "b"};
    for (int i = 0; i < 2; i++) {
        Bench bench = {.arena = arena_create(), .diag = diag_create()};
        char file[] = "/tmp/compare_tokens_XXXXXX";
        close(mkstemp(file));
        for (int m = 0; m < 2; m++)
            assert_ok(model_load(&bench.models[m], "tests/data/reference/bert",
                                 ops_table(), true, bench.diag),
                      bench.diag);
        multiply(&bench, "bert.encoder.layer.2.output.dense.weight", 1.5F);
        write_tokens(file, i ? 9 : 4, bench.diag);
        const CompareOptions options = {.threads = 1, .inputs = {.file = file}};
        assert_ok(compare_models(&bench.it, bench.arena, bench.models, paths, &options,
                                 bench.diag),
                  bench.diag);
        relative[i] = output_of(&bench, "last_hidden_state")->relative;
        largest[i] = output_of(&bench, "last_hidden_state")->largest;
        unlink(file);
        bench_close(&bench);
    }
    assert_true(relative[0] > 1e-3);
    assert_true(fabs(relative[0] - relative[1]) < 1e-5 * relative[0]);
    assert_true(fabs(largest[0] - largest[1]) < 1e-5 * largest[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nan),    cmocka_unit_test(test_errors),
        cmocka_unit_test(test_units),  cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_shared), cmocka_unit_test(test_padding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
