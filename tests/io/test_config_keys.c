/* Keys of a config.json: what changes the model is followed or refused by its name, what
 * nothing reads is said, and what published configurations hold beside that is known. */
#include "tests/io/folder_fixture.h"

#define LLAMA                                                                            \
    "\"model_type\": \"llama\", \"vocab_size\": 16, \"hidden_size\": 8, "                \
    "\"intermediate_size\": 16, \"num_hidden_layers\": 1, \"num_attention_heads\": 2"
#define BERT                                                                             \
    "\"model_type\": \"bert\", \"vocab_size\": 16, \"hidden_size\": 8, "                 \
    "\"intermediate_size\": 16, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, "  \
    "\"max_position_embeddings\": 8, \"attention_probs_dropout_prob\": 0"
#define VIT                                                                              \
    "\"model_type\": \"vit\", \"hidden_size\": 8, \"intermediate_size\": 16, "           \
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"image_size\": 4, "          \
    "\"patch_size\": 2"

#define DINOV2                                                                           \
    "\"model_type\": \"dinov2\", \"hidden_size\": 8, \"num_hidden_layers\": 1, "         \
    "\"num_attention_heads\": 2, \"image_size\": 4, \"patch_size\": 2"
#define BART                                                                             \
    "\"model_type\": \"bart\", \"vocab_size\": 16, \"d_model\": 8, "                     \
    "\"encoder_layers\": 1, \"decoder_layers\": 1, \"encoder_attention_heads\": 2, "     \
    "\"decoder_attention_heads\": 2, \"encoder_ffn_dim\": 12, \"decoder_ffn_dim\": 12"
#define T5                                                                               \
    "\"model_type\": \"t5\", \"vocab_size\": 16, \"d_model\": 8, \"d_ff\": 12, "         \
    "\"num_heads\": 2, \"num_layers\": 1"

static const struct {
    const char *config, *message;
} REFUSED[] = {
    {"{" DINOV2 ", \"use_swiglu_ffn\": true}",
     "use_swiglu_ffn: expected false, the only kind there is"},
    {"{" DINOV2 ", \"mlp_ratio\": 0.1}", "mlp_ratio: expected at least one unit"},
    {"{" DINOV2 ", \"architectures\": [\"Dinov2Backbone\"]}",
     "expected a list with one of Dinov2Model, Dinov2ForImageClassification"},
    {"{" BART ", \"normalize_before\": true}",
     "normalize_before: expected false, the only kind there is"},
    {"{" BART ", \"add_final_layer_norm\": true}",
     "add_final_layer_norm: expected false"},
    {"{" BART ", \"normalize_embedding\": false}", "normalize_embedding: expected true"},
    {"{" BART ", \"static_position_embeddings\": true}", "static_position_embeddings"},
    {"{" BART ", \"do_blenderbot_90_layernorm\": true}", "do_blenderbot_90_layernorm"},
    {"{" BART ", \"is_decoder\": true}", "is_decoder: expected false"},
    {"{" BART ", \"architectures\": [\"BartForSequenceClassification\"]}",
     "expected a list with one of BartForConditionalGeneration, BartModel"},
    {"{" T5 ", \"feed_forward_proj\": \"gated-mish\"}",
     "feed_forward_proj: expected gelu, gelu_new, gelu_pytorch_tanh, relu, silu or swish, "
     "found 'mish'"},
    {"{" T5 ", \"dense_act_fn\": \"mish\"}", "dense_act_fn: expected gelu"},
    {"{" T5 ", \"is_decoder\": true}", "is_decoder: expected false"},
    {"{" T5 ", \"relative_attention_num_buckets\": 3}",
     "relative_attention_num_buckets: expected an integer from 4"},
    {"{" T5 ", \"relative_attention_max_distance\": 16}",
     "relative_attention_max_distance: expected more than half of the 32 buckets, found "
     "16"},
    {"{" T5 ", \"architectures\": [\"T5ForSequenceClassification\"]}",
     "expected a list with one of T5ForConditionalGeneration, T5Model, T5EncoderModel"},
    {"{" BERT ", \"problem_type\": \"regress\"}",
     "problem_type: expected single_label_classification, multi_label_classification or "
     "regression, found 'regress'"},
    {"{" VIT ", \"problem_type\": \"multi_label\"}", "problem_type"},
    {"{" BERT ", \"quantization_config\": {\"bits\": 4}}",
     "quantization_config: expected null, found {\"bits\":4}: quantised weights"},
    {"{" LLAMA ", \"quantization_config\": {}}", "quantization_config"},
    {"{" BERT ", \"pruned_heads\": {\"0\": [1, 1]}}",
     "pruned_heads: expected a map from layers below"},
    {"{" VIT ", \"pruned_heads\": {\"0\": [1]}}", "pruned_heads"},
    {"{" LLAMA ", \"partial_rotary_factor\": 0.5}",
     "partial_rotary_factor: expected 1, found 0.5: rotary positions turn whole heads"},
    {"{" LLAMA ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e4, "
     "\"partial_rotary_factor\": 0.5}}",
     "rope_parameters.partial_rotary_factor: expected 1"},
    {"{" LLAMA ", \"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 8.0}}",
     "rope_scaling: expected null or rope_type: default"},
    {"{" LLAMA ", \"rope_scaling\": {\"type\": \"longrope\", \"factor\": 2.0}}",
     "rope_scaling"},
    {"{" LLAMA ", \"rope_parameters\": {\"rope_type\": \"yarn\"}}", "rope_parameters"},
    {"{" LLAMA ", \"sliding_window\": 4096}", "sliding_window: expected null"},
    {"{" BERT ", \"is_decoder\": true}", "is_decoder: expected false"},
    {"{" BERT ", \"tie_encoder_decoder\": true}", "tie_encoder_decoder: expected false"},
    {"{" BERT ", \"position_embedding_type\": \"relative_key\"}",
     "position_embedding_type: expected absolute"},
    {"{" BERT ", \"architectures\": [\"BertForNextSentencePrediction\"]}",
     "architectures: expected a list with one of"},
    {"{" VIT ", \"architectures\": [\"ViTModel\"], \"pooler_act\": \"mish\"}",
     "pooler_act: expected gelu"},
};

static void refused(void **state) {
    Fixture *f = *state;
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++)
        expect_not_built(f, REFUSED[i].config, REFUSED[i].message);
}

/* Builds as from a file and returns what was said. */
static const char *said_of(Fixture *f, const char *json) {
    Tree *config;
    Model *model;
    put_text(f->config, json);
    expect_ok(f->diag, json_read(&config, f->arena, f->config, 1 << 20, f->diag));
    expect_ok(f->diag, hf_build_from(&model, config, CONFIG_FILE, ops_table(), f->diag));
    model_destroy(model);
    char *text = diag_text(f->diag);
    const char *kept = arena_strdup(f->arena, text);
    free(text);
    diag_clear(f->diag);
    return kept;
}

static void unread_keys(void **state) {
    Fixture *f = *state;
    assert_non_null(strstr(said_of(f, "{" LLAMA ", \"logit_scale\": 0.1}"),
                           "warning: nothing reads this key of the configuration: "
                           "logit_scale; what it asks for is left out"));
    assert_non_null(strstr(said_of(f, "{" BERT ", \"a\": 1, \"b\": [2], \"c\": null}"),
                           "nothing reads these keys of the configuration: a, b; what"));
    /* said for a folder, too */
    take(f, "gpt2");
    edit(f, "\"n_layer\"", "\"residual_scale\": 2, \"n_layer\"");
    model_destroy(expect_loaded(f, "the configuration: residual_scale;"));
}

/* Keys as in configurations that are published on the Hugging Face hub, sizes apart. */
static const char *const PUBLISHED[] = {
    "{" BERT
    ", \"architectures\": [\"BertForMaskedLM\"], \"gradient_checkpointing\": false, "
    "\"hidden_act\": \"gelu\", \"hidden_dropout_prob\": 0.1, \"initializer_range\": 0.02, "
    "\"layer_norm_eps\": 1e-12, \"pad_token_id\": 0, \"position_embedding_type\": "
    "\"absolute\", \"transformers_version\": \"4.6.0.dev0\", \"type_vocab_size\": 2, "
    "\"use_cache\": true, \"directionality\": \"bidi\", \"pooler_fc_size\": 768, "
    "\"pooler_num_attention_heads\": 12, \"pooler_num_fc_layers\": 3, "
    "\"pooler_size_per_head\": 128, \"pooler_type\": \"first_token_transform\"}",
    "{\"activation\": \"gelu\", \"architectures\": [\"DistilBertForSequenceClassification\"], "
    "\"attention_dropout\": 0, \"dim\": 8, \"dropout\": 0.1, \"finetuning_task\": \"sst-2\", "
    "\"hidden_dim\": 16, \"id2label\": {\"0\": \"NEGATIVE\", \"1\": \"POSITIVE\"}, "
    "\"initializer_range\": 0.02, \"label2id\": {\"NEGATIVE\": 0, \"POSITIVE\": 1}, "
    "\"max_position_embeddings\": 8, \"model_type\": \"distilbert\", \"n_heads\": 2, "
    "\"n_layers\": 1, \"output_past\": true, \"pad_token_id\": 0, \"qa_dropout\": 0.1, "
    "\"seq_classif_dropout\": 0.2, \"sinusoidal_pos_embds\": false, \"tie_weights_\": true, "
    "\"vocab_size\": 16, \"problem_type\": \"single_label_classification\"}",
    "{\"architectures\": [\"AlbertForMaskedLM\"], \"attention_probs_dropout_prob\": 0, "
    "\"bos_token_id\": 2, \"classifier_dropout_prob\": 0.1, \"down_scale_factor\": 1, "
    "\"embedding_size\": 4, \"eos_token_id\": 3, \"gap_size\": 0, \"hidden_act\": "
    "\"gelu_new\", \"hidden_dropout_prob\": 0, \"hidden_size\": 8, \"initializer_range\": "
    "0.02, \"inner_group_num\": 1, \"intermediate_size\": 16, \"layer_norm_eps\": 1e-12, "
    "\"max_position_embeddings\": 8, \"model_type\": \"albert\", \"net_structure_type\": 0, "
    "\"num_attention_heads\": 2, \"num_hidden_groups\": 1, \"num_hidden_layers\": 2, "
    "\"num_memory_blocks\": 0, \"pad_token_id\": 0, \"type_vocab_size\": 2, \"vocab_size\": "
    "16}",
    "{\"activation_function\": \"gelu_new\", \"architectures\": [\"GPT2LMHeadModel\"], "
    "\"attn_pdrop\": 0, \"bos_token_id\": 1, \"embd_pdrop\": 0.1, \"eos_token_id\": 1, "
    "\"initializer_range\": 0.02, \"layer_norm_epsilon\": 1e-05, \"model_type\": \"gpt2\", "
    "\"n_ctx\": 8, \"n_embd\": 8, \"n_head\": 2, \"n_layer\": 1, \"n_positions\": 8, "
    "\"resid_pdrop\": 0.1, \"summary_activation\": null, \"summary_first_dropout\": 0.1, "
    "\"summary_proj_to_labels\": true, \"summary_type\": \"cls_index\", "
    "\"summary_use_proj\": true, \"task_specific_params\": {\"text-generation\": "
    "{\"do_sample\": true, \"max_length\": 50}}, \"vocab_size\": 16}",
    "{" LLAMA ", \"architectures\": [\"LlamaForCausalLM\"], \"bos_token_id\": 1, "
    "\"eos_token_id\": 2, \"hidden_act\": \"silu\", \"initializer_range\": 0.02, "
    "\"max_position_embeddings\": 2048, \"num_key_value_heads\": 1, \"pretraining_tp\": 1, "
    "\"rms_norm_eps\": 1e-05, \"rope_scaling\": null, \"tie_word_embeddings\": false, "
    "\"torch_dtype\": \"float32\", \"transformers_version\": \"4.31.0.dev0\", "
    "\"use_cache\": true, \"attention_bias\": false, \"rope_theta\": 10000.0, "
    "\"partial_rotary_factor\": 1.0, \"pruned_heads\": {}}",
    "{" VIT
    ", \"_name_or_path\": \"google/vit-base-patch16-224-in21k\", \"architectures\": "
    "[\"ViTForImageClassification\"], \"attention_probs_dropout_prob\": 0.0, "
    "\"encoder_stride\": 16, \"hidden_act\": \"gelu\", \"hidden_dropout_prob\": 0.0, "
    "\"initializer_range\": 0.02, \"layer_norm_eps\": 1e-12, \"num_channels\": 3, "
    "\"qkv_bias\": true, \"pooler_act\": \"tanh\", \"pooler_output_size\": 8}",
    "{\"_num_labels\": 3, \"activation_dropout\": 0.0, \"activation_function\": \"swish\", "
    "\"add_bias_logits\": false, \"add_final_layer_norm\": false, \"architectures\": "
    "[\"MarianMTModel\"], \"attention_dropout\": 0.0, \"bad_words_ids\": [[15]], "
    "\"bos_token_id\": 0, \"classif_dropout\": 0.0, \"d_model\": 8, "
    "\"decoder_attention_heads\": 2, \"decoder_ffn_dim\": 16, \"decoder_layerdrop\": 0.0, "
    "\"decoder_layers\": 1, \"decoder_start_token_id\": 15, \"dropout\": 0.1, "
    "\"encoder_attention_heads\": 2, \"encoder_ffn_dim\": 16, \"encoder_layerdrop\": 0.0, "
    "\"encoder_layers\": 1, \"eos_token_id\": 0, \"extra_pos_embeddings\": 16, "
    "\"force_bos_token_to_be_generated\": false, \"forced_eos_token_id\": 0, \"init_std\": "
    "0.02, \"is_encoder_decoder\": true, \"max_length\": 512, \"max_position_embeddings\": "
    "512, \"model_type\": \"marian\", \"normalize_before\": false, \"normalize_embedding\": "
    "false, \"num_beams\": 6, \"num_hidden_layers\": 1, \"pad_token_id\": 15, "
    "\"scale_embedding\": true, \"static_position_embeddings\": true, \"vocab_size\": 16, "
    "\"share_encoder_decoder_embeddings\": true, \"decoder_vocab_size\": 16}",
    "{" DINOV2 ", \"apply_layernorm\": true, \"architectures\": [\"Dinov2Model\"], "
    "\"attention_probs_dropout_prob\": 0.0, \"drop_path_rate\": 0.0, \"hidden_act\": "
    "\"gelu\", \"hidden_dropout_prob\": 0.0, \"initializer_range\": 0.02, "
    "\"layer_norm_eps\": 1e-06, \"layerscale_value\": 1.0, \"mlp_ratio\": 4, "
    "\"num_channels\": 3, \"out_features\": [\"stage1\"], \"out_indices\": [1], \"qkv_bias\": "
    "true, \"reshape_hidden_states\": true, \"stage_names\": [\"stem\", \"stage1\"], "
    "\"torch_dtype\": \"float32\", \"use_swiglu_ffn\": false, \"use_mask_token\": true}",
    "{" BART
    ", \"_num_labels\": 3, \"activation_dropout\": 0.1, \"activation_function\": \"gelu\", "
    "\"add_bias_logits\": false, \"add_final_layer_norm\": false, \"architectures\": "
    "[\"BartModel\"], \"attention_dropout\": 0, \"bos_token_id\": 0, \"classif_dropout\": "
    "0.1, \"classifier_dropout\": 0.0, \"decoder_layerdrop\": 0.0, "
    "\"decoder_start_token_id\": 2, \"dropout\": 0.1, \"early_stopping\": true, "
    "\"encoder_layerdrop\": 0.0, \"eos_token_id\": 2, \"forced_eos_token_id\": 2, "
    "\"forced_bos_token_id\": 0, \"gradient_checkpointing\": false, \"id2label\": {\"0\": "
    "\"LABEL_0\"}, \"init_std\": 0.02, \"is_encoder_decoder\": true, "
    "\"max_position_embeddings\": 1024, \"no_repeat_ngram_size\": 3, "
    "\"normalize_before\": false, \"normalize_embedding\": true, \"num_beams\": 4, "
    "\"num_hidden_layers\": 1, \"pad_token_id\": 1, \"scale_embedding\": false, "
    "\"static_position_embeddings\": false, \"task_specific_params\": {}, \"use_cache\": "
    "true}",
    "{" T5 ", \"architectures\": [\"T5ForConditionalGeneration\"], \"d_kv\": 4, "
    "\"decoder_start_token_id\": 0, \"dropout_rate\": 0, \"eos_token_id\": 1, "
    "\"initializer_factor\": 1.0, \"is_encoder_decoder\": true, \"layer_norm_epsilon\": "
    "1e-06, \"n_positions\": 512, \"output_past\": true, \"pad_token_id\": 0, "
    "\"relative_attention_num_buckets\": 32, \"task_specific_params\": "
    "{\"summarization\": {\"num_beams\": 4, \"prefix\": \"summarize: \"}}}",
    "{" T5
    ", \"architectures\": [\"T5ForConditionalGeneration\"], \"classifier_dropout\": "
    "0.0, \"d_kv\": 4, \"decoder_start_token_id\": 0, \"dense_act_fn\": \"gelu_new\", "
    "\"dropout_rate\": 0, \"eos_token_id\": 1, \"feed_forward_proj\": \"gated-gelu\", "
    "\"is_gated_act\": true, \"num_decoder_layers\": 1, \"output_past\": true, "
    "\"relative_attention_max_distance\": 128, \"tie_word_embeddings\": false, "
    "\"use_cache\": true, \"tokenizer_class\": \"T5Tokenizer\"}",
};

/* ---- every key is followed ---- */

/* Keys that change what is built, with the value that they have while another one changes
 * (NULL = they are not there) and the value that they change to. */
typedef struct Walk {
    const char *base;
    struct {
        const char *key, *usual, *other; /* a NULL key ends them */
    } keys[24];
} Walk;

static const Walk WALKS[] = {
    {"\"model_type\": \"dinov2\"",
     {{"hidden_size", "8", "12"},
      {"num_hidden_layers", "2", "1"},
      {"num_attention_heads", "2", "4"},
      {"mlp_ratio", "4", "4.5"},
      {"hidden_act", "\"gelu\"", "\"relu\""},
      {"hidden_dropout_prob", "0.0", "0.1"},
      {"initializer_range", "0.02", "0.03"},
      {"layer_norm_eps", "1e-6", "1e-5"},
      {"image_size", "6", "9"},
      {"patch_size", "3", "1"},
      {"num_channels", "3", "2"},
      {"qkv_bias", "true", "false"},
      {"num_labels", "3", "4"},
      {"problem_type", NULL, "\"regression\""},
      {"architectures", "[\"Dinov2ForImageClassification\"]", "[\"Dinov2Model\"]"}}},
    {"\"model_type\": \"bart\"",
     {{"vocab_size", "16", "17"},
      {"d_model", "8", "10"},
      {"encoder_layers", "2", "1"},
      {"decoder_layers", "2", "1"},
      {"encoder_attention_heads", "2", "1"},
      {"decoder_attention_heads", "2", "1"},
      {"encoder_ffn_dim", "12", "13"},
      {"decoder_ffn_dim", "12", "13"},
      {"max_position_embeddings", "1024", "1023"},
      {"activation_function", "\"gelu\"", "\"relu\""},
      {"scale_embedding", "false", "true"},
      {"dropout", "0.1", "0.2"},
      {"activation_dropout", "0.0", "0.1"},
      {"init_std", "0.02", "0.03"},
      {"tie_word_embeddings", "true", "false"},
      {"architectures", "[\"BartForConditionalGeneration\"]", "[\"BartModel\"]"}}},
    {"\"model_type\": \"t5\"",
     {{"vocab_size", "16", "17"},
      {"d_model", "8", "6"},
      {"d_ff", "12", "13"},
      {"d_kv", "4", "5"},
      {"num_heads", "2", "3"},
      {"num_layers", "2", "1"},
      {"num_decoder_layers", "2", "1"},
      {"relative_attention_num_buckets", "32", "31"},
      {"relative_attention_max_distance", "128", "127"},
      {"dropout_rate", "0.1", "0.2"},
      {"layer_norm_epsilon", "1e-6", "1e-5"},
      {"initializer_factor", "1.0", "0.5"},
      {"feed_forward_proj", "\"relu\"", "\"gated-relu\""},
      {"dense_act_fn", NULL, "\"gelu\""},
      {"is_gated_act", NULL, "true"},
      {"tie_word_embeddings", "true", "false"},
      {"scale_decoder_outputs", NULL, "false"},
      {"architectures", "[\"T5ForConditionalGeneration\"]", "[\"T5EncoderModel\"]"}}},
};

/* The graph of a configuration with key number `changed` at its other value. */
static const char *walk_graph(Fixture *f, const Walk *walk, int changed) {
    Text json = {0}, printed = {0};
    Model *model;
    text_add(&json, "{%s", walk->base);
    for (int i = 0; walk->keys[i].key; i++) {
        const char *value = i == changed ? walk->keys[i].other : walk->keys[i].usual;
        if (value) text_add(&json, ", \"%s\": %s", walk->keys[i].key, value);
    }
    text_add(&json, "}");
    expect_ok(f->diag, build(f, &model, json.data));
    graph_print(&printed, model->graph);
    const char *kept = arena_strdup(f->arena, printed.data);
    text_free(&json);
    text_free(&printed);
    model_destroy(model);
    diag_clear(f->diag);
    return kept;
}

static void walked(void **state) {
    Fixture *f = *state;
    for (size_t w = 0; w < sizeof WALKS / sizeof *WALKS; w++) {
        const char *usual = walk_graph(f, &WALKS[w], -1);
        for (int i = 0; WALKS[w].keys[i].key; i++)
            if (strcmp(walk_graph(f, &WALKS[w], i), usual) == 0)
                fail_msg("%s: %s changes nothing", WALKS[w].base, WALKS[w].keys[i].key);
    }
}

static void published(void **state) {
    Fixture *f = *state;
    for (size_t i = 0; i < sizeof PUBLISHED / sizeof *PUBLISHED; i++)
        assert_string_equal(said_of(f, PUBLISHED[i]), "");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_make, fixture_free)
    const struct CMUnitTest tests[] = {TEST(refused), TEST(unread_keys), TEST(published),
                                       TEST(walked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
