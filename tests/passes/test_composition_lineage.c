/* Lineage over a chain of passes: whatever is pruned, removed, shared and pruned again,
 * every entry of a weight that kept its values is the entry of the model that was read
 * which the lineage names. */
#include "exec/ops.h"
#include "io/formats/modelfile.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"
#include "tests/support/passes.h"

#include <stdlib.h>
#include <unistd.h>

static const char BERT[] =
    "{model_type: bert, architectures: [BertForSequenceClassification],\n"
    " hidden_size: 16, num_hidden_layers: 5, num_attention_heads: 4,\n"
    " intermediate_size: 32, vocab_size: 20, max_position_embeddings: 8,\n"
    " num_labels: 2, initializer_range: 0.2}\n";

static const char RECIPE[] =
    "version: 1\n"
    "seed: 4\n"
    "data: {toy: {format: toy}}\n"
    "passes:\n"
    "  - prune_ffn: {keep: 24, score: random}\n"
    "  - prune_heads: {keep: 3, score: random}\n"
    "  - add_exits\n"
    "  - remove_layer: {drop: [1]}\n"
    "  - weight_multiplex: {groups: [1, 3], init: first, position: none}\n"
    "  - prune_heads: {keep: 2, score: random}\n"
    "  - importance: {score: random}\n"
    "  - prune_ffn: {keep: 11}\n"
    "  - remove_layer: {drop: [1]}\n"
    "  - prune_heads: {keep: 1, score: random}\n";

/* The model after the recipe, as its file gives it back. */
static Model *composed(const Model *base) {
    Diag *diag = diag_create();
    Model *model = model_copy(base), *read = NULL;
    char path[] = "/tmp/compress-lineage-XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    assert_ok(test_run_recipe(model, "test", RECIPE, false, 1, diag), diag);
    assert_ok(modelfile_write(model, path, NULL, diag), diag);
    assert_ok(modelfile_read(&read, path, ops_table(), true, diag), diag);
    unlink(path);
    model_destroy(model);
    diag_destroy(diag);
    return read;
}

static double value_at(const Tensor *tensor, int64_t row, int64_t column) {
    double value = 0;
    const int64_t columns = tensor->rank == 2 ? tensor->dim[1] : 1;
    tensor_read_f64(tensor, row * columns + column, 1, &value);
    return value;
}

/* Compares all entries; how many axes were cut. */
static int compare_storage(const Storage *before, const Storage *after) {
    const Tensor *old = &before->tensor, *new = &after->tensor;
    assert_int_equal(old->rank, new->rank);
    const int64_t columns = new->rank == 2 ? new->dim[1] : 1;
    for (int64_t r = 0; r < new->dim[0]; r++)
        for (int64_t c = 0; c < columns; c++) {
            const int64_t row = lineage_index(&after->kept[0], r);
            const int64_t column = new->rank == 2 ? lineage_index(&after->kept[1], c) : 0;
            if (value_at(new, r, c) != value_at(old, row, column))
                fail_msg("%s: entry %lld, %lld is not %lld, %lld of the original",
                         after->name, (long long)r, (long long)c, (long long)row,
                         (long long)column);
        }
    return (after->kept[0].count > 0) + (new->rank == 2 && after->kept[1].count > 0);
}

static void test_lineage(void **state) {
    (void)state;
    Model *base = configured_model(BERT, 3), *model = composed(base);
    int compared = 0, cut = 0;
    for (int i = 0; i < model->graph->storage_count; i++) {
        const Storage *after = model->graph->storages[i];
        const Storage *before = graph_storage(base->graph, after->name);
        if (!before || after->tensor.rank > 2) continue;
        cut += compare_storage(before, after);
        compared++;
    }
    /* Two sets of shared weights, of layers 0 and 2: q, k, v, their biases, out, ffn_in
     * and its bias, ffn_out. */
    assert_int_equal(cut, 2 * 10);
    assert_true(compared > 30);
    const Tree *layers = tree_get(tree_get(model->provenance, "layers"), "encoder");
    static const int64_t left[] = {0, 3, 4};
    const Tree *layer = layers->first;
    for (int i = 0; i < 3; i++, layer = layer->next)
        assert_int_equal(layer->integer, left[i]);
    assert_null(layer);
    model_destroy(base);
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lineage)};
    return cmocka_run_group_tests_name("lineage over passes", tests, NULL, NULL);
}
