/* What pruning must do to the numbers: zero units leave exactly, importance is the
 * derivative it claims to be, lineages lead back to the original weights. */
#include "exec/ops.h"
#include "io/modelfile.h"
#include "ir/rewrite.h"
#include "ir/verify.h"
#include "passes/prune.h"
#include "tests/support/check.h"
#include "tests/support/passes.h"
#include "tests/support/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LAYERS = 4, WIDTH = 16, HEADS = 2, HIDDEN = 32, CLASSES = 3, SAMPLES = 60 };

#define OUT(l)     layer_storage(l, "attention.output.dense.weight")
#define FFN_OUT(l) layer_storage(l, "output.dense.weight")
#define FFN_IN(l)  layer_storage(l, "intermediate.dense.weight")

/* Name of a storage of a layer; valid until the next call. */
static const char *layer_storage(int layer, const char *part) {
    static char name[128];
    snprintf(name, sizeof name, "vit.encoder.layer.%d.%s", layer, part);
    return name;
}

static Storage *find_storage(const Model *model, const char *name) {
    Storage *storage = graph_storage(model->graph, name);
    if (!storage) fail_msg("no storage %s", name);
    return storage;
}

/* Weights as doubles, to be freed. */
static double *read_weights(const Storage *storage) {
    const int64_t count = tensor_count(&storage->tensor);
    double *out = calloc((size_t)count, sizeof *out);
    tensor_read_f64(&storage->tensor, 0, count, out);
    return out;
}

/* Multiplies columns [first, first + count) of a matrix; it becomes float64. */
static void scale_columns(Model *model, const char *name, int64_t first, int64_t count,
                          double by) {
    Diag *diag = diag_create();
    Storage *storage = find_storage(model, name);
    const int64_t columns = storage->tensor.dim[1];
    double *w = read_weights(storage);
    for (int64_t row = 0; row < storage->tensor.dim[0]; row++)
        for (int64_t c = first; c < first + count; c++) w[row * columns + c] *= by;
    Tensor scaled;
    void *data = NULL;
    assert_ok(tensor_create(&scaled, DTYPE_F64, 2, storage->tensor.dim, diag), diag);
    assert_ok(tensor_writable(&scaled, &data, diag), diag);
    memcpy(data, w, tensor_bytes(&scaled));
    tensor_release(&storage->tensor);
    storage->tensor = scaled;
    free(w);
    diag_destroy(diag);
}

/* Runs the model on all toy samples in double: logits, or the mean label loss. */
static double run_model(Model *model, double *logits) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Graph *graph = graph_copy(arena, model->graph);
    Batches *toy = toy_batches();
    float pixels[SAMPLES * 64];
    int32_t labels[SAMPLES];
    int64_t index[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) index[i] = i;
    assert_ok(
        toy->fetch(toy, &(Fetch){index, SAMPLES, 0, 0}, (void *[]){pixels, labels}, diag),
        diag);
    const Type type = {DTYPE_I32, 1, {DIM_N}};
    Node *loss = NULL, *out = graph_output(graph, "logits");
    Node *label = graph_input(graph, "labels", &type);
    assert_ok(edit_node(&loss, graph, NULL, "cross_entropy", (Node *[]){out, label}, 2,
                        diag, NULL),
              diag);
    Runner r;
    runner_open(&r, graph, SAMPLES, PRECISION_F64, NULL, (Node *[]){out, loss}, 2);
    double *input = workspace_input(r.workspace, "pixel_values");
    for (int i = 0; i < SAMPLES * 64; i++) input[i] = (double)pixels[i];
    memcpy(workspace_input(r.workspace, "labels"), labels, sizeof labels);
    runner_run(&r);
    const double result = *(const double *)workspace_value(r.workspace, loss);
    if (logits)
        memcpy(logits, workspace_value(r.workspace, out),
               SAMPLES * CLASSES * sizeof(double));
    runner_close(&r);
    graph_release(graph);
    batches_destroy(toy);
    diag_destroy(diag);
    arena_destroy(arena);
    return result;
}

static void expect_equal_logits(Model *a, Model *b, double tolerance) {
    double x[SAMPLES * CLASSES], y[SAMPLES * CLASSES];
    run_model(a, x);
    run_model(b, y);
    for (int i = 0; i < SAMPLES * CLASSES; i++)
        assert_true(fabs(x[i] - y[i]) < tolerance);
}

static void run_pass(Model *model, const char *pass, const char *options) {
    Diag *diag = diag_create();
    assert_ok(test_run_pass(model, pass, options, false, diag), diag);
    assert_ok(graph_verify(model->graph, STATUS_INTERNAL, diag), diag);
    diag_destroy(diag);
}

/* Runs a pass that must fail with STATUS_MODEL and say `part`. */
static void expect_failure(Model *model, const char *pass, const char *options,
                           const char *part) {
    Diag *diag = diag_create();
    char *text = NULL;
    size_t length = 0;
    const Status status = test_run_pass(model, pass, options, false, diag);
    FILE *out = open_memstream(&text, &length);
    diag_print(diag, out);
    fclose(out);
    if (!strstr(text, part)) fail_msg("expected \"%s\" in:\n%s", part, text);
    assert_int_equal(status, STATUS_MODEL);
    free(text);
    diag_destroy(diag);
}

/* Stored score of a unit; list is "heads" or "ffn". */
static double stored_score(const Model *model, const char *list, int block, int unit) {
    const Tree *entry = tree_get(tree_get(model->provenance, "importance"), list);
    assert_non_null(entry);
    for (entry = entry->first; block > 0; block--) entry = entry->next;
    const Tree *item = tree_get(entry, "scores")->first;
    for (; unit > 0; unit--) item = item->next;
    assert_int_equal(item->kind, TREE_FLOAT);
    return item->real;
}

/* ---- exactness ---- */

static int64_t attention_heads(const Model *model, int layer) {
    const Node *node = graph_find(model->graph, "encoder", layer, ROLE_ATTENTION);
    return node ? ((const AttentionAttrs *)node->attrs)->heads : 0;
}

/* Gives layer 1 an attention bias [H, T, S] of its own. */
static void add_bias(Model *model) {
    Diag *diag = diag_create();
    Node *leaf = NULL;
    const int64_t dim[] = {HEADS, 5, 5};
    assert_ok(
        edit_param(&leaf, model->graph, "bias", (Init){INIT_NORMAL, 1}, 3, dim, diag),
        diag);
    Node *attention = graph_find(model->graph, "encoder", 1, ROLE_ATTENTION);
    node_set_operand(model->graph, attention, "bias", leaf);
    assert_ok(model_init_weights(model, 3, diag), diag);
    diag_destroy(diag);
}

static void test_zero_heads(void **state) {
    (void)state;
    Model *model = toy_vit(2);
    add_bias(model);
    for (int l = 0; l < LAYERS; l++)
        scale_columns(model, OUT(l), l % HEADS * WIDTH / HEADS, WIDTH / HEADS, 0);
    Model *before = model_copy(model);
    run_pass(model, "prune_heads", "{keep: 1, score: magnitude}");
    expect_equal_logits(before, model, 1e-12);
    for (int l = 0; l < LAYERS; l++) {
        assert_int_equal(attention_heads(model, l), 1);
        const Storage *out = find_storage(model, OUT(l));
        assert_int_equal(out->tensor.dim[1], WIDTH / HEADS);
        assert_int_equal(lineage_index(&out->kept[1], 0), l % HEADS ? 0 : WIDTH / HEADS);
    }
    const Storage *bias = find_storage(model, "bias");
    assert_int_equal(bias->tensor.dim[0], 1);
    assert_int_equal(lineage_index(&bias->kept[0], 0), 0);
    model_destroy(before);
    model_destroy(model);
}

static void test_zero_units(void **state) {
    (void)state;
    Model *model = toy_vit(2);
    for (int l = 0; l < LAYERS; l++) scale_columns(model, FFN_OUT(l), 3 + l, 9, 0);
    Model *before = model_copy(model);
    run_pass(model, "importance", "{data: toy, abs: block}");
    for (int l = 0; l < LAYERS; l++) {
        assert_true(stored_score(model, "ffn", l, 3 + l) == 0);
        assert_true(stored_score(model, "ffn", l, 2 + l) > 0);
    }
    run_pass(model, "prune_ffn", "{keep: 23}");
    expect_equal_logits(before, model, 1e-12);
    const Storage *out = find_storage(model, FFN_OUT(0));
    assert_int_equal(lineage_index(&out->kept[1], 2), 2);
    assert_int_equal(lineage_index(&out->kept[1], 3), 12);
    model_destroy(before);
    model_destroy(model);
}

/* Identity mixing does not let a head that nobody reads reach the others. */
static void test_zero_heads_with_mixing(void **state) {
    (void)state;
    Model *model = toy_vit(2);
    run_pass(model, "weight_multiplex", "{group: 2}");
    for (int l = 0; l < LAYERS; l += 2) scale_columns(model, OUT(l), 0, WIDTH / HEADS, 0);
    Model *before = model_copy(model);
    run_pass(model, "prune_heads", "{keep: 1, score: magnitude}");
    expect_equal_logits(before, model, 1e-12);
    const Storage *mix = find_storage(model, "encoder.layer.3.mix_after");
    assert_int_equal(mix->tensor.dim[0], 1);
    assert_int_equal(mix->tensor.dim[1], 1);
    model_destroy(before);
    model_destroy(model);
}

/* Draws the biases of the output projections, which a new model has at zero. */
static void draw_biases(Model *model) {
    Diag *diag = diag_create();
    for (int l = 0; l < LAYERS; l++) {
        Storage *bias =
            find_storage(model, layer_storage(l, "attention.output.dense.bias"));
        const Tensor shape = tensor_shape(DTYPE_F32, 1, bias->tensor.dim);
        tensor_release(&bias->tensor);
        bias->tensor = shape;
        bias->init = (Init){INIT_NORMAL, 1};
    }
    assert_ok(model_init_weights(model, 3, diag), diag);
    diag_destroy(diag);
}

/* A layer without heads computes what it would with a zero output projection. */
static void test_empty_layers(void **state) {
    (void)state;
    Model *model = toy_vit(4);
    draw_biases(model);
    Model *before = model_copy(model);
    for (int l = 1; l < 3; l++) scale_columns(before, OUT(l), 0, WIDTH, 0);
    for (int l = 1; l < 3; l++) scale_columns(model, OUT(l), 0, WIDTH, 1e-9);
    run_pass(model, "prune_heads",
             "{ranking: global, keep_total: 4, score: magnitude, allow_empty: true}");
    for (int l = 0; l < LAYERS; l++)
        assert_int_equal(attention_heads(model, l), l == 1 || l == 2 ? 0 : HEADS);
    const Storage *bias =
        find_storage(model, layer_storage(1, "attention.output.dense.bias"));
    assert_int_equal(bias->tensor.rank, 3);
    expect_equal_logits(before, model, 1e-12);
    model_destroy(before);
    model_destroy(model);
}

/* ---- importance ---- */

/* Derivative of the loss when a unit's value is scaled by 1 - eps. */
static double difference(const Model *model, const char *name, int64_t first,
                         int64_t count) {
    const double eps = 1e-4;
    double loss[2];
    for (int i = 0; i < 2; i++) {
        Model *copy = model_copy(model);
        scale_columns(copy, name, first, count, i ? 1 + eps : 1 - eps);
        loss[i] = run_model(copy, NULL);
        model_destroy(copy);
    }
    return (loss[1] - loss[0]) / (2 * eps);
}

static void test_taylor(void **state) {
    (void)state;
    Model *model = toy_vit(6);
    run_pass(model, "importance",
             "{data: toy, abs: block, accumulate: sum_then_abs, batch_size: 25}");
    for (int l = 0; l < LAYERS; l++) {
        for (int h = 0; h < HEADS; h++) {
            const double d = fabs(difference(model, OUT(l), h * 8, 8));
            assert_true(fabs(stored_score(model, "heads", l, h) - d) < 1e-7 + 1e-4 * d);
        }
        for (int u = 0; u < HIDDEN; u += 5) {
            const double d = fabs(difference(model, FFN_OUT(l), u, 1));
            assert_true(fabs(stored_score(model, "ffn", l, u) - d) < 1e-7 + 1e-4 * d);
        }
    }
    model_destroy(model);
}

/* One batch: both orders of summing are one. Absolute values first give no less. */
static void test_reductions(void **state) {
    (void)state;
    static const char *const options[] = {
        "{data: toy, batch_size: 60}",
        "{data: toy, batch_size: 60, accumulate: sum_then_abs}",
        "{data: toy, batch_size: 7}",
        "{data: toy, batch_size: 60, abs: block}",
    };
    double score[4];
    for (int i = 0; i < 4; i++) {
        Model *model = toy_vit(6);
        run_pass(model, "importance", options[i]);
        score[i] = stored_score(model, "heads", 2, 1);
        model_destroy(model);
    }
    assert_true(fabs(score[0] - score[1]) < 1e-9);
    assert_true(score[2] > score[0]);
    assert_true(score[3] < score[0]);
}

/* Layers that share weights get scores of their own; those of equal layers differ only by
 * place, and the group keeps what is best in sum. */
static void test_shared_importance(void **state) {
    (void)state;
    Model *model = toy_vit(6);
    run_pass(model, "weight_multiplex", "{group: 4}");
    run_pass(model, "importance", "{data: toy}");
    double sum[HEADS] = {0};
    for (int l = 0; l < LAYERS; l++)
        for (int h = 0; h < HEADS; h++) sum[h] += stored_score(model, "heads", l, h);
    assert_true(stored_score(model, "heads", 0, 0) != stored_score(model, "heads", 1, 0));
    run_pass(model, "prune_heads", "{keep: 1, score: taylor}");
    const Storage *out = find_storage(model, OUT(0));
    assert_int_equal(lineage_index(&out->kept[1], 0), sum[1] > sum[0] ? 8 : 0);
    for (int l = 0; l < LAYERS; l++) assert_int_equal(attention_heads(model, l), 1);
    model_destroy(model);
}

/* ---- lineage ---- */

static void expect_rows(const Storage *original, const Storage *pruned) {
    double *all = read_weights(original), *kept = read_weights(pruned);
    const int64_t columns = original->tensor.dim[1];
    for (int64_t row = 0; row < pruned->tensor.dim[0]; row++) {
        const int64_t from = lineage_index(&pruned->kept[0], row);
        assert_memory_equal(kept + row * columns, all + from * columns,
                            (size_t)columns * sizeof(double));
    }
    free(all);
    free(kept);
}

static void test_two_prunings(void **state) {
    (void)state;
    Model *model = toy_vit(8), *original = model_copy(model);
    run_pass(model, "importance", "{data: toy}");
    run_pass(model, "prune_ffn", "{keep: 20}");
    const double best = stored_score(model, "ffn", 1, 7);
    run_pass(model, "prune_ffn", "{ranking: global, keep_total: 30}");
    run_pass(model, "prune_heads", "{keep: 1}");
    int64_t total = 0;
    for (int l = 0; l < LAYERS; l++) {
        const Storage *in = find_storage(model, FFN_IN(l));
        total += in->tensor.dim[0];
        expect_rows(find_storage(original, FFN_IN(l)), in);
        const char *query = layer_storage(l, "attention.attention.query.weight");
        expect_rows(find_storage(original, query), find_storage(model, query));
    }
    assert_int_equal(total, 30);
    assert_true(best > 0);
    model_destroy(original);
    model_destroy(model);
}

/* Lineage and scores survive the model file, and a later run uses them. */
static void test_saved(void **state) {
    (void)state;
    Model *model = toy_vit(8), *loaded = NULL;
    Diag *diag = diag_create();
    char path[] = "/tmp/compress-prune-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    run_pass(model, "importance", "{data: toy}");
    run_pass(model, "prune_heads", "{keep: 1}");
    assert_ok(modelfile_write(model, path, NULL, diag), diag);
    assert_ok(modelfile_read(&loaded, path, model->graph->ops, true, diag), diag);
    char a[HASH_TEXT_BYTES], b[HASH_TEXT_BYTES];
    run_pass(model, "prune_ffn", "{keep: 8}");
    run_pass(loaded, "prune_ffn", "{keep: 8}");
    model_hash(model, a);
    model_hash(loaded, b);
    assert_string_equal(a, b);
    const Storage *out = find_storage(loaded, OUT(2));
    assert_int_equal(lineage_size(&out->kept[1]), 8);
    unlink(path);
    model_destroy(model);
    model_destroy(loaded);
    diag_destroy(diag);
}

static void test_slice(void **state) {
    (void)state;
    static const uint16_t data[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    static const uint16_t want[8] = {1, 2, 5, 6, 7, 8, 11, 12};
    Model *model = model_create(ops_table());
    Diag *diag = diag_create();
    Storage *storage = NULL;
    Tensor mapped = tensor_shape(DTYPE_BF16, 3, (int64_t[]){2, 3, 2});
    assert_ok(graph_add_storage(&storage, model->graph, "w", &mapped, diag), diag);
    storage->tensor.buf = buf_wrap(data, sizeof data, NULL);
    Node *leaf = graph_param(model->graph, storage);
    assert_ok(prune_axis(model->graph, leaf, 1, (int64_t[]){0, 2}, 2, diag), diag);
    assert_int_equal(leaf->type.dim[1], 2);
    assert_memory_equal(tensor_data(&storage->tensor), want, sizeof want);
    assert_ok(prune_axis(model->graph, leaf, 1, (int64_t[]){1}, 1, diag), diag);
    assert_int_equal(lineage_index(&storage->kept[1], 0), 2);
    assert_int_equal(((const uint16_t *)tensor_data(&storage->tensor))[1], 6);
    model_destroy(model);
    diag_destroy(diag);
}

/* ---- planning ---- */

static int64_t count_parameters(const char *steps, bool plan) {
    char yaml[1000];
    snprintf(yaml, sizeof yaml, "version: 1\ndata: {toy: {format: toy}}\npasses:\n%s",
             steps);
    Model *model = toy_vit(1);
    Diag *diag = diag_create();
    for (int i = 0; plan && i < model->graph->storage_count; i++) {
        Tensor *tensor = &model->graph->storages[i]->tensor;
        const Tensor shape = tensor_shape(tensor->dtype, tensor->rank, tensor->dim);
        tensor_release(tensor);
        *tensor = shape;
    }
    assert_ok(test_run_recipe(model, "test", yaml, plan, 1, diag), diag);
    const int64_t count = graph_parameter_count(model->graph);
    model_destroy(model);
    diag_destroy(diag);
    return count;
}

/* Which layers a global ranking cuts is not known to a plan; how much is. */
static void test_plan_counts(void **state) {
    (void)state;
    static const char *const recipes[] = {
        "  - importance: {data: toy}\n"
        "  - prune_heads: {ranking: global, keep_total: 5}\n"
        "  - prune_ffn: {ranking: global, keep_ratio: 0.3}\n",
        "  - prune_ffn: {ranking: global, keep_total: 61, score: magnitude}\n"
        "  - prune_ffn: {ranking: global, keep_total: 7, score: magnitude}\n",
        "  - weight_multiplex: {group: 2}\n"
        "  - prune_ffn: {ranking: global, keep_total: 9, score: magnitude}\n",
    };
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        assert_int_equal(count_parameters(recipes[i], true),
                         count_parameters(recipes[i], false));
}

/* ---- models that do not fit ---- */

static void share(Model *model, int from, int to, Role source, Role target) {
    Node *a = graph_find(model->graph, "encoder", from, source);
    Node *b = graph_find(model->graph, "encoder", to, target);
    node_set_operand(model->graph, b, "weight", node_operand(a, "weight"));
    graph_remove_dead(model->graph);
}

static void test_unfit(void **state) {
    (void)state;
    Model *model = toy_vit(1);
    share(model, 0, 1, ROLE_V, ROLE_V);
    Node *attention = graph_find(model->graph, "encoder", 1, ROLE_ATTENTION);
    ((AttentionAttrs *)attention->attrs)->heads = 4;
    expect_failure(model, "prune_heads", "{keep: 1, score: random}",
                   "encoder.0 and encoder.1 share weights and must have equally many "
                   "heads, found 2 and 4");
    model_destroy(model);
    model = toy_vit(1);
    share(model, 0, 1, ROLE_OUT, ROLE_Q);
    expect_failure(model, "prune_heads", "{keep: 1, score: random}",
                   "\"vit.encoder.layer.0.attention.output.dense.weight\" cannot be cut");
    model_destroy(model);
    model = toy_vit(1);
    graph_set_output(model->graph, "keys",
                     graph_find(model->graph, "encoder", 2, ROLE_K));
    expect_failure(model, "importance", "{data: toy}",
                   "encoder.2: expected \"k\" to be a "
                   "projection read by attention");
    model_destroy(model);
}

/* Stored scores come from a file and may be anything. */
static void test_damaged_scores(void **state) {
    (void)state;
    static const struct {
        const char *path, *part;
        Tree value;
    } cases[] = {
        {"importance", "no stored", {.kind = TREE_INT}},
        {"importance.heads", "no stored", {.kind = TREE_MAP}},
        {"importance.heads.0", "other layers", {.kind = TREE_STRING, .string = "x"}},
        {"importance.heads.0.layer", "other layers", {.kind = TREE_INT, .integer = 3}},
        {"importance.heads.1.stack", "other layers", {.kind = TREE_NULL}},
        {"importance.heads.3.units", "other layers", {.kind = TREE_INT, .integer = 3}},
        {"importance.heads.0.scores", "damaged", {.kind = TREE_LIST}},
        {"importance.heads.0.scores.1", "damaged", {.kind = TREE_NULL}},
        {"importance.heads.0.scores.0", "damaged", {.kind = TREE_FLOAT, .real = NAN}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Model *model = toy_vit(1);
        Diag *diag = diag_create();
        run_pass(model, "importance", "{score: magnitude}");
        Tree *value = tree_copy(model->arena, &cases[i].value);
        assert_ok(tree_set(model->arena, model->provenance, cases[i].path, value, diag),
                  diag);
        expect_failure(model, "prune_heads", "{keep: 1}", cases[i].part);
        model_destroy(model);
        diag_destroy(diag);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zero_heads),
        cmocka_unit_test(test_zero_units),
        cmocka_unit_test(test_zero_heads_with_mixing),
        cmocka_unit_test(test_empty_layers),
        cmocka_unit_test(test_taylor),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_shared_importance),
        cmocka_unit_test(test_two_prunings),
        cmocka_unit_test(test_saved),
        cmocka_unit_test(test_slice),
        cmocka_unit_test(test_plan_counts),
        cmocka_unit_test(test_unfit),
        cmocka_unit_test(test_damaged_scores),
    };
    return cmocka_run_group_tests_name("pruning", tests, NULL, NULL);
}
