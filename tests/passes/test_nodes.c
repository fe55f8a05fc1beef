/* What nodes say of a graph: the tokens that it has positions for. */
#include "passes/nodes.h"
#include "tests/support/check.h"
#include "tests/support/configured.h"

/* Rows of the table behind those that are no positions, of two tables the smaller one. */
static void test_positions(void **state) {
    static const struct {
        const char *config;
        int64_t positions;
    } CASES[] = {
        {"{model_type: gpt2, architectures: [GPT2LMHeadModel], n_embd: 8, n_layer: 1,\n"
         " n_head: 2, vocab_size: 12, n_positions: 16}\n",
         16},
        {"{model_type: roberta, vocab_size: 12, hidden_size: 8, num_hidden_layers: 1,\n"
         " num_attention_heads: 2, intermediate_size: 8, pad_token_id: 1,\n"
         " max_position_embeddings: 9}\n",
         7},
        {"{model_type: bart, vocab_size: 11, d_model: 20, encoder_layers: 1,\n"
         " decoder_layers: 1, encoder_attention_heads: 4, decoder_attention_heads: 2,\n"
         " encoder_ffn_dim: 24, decoder_ffn_dim: 28, max_position_embeddings: 9}\n",
         9},
        {"{model_type: llama, architectures: [LlamaForCausalLM], vocab_size: 8,\n"
         " hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2,\n"
         " intermediate_size: 24, max_position_embeddings: 32}\n",
         0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Model *model = configured_model(CASES[i].config, 1);
        assert_int_equal(graph_positions(model->graph), CASES[i].positions);
        model_destroy(model);
    }
    Model *model = parsed_model("ir 1\n"
                                "input input_ids : i32[N, T]\n"
                                "param @words : f32[12, 4]\n"
                                "param @many : f32[9, 4]\n"
                                "param @few : f32[7, 4]\n"
                                "%1 = embedding($input_ids, @words) : f32[N, T, 4]\n"
                                "%2 = add_position(%1, @many) : f32[N, T, 4]\n"
                                "%3 = add_position(%2, @few) {offset=2} : f32[N, T, 4]\n"
                                "%4 = add_position(%3, @many) : f32[N, T, 4]\n"
                                "output last_hidden_state = %4\n",
                                1);
    assert_int_equal(graph_positions(model->graph), 5);
    model_destroy(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_positions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
