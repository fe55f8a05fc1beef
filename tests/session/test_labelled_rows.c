/* Labelled rows: the rows of a text's windows that have labels, and where a head begins
 * to see them alone. */
#include "exec/ops.h"
#include "io/datasets/text_windows.h"
#include "ir/model_parts.h"
#include "session/labelled_rows.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"

enum { COUNT = 23, LENGTH = 8, STRIDE = 3 };

/* Windows behind the first: each has at most STRIDE labels, those of the windows. */
static void test_rows(void **state) {
    (void)state;
    Diag *diag = diag_create();
    Batches *rows;
    int32_t tokens[COUNT], seen[COUNT] = {0};
    for (int k = 0; k < COUNT; k++) tokens[k] = k;
    Batches *data = text_windows_create("text", tokens, COUNT, LENGTH, STRIDE);
    assert_ok(labelled_rows_create(&rows, data, 1, data->count - 1, diag), diag);
    assert_int_equal(batches_masked(rows, LENGTH - 1), STRIDE);
    for (int64_t i = 0; i < rows->count; i++) {
        int32_t ids[LENGTH], mask[LENGTH], labels[STRIDE], positions[STRIDE];
        void *const dst[] = {ids, mask, labels, positions};
        const Fetch what = {.index = &i, .n = 1, .tokens = rows->length(rows, i)};
        assert_ok(rows->fetch(rows, &what, dst, diag), diag);
        assert_int_equal(ids[0], (i + 1) * STRIDE);
        for (int64_t m = 0; m < batches_masked(rows, what.tokens); m++) {
            if (labels[m] == INDEX_SKIP) continue;
            assert_int_equal(labels[m], ids[positions[m]] + 1);
            seen[labels[m]]++;
        }
    }
    for (int k = 0; k < COUNT; k++) assert_int_equal(seen[k], k >= LENGTH);
    batches_destroy(rows);
    batches_destroy(data);
    diag_destroy(diag);
}

/* In front of the head's matrix; of a classifier's scores nothing is left out. */
static void test_gather(void **state) {
    static const char *const CONFIGS[] = {
        "{model_type: llama, architectures: [LlamaForCausalLM], hidden_size: 8,\n"
        " num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 16,\n"
        " vocab_size: 12}\n",
        "{model_type: gemma2, architectures: [Gemma2ForCausalLM], hidden_size: 8,\n"
        " num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 2,\n"
        " head_dim: 4, intermediate_size: 16, vocab_size: 12}\n",
        "{model_type: bert, architectures: [BertForSequenceClassification],\n"
        " hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2,\n"
        " intermediate_size: 16, vocab_size: 12, max_position_embeddings: 6}\n"};
    (void)state;
    Diag *diag = diag_create();
    for (int i = 0; i < 3; i++) {
        bool done;
        Model *model = configured_model(CONFIGS[i], 1);
        Node *logits = graph_output(model->graph, OUTPUT_LOGITS);
        assert_ok(labelled_rows_gather(&done, model->graph, logits, diag), diag);
        assert_int_equal(done, i < 2);
        assert_int_equal(logits->type.dim[1], done ? DIM_M : 2);
        for (const Node *node = logits; done && !node_is(node, &op_gather_tokens);
             node = node->in[0])
            assert_false(node_has_trait(node, OP_LEAF));
        model_destroy(model);
    }
    diag_destroy(diag);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_gather)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
