/* Config keys: see config_keys.h. The names are those of transformers 2 to 5. */
#include "io/families/config_keys.h"

#include "ir/text.h"

#include <string.h>

/* A key that must be as if it were not there. */
typedef struct RefusedKey {
    const char *key;
    const char
        *value; /* as JSON, what changes nothing beside null; NULL = nothing else */
    const char *why;
} RefusedKey;

static const RefusedKey REFUSED[] = {
    {"quantization_config", NULL, "quantised weights are not read"},
    {"compression_config", NULL, "compressed weights are not read"},
    {"pruned_heads", "{}", "layers whose heads were pruned by transformers are not read"},
    {"tie_encoder_decoder", "false", "stacks that share their weights are not read"},
    {"cross_attention_hidden_size", NULL, "attention to another model is not read"},
    {"partial_rotary_factor", "1", "rotary positions turn whole heads"},
    {"sliding_window", NULL, "attention within a window of tokens is not read"},
};

static bool is_followed(const char *key, const char *const *follows) {
    while (follows && *follows && strcmp(*follows, key) != 0) follows++;
    return follows && *follows;
}

Status config_check(const Tree *config, const char *const *follows, Diag *diag) {
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
        const RefusedKey *refused = &REFUSED[i];
        const Tree *value = tree_get_nonnull(config, refused->key);
        if (!value || is_followed(refused->key, follows)) continue;
        Text found = {0};
        tree_print_json(&found, value, 0);
        const bool one = value->kind == TREE_FLOAT && value->real == 1;
        const bool same =
            refused->value && strcmp(one ? "1" : found.data, refused->value) == 0;
        if (!same)
            diag_fail(diag, STATUS_MODEL, value->loc, refused->key,
                      "expected %s, found %.60s: %s",
                      refused->value ? refused->value : "null", found.data, refused->why);
        text_free(&found);
        if (!same) return STATUS_MODEL;
    }
    return STATUS_OK;
}

/* By what they are about. */
static const char *const PASSIVE[] = {
    /* origin and form */
    "_name_or_path", "_commit_hash", "_num_labels", "architectures", "model_type",
    "transformers_version", "torch_dtype", "dtype", "finetuning_task", "tokenizer_class",
    "id2label", "label2id", "num_labels", "problem_type", "is_encoder_decoder",
    "language", "license",
    /* how it is run and trained */
    "_attn_implementation", "_attn_implementation_autoset", "attn_implementation",
    "use_cache", "output_attentions", "output_hidden_states", "output_past",
    "return_dict", "torchscript", "use_bfloat16", "tf_legacy_loss",
    "chunk_size_feed_forward", "gradient_checkpointing", "pretraining_tp",
    "reorder_and_upcast_attn", "initializer_range", "initializer_factor", "init_std",
    "use_return_dict",
    /* how texts are generated */
    "task_specific_params", "prefix", "max_length", "max_new_tokens", "min_length",
    "do_sample", "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty",
    "temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
    "num_return_sequences", "output_scores", "return_dict_in_generate",
    "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
    "begin_suppress_tokens", "force_bos_token_to_be_generated",
    /* heads and objectives that are not read, and others' old keys that nothing reads */
    "classifier_dropout", "classifier_dropout_prob", "classif_dropout",
    "seq_classif_dropout", "qa_dropout", "summary_type", "summary_use_proj",
    "summary_activation", "summary_proj_to_labels", "summary_first_dropout",
    "summary_last_dropout", "tie_word_embeddings", "tie_weights_", "sinusoidal_pos_embds",
    "directionality", "pooler_fc_size", "pooler_num_attention_heads",
    "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "pooler_act",
    "pooler_output_size", "gap_size", "net_structure_type", "num_memory_blocks",
    "down_scale_factor", "encoder_stride", "out_features", "out_indices", "stage_names",
    "apply_layernorm", "reshape_hidden_states", "path_norm", "hidden_size",
    "num_hidden_layers", /* follow from others in Swin and Marian */
    "initializer_cutoff_factor", "deterministic_flash_attn", "reference_compile",
    "original_max_position_embeddings", "repad_logits_with_grad",
    "sparse_pred_ignore_index", "n_ctx", "add_bias_logits", "extra_pos_embeddings",
    "decoder_vocab_size", "is_decoder", "add_cross_attention"};

bool config_key_is_passive(const char *key) {
    for (size_t i = 0; i < sizeof PASSIVE / sizeof *PASSIVE; i++)
        if (strcmp(key, PASSIVE[i]) == 0) return true;
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++)
        if (strcmp(key, REFUSED[i].key) == 0) return true; /* checked otherwise */
    return text_ends_with(key, "_token_id") || text_ends_with(key, "_token_ids");
}
