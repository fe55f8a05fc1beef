/* Encoder-decoder models: Marian's folders and their names, both families from a
 * configuration, model files, and configurations that do not fit. */
#include "io/formats/modelfile.h"
#include "tests/io/folder_fixture.h"

/* Where removal and pruning find the blocks. */
static void roles(void **state) {
    Fixture *f = *state;
    static const Role SELF[] = {ROLE_Q,       ROLE_K,     ROLE_V,         ROLE_ATTENTION,
                                ROLE_OUT,     ROLE_NORM1, ROLE_FFN_IN,    ROLE_FFN_ACT,
                                ROLE_FFN_OUT, ROLE_NORM2, ROLE_RESIDUAL1, ROLE_RESIDUAL2};
    static const Role CROSS[] = {ROLE_CROSS_Q,         ROLE_CROSS_K,   ROLE_CROSS_V,
                                 ROLE_CROSS_ATTENTION, ROLE_CROSS_OUT, ROLE_NORM_CROSS,
                                 ROLE_RESIDUAL_CROSS};
    static const char *const STACKS[] = {"encoder", "decoder"};
    take(f, "marian");
    Model *model = expect_loaded(f, NULL);
    const Graph *graph = model->graph;
    for (int s = 0; s < 2; s++) {
        assert_int_equal(graph_layer_count(graph, STACKS[s]), 2);
        for (int l = 0; l < 2; l++) {
            for (size_t r = 0; r < sizeof SELF / sizeof *SELF; r++)
                assert_non_null(graph_find(graph, STACKS[s], l, SELF[r]));
            for (size_t r = 0; r < sizeof CROSS / sizeof *CROSS; r++)
                assert_int_equal(graph_find(graph, STACKS[s], l, CROSS[r]) != NULL, s);
        }
        assert_ptr_equal(
            graph_output(graph, s ? "last_hidden_state" : "encoder_last_hidden_state"),
            graph_layer_output(graph, STACKS[s], 1));
    }
    const Node *memory = graph_output(graph, "encoder_last_hidden_state");
    assert_ptr_equal(graph_find(graph, "decoder", 1, ROLE_CROSS_K)->in[0], memory);
    assert_ptr_equal(graph_find(graph, "decoder", 1, ROLE_CROSS_V)->in[0], memory);
    assert_string_equal(graph_main_stack(graph), "decoder");
    model_destroy(model);
}

/* Inputs by name: [N, S] of the source, [N, T] of the target. */
static void expect_inputs(const Graph *graph) {
    static const char *const NAMES[] = {"input_ids", "attention_mask",
                                        "decoder_input_ids", "decoder_attention_mask"};
    for (int i = 0; i < 4; i++) {
        const Node *input = graph_find_input(graph, NAMES[i]);
        const Type want = {
            .dtype = DTYPE_I32, .rank = 2, .dim = {DIM_N, i < 2 ? DIM_S : DIM_T}};
        assert_non_null(input);
        assert_true(type_equal(&input->type, &want));
    }
    const Type *logits = &graph_output(graph, "logits")->type;
    assert_int_equal(logits->rank, 3);
    assert_true(logits->dim[0] == DIM_N && logits->dim[1] == DIM_T);
}

static void names(void **state) {
    Fixture *f = *state;
    take(f, "marian"); /* with the tables of positions and copies of the shared table */
    add(f, "model.encoder.embed_positions.weight", "model.shared.weight");
    add(f, "model.decoder.embed_positions.weight", "model.shared.weight");
    model_destroy(expect_loaded(f, NULL));
    add(f, "lm_head.weight", "model.shared.weight");
    add(f, "model.decoder.embed_tokens.weight", "model.shared.weight");
    Model *model = expect_loaded(f, "2 tensors of heads");
    expect_inputs(model->graph);
    const Storage *bias = graph_storage(model->graph, "final_logits_bias");
    assert_int_equal(bias->tensor.rank, 1); /* saved as [1, 48] */
    float first, want;
    tensor_read_f32(&bias->tensor, 5, 1, &first);
    tensor_read_f32(checkpoint_find(f->checkpoint, "final_logits_bias"), 5, 1, &want);
    assert_true(first == want);
    model_destroy(model);

    take(f, "marian");
    strip(f, "model.");
    edit(f, "MarianMTModel", "MarianModel");
    model = expect_loaded(f, "final_logits_bias: 1 tensor of heads");
    assert_null(graph_output(model->graph, "logits"));
    assert_non_null(
        graph_storage(model->graph, "decoder.layers.1.encoder_attn.q_proj.bias"));
    model_destroy(model);
}

static const struct {
    const char *old, *new, *message;
} CONFIGS[] = {
    {"MarianMTModel", "MarianForCausalLM", "MarianMTModel, MarianModel"},
    {"\"decoder_attention_heads\": 4", "\"decoder_attention_heads\": 5",
     "decoder_attention_heads: expected a divisor of d_model 32, found 5"},
    {"\"d_model\": 32", "\"d_model\": 33", "attention_heads: expected a divisor"},
    {"\"encoder_layers\": 2", "\"encoder_layers\": 3",
     "model.encoder.layers.2.self_attn.q_proj.weight: the checkpoint lacks"},
    {"\"decoder_layers\": 2", "\"decoder_layers\": 1", "the model has no place"},
    {"\"decoder_ffn_dim\": 64", "\"decoder_ffn_dim\": 48", "asks for shape [48, 32]"},
    {"\"decoder_vocab_size\": 48", "\"decoder_vocab_size\": 47",
     "decoder_vocab_size: expected vocab_size 48"},
    {"\"share_encoder_decoder_embeddings\": true",
     "\"share_encoder_decoder_embeddings\": false",
     "model.encoder.embed_tokens.weight: the checkpoint lacks"},
    {"\"static_position_embeddings\": true", "\"static_position_embeddings\": false",
     "static_position_embeddings: expected true"},
    {"\"add_final_layer_norm\": false", "\"add_final_layer_norm\": true",
     "model.encoder.layer_norm.weight: the checkpoint lacks"},
    {"\"normalize_embedding\": false", "\"normalize_embedding\": true",
     "model.encoder.layernorm_embedding.weight: the checkpoint lacks"},
    {"\"swish\"", "\"mish\"", "activation_function: expected gelu"},
    {"\"use_cache\": true", "\"norm\": \"sandwich\"",
     "norm: expected pre, post or branch, found 'sandwich'"},
    {"\"use_cache\": true", "\"tie_word_embeddings\": false",
     "lm_head.weight: the checkpoint lacks"},
    {"\"vocab_size\": 48", "\"vocab_size\": 0", "vocab_size: expected an integer"},
};

static void configs(void **state) {
    Fixture *f = *state;
    for (size_t i = 0; i < sizeof CONFIGS / sizeof *CONFIGS; i++) {
        take(f, "marian");
        edit(f, CONFIGS[i].old, CONFIGS[i].new);
        expect_refused(f, CONFIGS[i].message);
    }
}

/* ---- from a configuration alone ---- */

#define MARIAN                                                                           \
    "\"model_type\": \"marian\", \"vocab_size\": 20, \"d_model\": 8, "                   \
    "\"encoder_layers\": 2, \"decoder_layers\": 3, \"encoder_attention_heads\": 2, "     \
    "\"decoder_attention_heads\": 4, \"encoder_ffn_dim\": 12, \"decoder_ffn_dim\": 16"
#define RNN                                                                              \
    "\"model_type\": \"rnn_attention\", \"source_vocab_size\": 20, "                     \
    "\"target_vocab_size\": 30, \"embedding_size\": 6, \"encoder_size\": 7, "            \
    "\"decoder_size\": 5"

enum { /* parameters by hand */
       ENCODER_LAYER = 4 * 72 + 2 * 8 * 12 + 12 + 8 + 2 * 16,
       DECODER_LAYER = 8 * 72 + 2 * 8 * 16 + 16 + 8 + 3 * 16,
       LAYERS = 2 * ENCODER_LAYER + 3 * DECODER_LAYER,
       GATES = 20 * 7 + 20, /* weights of the context, biases */
       RECURRENT = 20 * 6 + 7 * 6 + 7 * 7 + GATES + 30 * 5
};

/* Builds, draws weights, writes a model file and reads it back. */
static void expect_built(Fixture *f, const char *json, int64_t parameters) {
    Model *model, *back;
    size_t bytes;
    char before[HASH_TEXT_BYTES], after[HASH_TEXT_BYTES];
    const char *path = arena_printf(f->arena, "%s/model.h5", f->folder);
    expect_ok(f->diag, build(f, &model, json));
    assert_int_equal(graph_parameter_count(model->graph), parameters);
    expect_inputs(model->graph);
    expect_ok(f->diag, model_init_weights(model, 1, f->diag));
    expect_ok(f->diag, graph_verify(model->graph, STATUS_INTERNAL, f->diag));
    expect_ok(f->diag, modelfile_write(model, path, &bytes, f->diag));
    expect_ok(f->diag, model_load(&back, path, ops_table(), true, f->diag));
    model_hash(model, before);
    model_hash(back, after);
    assert_string_equal(before, after);
    model_destroy(model);
    model_destroy(back);
}

static void built(void **state) {
    Fixture *f = *state;
    expect_built(f, "{" MARIAN "}", 20 * 8 + LAYERS + 20);
    expect_built(f, "{" MARIAN ", \"normalize_before\": true}",
                 20 * 8 + LAYERS + 2 * 16 + 20);
    expect_built(f,
                 "{" MARIAN ", \"norm\": \"branch\", \"add_final_layer_norm\": false, "
                 "\"normalize_embedding\": true, \"tie_word_embeddings\": false, "
                 "\"share_encoder_decoder_embeddings\": false, "
                 "\"decoder_vocab_size\": 30, \"scale_embedding\": true}",
                 20 * 8 + 2 * 30 * 8 + LAYERS + 2 * 16 + 30);
    expect_built(f, "{" RNN "}", RECURRENT + 30 * 5 + 20 * 5 + 5 * (7 + 5 + 1));
    expect_built(f,
                 "{" RNN ", \"context\": \"mean\", \"decoder_embedding_size\": 4, "
                 "\"dropout\": 0.1}",
                 RECURRENT + 30 * 4 + 20 * 4);
    expect_built(f, "{" RNN ", \"decoder_input\": \"state\", \"alignment_size\": 3}",
                 RECURRENT + 20 * 5 + 3 * (7 + 5 + 1));
    expect_built(f,
                 "{" RNN ", \"decoder_input\": \"state\", \"context\": \"mean\", "
                 "\"encoder_activation\": \"sigmoid\"}",
                 RECURRENT + 20 * 5);
}

static void not_built(void **state) {
    Fixture *f = *state;
    static const char *const CASES[][2] = {
        {"{" RNN ", \"context\": \"dot\"}",
         "context: expected additive or mean, found 'dot'"},
        {"{" RNN ", \"decoder_input\": 1}", "decoder_input: expected a string"},
        {"{" RNN ", \"encoder_activation\": \"gelu\"}",
         "encoder_activation: expected tanh, sigmoid or relu"},
        {"{" RNN ", \"alignment_size\": 0}", "alignment_size: expected an integer"},
        {"{\"model_type\": \"rnn_attention\"}", "source_vocab_size: missing"},
        {"{" MARIAN ", \"activation_dropout\": 2}", "activation_dropout: expected"},
        {"{\"model_type\": \"marian\", \"vocab_size\": 20, \"d_model\": 9, "
         "\"encoder_layers\": 1, \"decoder_layers\": 1, \"encoder_attention_heads\": 3, "
         "\"decoder_attention_heads\": 3, \"encoder_ffn_dim\": 4, \"decoder_ffn_dim\": "
         "4}",
         "d_model: expected an even width"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        expect_not_built(f, CASES[i][0], CASES[i][1]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_make, fixture_free)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(roles), TEST(names), TEST(configs), TEST(built), TEST(not_built),
    };
    return cmocka_run_group_tests_name("encoder-decoder models", tests, NULL, NULL);
}
