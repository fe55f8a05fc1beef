/* Hugging Face folders of decoders: names, tensors that hold several weights, heads, and
 * configurations that do not fit. */
#include "tests/io/folder_fixture.h"

static void roles(void **state) {
    Fixture *f = *state;
    static const char *const NAMES[] = {"gpt2", "llama"};
    static const Role LAYER[] = {ROLE_NORM1,     ROLE_Q,        ROLE_K,
                                 ROLE_V,         ROLE_OUT,      ROLE_NORM2,
                                 ROLE_FFN_IN,    ROLE_FFN_ACT,  ROLE_FFN_OUT,
                                 ROLE_ATTENTION, ROLE_RESIDUAL1};
    static const Role ROTARY[] = {ROLE_ROTARY_Q, ROLE_ROTARY_K, ROLE_FFN_GATE};
    for (int n = 0; n < 2; n++) {
        take(f, NAMES[n]);
        Model *model = expect_loaded(f, NULL);
        const Graph *graph = model->graph;
        assert_int_equal(graph_layer_count(graph, "decoder"), 3);
        for (int l = 0; l < 3; l++) {
            for (size_t r = 0; r < sizeof LAYER / sizeof *LAYER; r++)
                assert_non_null(graph_find(graph, "decoder", l, LAYER[r]));
            for (int r = 0; r < 3; r++)
                assert_int_equal(graph_find(graph, "decoder", l, ROTARY[r]) != NULL, n);
            assert_ptr_equal(graph_layer_output(graph, "decoder", l),
                             graph_find(graph, "decoder", l, ROLE_RESIDUAL2));
        }
        assert_ptr_equal(graph_output(graph, "last_hidden_state"),
                         graph_find(graph, "decoder", -1, ROLE_FINAL_NORM));
        assert_ptr_equal(graph_output(graph, "logits"),
                         graph_find(graph, "head", -1, ROLE_HEAD));
        model_destroy(model);
    }
}

/* Element [row, part * width + column] of c_attn is [row, column] of q, k or v. */
static void split(void **state) {
    Fixture *f = *state;
    static const char *const PARTS[] = {"q", "k", "v"};
    take(f, "gpt2");
    Model *model = expect_loaded(f, NULL);
    const Tensor *weight =
        checkpoint_find(f->checkpoint, "transformer.h.1.attn.c_attn.weight");
    const Tensor *bias =
        checkpoint_find(f->checkpoint, "transformer.h.1.attn.c_attn.bias");
    for (int p = 0; p < 3; p++) {
        const char *stem = arena_printf(f->arena, "transformer.h.1.attn.%s.", PARTS[p]);
        const Storage *w =
            graph_storage(model->graph, arena_printf(f->arena, "%sweight", stem));
        const Storage *b =
            graph_storage(model->graph, arena_printf(f->arena, "%sbias", stem));
        assert_non_null(w);
        assert_non_null(b);
        for (int i = 0; i < 33 * 32; i++) { /* the last row is the bias */
            const bool last = i >= 32 * 32;
            float got, want;
            tensor_read_f32(last ? &b->tensor : &w->tensor, last ? i % 32 : i, 1, &got);
            tensor_read_f32(last ? bias : weight,
                            (last ? 0 : i / 32 * 96) + p * 32 + i % 32, 1, &want);
            assert_true(got == want);
        }
    }
    model_destroy(model);
}

/* Half-precision tensors stay what they are when they are split. */
static void split_keeps_dtype(void **state) {
    Fixture *f = *state;
    take(f, "gpt2");
    for (int i = 0; i < f->count; i++) {
        NamedTensor *t = &f->tensors[i];
        Tensor half;
        void *data;
        expect_ok(f->diag, tensor_create(&half, DTYPE_BF16, t->tensor.rank, t->tensor.dim,
                                         f->diag));
        expect_ok(f->diag, tensor_writable(&half, &data, f->diag));
        for (int64_t e = 0; e < tensor_count(&half); e++)
            ((uint16_t *)data)[e] = (uint16_t)(0x3f80 + e % 128); /* 1 to 2 */
        t->tensor = half;
    }
    Model *model = expect_loaded(f, NULL);
    const Storage *k = graph_storage(model->graph, "transformer.h.2.attn.k.weight");
    assert_int_equal(k->tensor.dtype, DTYPE_BF16);
    for (int e = 0; e < 32 * 32; e++) {
        float got;
        tensor_read_f32(&k->tensor, e, 1, &got);
        assert_true(got == 1 + (float)((e / 32 * 96 + 32 + e % 32) % 128) / 128);
    }
    model_destroy(model);
    for (int i = 0; i < f->count; i++) tensor_release(&f->tensors[i].tensor);
}

static void names(void **state) {
    Fixture *f = *state;
    take(f, "gpt2"); /* without prefix, with saved masks and a saved tied head */
    strip(f, "transformer.");
    add(f, "h.0.attn.bias", "transformer.h.0.ln_1.bias");
    add(f, "h.0.attn.masked_bias", "transformer.h.0.ln_1.bias");
    add(f, "lm_head.weight", "transformer.wte.weight");
    model_destroy(expect_loaded(f, "lm_head.weight: 1 tensor of heads"));

    take(f, "gpt2");
    edit(f, "GPT2LMHeadModel", "GPT2Model");
    Model *model = expect_loaded(f, NULL);
    assert_non_null(graph_storage(model->graph, "h.0.attn.v.bias"));
    assert_null(graph_output(model->graph, "logits"));
    model_destroy(model);

    take(f, "llama");
    strip(f, "model.");
    add(f, "layers.0.self_attn.rotary_emb.inv_freq", "lm_head.weight");
    model_destroy(expect_loaded(f, NULL));
    edit(f, "LlamaForCausalLM", "LlamaModel");
    model = expect_loaded(f, "lm_head.weight: 1 tensor of heads");
    assert_int_equal(model->graph->output_count, 1);
    model_destroy(model);
}

/* The tensors that are missing, superfluous or too wide. */
static void tensors(void **state) {
    Fixture *f = *state;
    take(f, "gpt2");
    add(f, "transformer.h.0.attn.q.weight", "transformer.h.0.attn.c_proj.weight");
    expect_refused(f, "another tensor has the same place");
    take(f, "gpt2");
    add(f, "transformer.h.3.attn.c_attn.bias", "transformer.h.0.attn.c_attn.bias");
    expect_refused(f, "transformer.h.3.attn.c_attn.bias: the model has no place");
    take(f, "gpt2");
    edit(f, "\"n_embd\": 32", "\"n_embd\": 64");
    expect_refused(f, "asks for shape");
    take(f, "gpt2");
    for (int i = 0; i < f->count; i++)
        if (strstr(f->tensors[i].name, "h.1.attn.c_attn.weight"))
            f->tensors[i].tensor.dim[1] = 64, f->tensors[i].tensor.dim[0] = 48;
    expect_refused(f,
                   "h.1.attn.c_attn.weight: the configuration asks for shape [32, 96], "
                   "found [48, 64]");
}

/* The head is the table of embeddings or a matrix of its own. */
static void tied(void **state) {
    Fixture *f = *state;
    take(f, "llama");
    edit(f, "\"tie_word_embeddings\": false", "\"tie_word_embeddings\": true");
    Model *model = expect_loaded(f, "lm_head.weight: 1 tensor of heads");
    assert_string_equal(graph_output(model->graph, "logits")->in[1]->storage->name,
                        "model.embed_tokens.weight");
    model_destroy(model);
    take(f, "gpt2");
    edit(f, "\"use_cache\": true", "\"tie_word_embeddings\": false");
    expect_refused(f, "lm_head.weight: the checkpoint lacks");
}

static const struct {
    const char *name, *old, *new, *message;
} CONFIGS[] = {
    {"gpt2", "GPT2LMHead", "GPT2DoubleHeads", "GPT2LMHeadModel, GPT2Model"},
    {"gpt2", "\"n_head\": 4", "\"n_head\": 5",
     "n_head: expected a divisor of n_embd 32, found 5"},
    {"gpt2", "\"n_head\": 4", "\"n_head\": 0", "n_head: expected an integer from 1"},
    {"gpt2", "\"n_layer\": 3", "\"n_layer\": 1000000", "n_layer: expected an integer"},
    {"gpt2", "\"n_layer\": 3", "\"n_layer\": 4", "h.3.ln_1.weight: the checkpoint lacks"},
    {"gpt2", "\"n_positions\": 16", "\"n_positions\": -1", "n_positions: expected"},
    {"gpt2", "\"n_embd\": 32", "\"n_embd\": 9e99", "n_embd: expected an integer"},
    {"gpt2", "\"n_inner\": null", "\"n_inner\": 64", "asks for shape [32, 64]"},
    {"gpt2", "\"vocab_size\": 53", "\"vocab_size\": \"53\"", "vocab_size: expected"},
    {"gpt2", "\"gelu_new\"", "\"gelu_fast\"", "activation_function: expected gelu"},
    {"gpt2", "\"use_cache\": true", "\"add_cross_attention\": true",
     "add_cross_attention: expected false"},
    {"llama", "_attention_heads\": 4", "_attention_heads\": 3",
     "num_key_value_heads: expected a divisor of num_attention_heads 3, found 2"},
    {"llama", "key_value_heads\": 2", "key_value_heads\": 8",
     "num_key_value_heads: expected a divisor of num_attention_heads 4, found 8"},
    {"llama", "\"head_dim\": 8", "\"head_dim\": 7",
     "head_dim: expected heads of an even"},
    {"llama", "\"head_dim\": 8", "\"head_dim\": 16", "asks for shape [64, 32]"},
    {"llama", "\"head_dim\": 8", "\"head_dim\": 1000000",
     "head_dim: expected an integer"},
    {"llama", "\"head_dim\": 8,\n  \"hidden_act\": \"silu\",\n  \"hidden_size\": 32",
     "\"hidden_size\": 30",
     "num_attention_heads: expected a divisor of hidden_size 30, found 4"},
    {"llama", "\"head_dim\": 8,\n  \"hidden_act\": \"silu\",\n  \"hidden_size\": 32",
     "\"hidden_size\": 36", "num_attention_heads: expected heads of an even width"},
    {"llama", "\"rope_scaling\": null",
     "\"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 8.0}",
     "rope_scaling: expected null or rope_type: default"},
    {"llama", "\"rope_scaling\": null", "\"rope_scaling\": [1]",
     "rope_scaling: expected"},
    {"llama", "\"rope_theta\": 10000.0", "\"rope_theta\": 0", "rope_theta: expected"},
    {"llama", "\"rope_theta\": 10000.0", "\"rope_parameters\": {\"rope_theta\": \"x\"}",
     "rope_parameters.rope_theta: expected"},
    {"llama", "\"intermediate_size\": 56", "\"intermediate_size\": 60",
     "asks for shape [60, 32]"},
    {"llama", "\"mlp_bias\": false", "\"mlp_bias\": true",
     "gate_proj.bias: the checkpoint lacks"},
    {"llama", "\"attention_bias\": false", "\"attention_bias\": true",
     "q_proj.bias: the checkpoint lacks"},
    {"llama", "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": 2", "rms_norm_eps: expected"},
};

static void configs(void **state) {
    Fixture *f = *state;
    for (size_t i = 0; i < sizeof CONFIGS / sizeof *CONFIGS; i++) {
        take(f, CONFIGS[i].name);
        edit(f, CONFIGS[i].old, CONFIGS[i].new);
        expect_refused(f, CONFIGS[i].message);
    }
}

/* Configurations that say the same in another way. */
static void configs_accepted(void **state) {
    Fixture *f = *state;
    take(f, "llama");
    edit(f, "\"rope_scaling\": null", "\"rope_scaling\": {\"rope_type\": \"default\"}");
    model_destroy(expect_loaded(f, NULL));
    edit(f, "\"rope_theta\": 10000.0",
         "\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 500000}");
    Model *model = expect_loaded(f, NULL);
    const Node *turned = graph_find(model->graph, "decoder", 2, ROLE_ROTARY_K);
    assert_true(((const RotaryAttrs *)turned->attrs)->theta == 500000);
    assert_int_equal(((const RotaryAttrs *)turned->attrs)->heads, 2);
    model_destroy(model);

    take(f, "gpt2"); /* scores over the layer's number, not over sqrt(8) */
    edit(f, "\"scale_attn_weights\": true", "\"scale_attn_weights\": false");
    edit(f, "layer_idx\": false", "layer_idx\": true");
    model = expect_loaded(f, NULL);
    for (int l = 0; l < 3; l++) {
        const Node *attention = graph_find(model->graph, "decoder", l, ROLE_ATTENTION);
        assert_true(((const AttentionAttrs *)attention->attrs)->scale == 1.0 / (l + 1));
    }
    model_destroy(model);
}

/* ---- from a configuration alone ---- */

static void expect_count(Fixture *f, const char *json, int64_t parameters) {
    Model *model;
    expect_ok(f->diag, build(f, &model, json));
    assert_int_equal(graph_parameter_count(model->graph), parameters);
    assert_int_equal(model->graph->output_count, 2);
    expect_ok(f->diag, model_init_weights(model, 1, f->diag));
    model_destroy(model);
}

/* Counts by hand: the models of T2R's character experiment. */
static void built(void **state) {
    Fixture *f = *state;
    expect_count(f,
                 "{\"model_type\": \"gpt2\", \"vocab_size\": 38, \"n_embd\": 8, "
                 "\"n_layer\": 2, \"n_head\": 2, \"n_positions\": 100}",
                 38 * 8 + 100 * 8 + 2 * (12 * 64 + 13 * 8) + 16);
    expect_count(f,
                 "{\"model_type\": \"lstm_lm\", \"vocab_size\": 38, \"embedding_size\": "
                 "6, \"hidden_size\": 8, \"num_layers\": 4}",
                 38 * 6 + 32 * (6 + 8 + 1) + 3 * 32 * (8 + 8 + 1) + 38 * 8);
    expect_count(f,
                 "{\"model_type\": \"lstm_lm\", \"vocab_size\": 38, \"embedding_size\": "
                 "8, \"hidden_size\": 8, \"num_layers\": 1, \"tie_word_embeddings\": "
                 "true, \"dropout\": 0.1}",
                 38 * 8 + 32 * 17);
    expect_count(f,
                 "{\"model_type\": \"llama\", \"vocab_size\": 38, \"hidden_size\": 8, "
                 "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
                 "\"intermediate_size\": 24, \"attention_bias\": true, \"mlp_bias\": "
                 "true}",
                 2 * 38 * 8 + 2 * (4 * 72 + 2 * 9 * 24 + 8 * 24 + 8 + 16) + 8);
}

static void not_built(void **state) {
    Fixture *f = *state;
    static const char *const CASES[][2] = {
        {"{\"model_type\": \"lstm_lm\", \"vocab_size\": 38, \"embedding_size\": 6, "
         "\"hidden_size\": 8, \"num_layers\": 1, \"tie_word_embeddings\": true}",
         "expected embedding_size equal to hidden_size, found 6 and 8"},
        {"{\"model_type\": \"lstm_lm\", \"vocab_size\": 38, \"embedding_size\": 6, "
         "\"hidden_size\": 8}",
         "num_layers: missing"},
        {"{\"model_type\": \"lstm_lm\", \"vocab_size\": 38, \"embedding_size\": 6, "
         "\"hidden_size\": 99999999999, \"num_layers\": 1}",
         "hidden_size: expected an integer"},
        {"{\"model_type\": \"gpt2\", \"n_embd\": 8}", "vocab_size: missing"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        expect_not_built(f, CASES[i][0], CASES[i][1]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_make, fixture_free)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(roles), TEST(split),   TEST(split_keeps_dtype), TEST(names), TEST(tensors),
        TEST(tied),  TEST(configs), TEST(configs_accepted),  TEST(built), TEST(not_built),
    };
    return cmocka_run_group_tests_name("decoder folders", tests, NULL, NULL);
}
