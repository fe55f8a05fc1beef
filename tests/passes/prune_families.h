/* A small configuration of every family whose heads or units are pruned. */
#ifndef COMPRESS_TESTS_PASSES_PRUNE_FAMILIES_H
#define COMPRESS_TESTS_PASSES_PRUNE_FAMILIES_H

#define TEXT                                                                             \
    "hidden_size: 8, num_hidden_layers: 3, num_attention_heads: 4,\n"                    \
    " intermediate_size: 16, vocab_size: 12, max_position_embeddings: 9"
#define IMAGE                                                                            \
    "hidden_size: 8, num_hidden_layers: 3, num_attention_heads: 4,\n"                    \
    " intermediate_size: 16, image_size: 8, patch_size: 2, num_channels: 1"
#define SEQ2SEQ                                                                          \
    "d_model: 8, encoder_layers: 2, decoder_layers: 2, encoder_attention_heads: 4,\n"    \
    " decoder_attention_heads: 4, encoder_ffn_dim: 16, decoder_ffn_dim: 16,\n"           \
    " vocab_size: 12, max_position_embeddings: 9"
#define T5 "d_model: 8, d_kv: 3, num_layers: 2, num_heads: 4, d_ff: 16, vocab_size: 12"

static const char *const FAMILIES[] = {
    "{model_type: albert, architectures: [AlbertForMaskedLM], embedding_size: 4,\n " TEXT
    "}",
    "{model_type: bart, architectures: [BartForConditionalGeneration], " SEQ2SEQ "}",
    "{model_type: bert, architectures: [BertForSequenceClassification], " TEXT "}",
    "{model_type: deit, architectures: [DeiTForImageClassificationWithTeacher],\n " IMAGE
    "}",
    "{model_type: dinov2, architectures: [Dinov2ForImageClassification],\n"
    " hidden_size: 8, num_hidden_layers: 3, num_attention_heads: 4, mlp_ratio: 2,\n"
    " image_size: 8, patch_size: 2, num_channels: 1}",
    "{model_type: distilbert, architectures: [DistilBertForMaskedLM], dim: 8,\n"
    " n_layers: 3, n_heads: 4, hidden_dim: 16, vocab_size: 12,\n"
    " max_position_embeddings: 9}",
    "{model_type: electra, architectures: [ElectraForMaskedLM], embedding_size: 4,\n " TEXT
    "}",
    "{model_type: gemma, architectures: [GemmaForCausalLM], head_dim: 2,\n"
    " num_key_value_heads: 4, " TEXT "}",
    "{model_type: gemma2, architectures: [Gemma2ForCausalLM], head_dim: 2,\n"
    " num_key_value_heads: 4, " TEXT "}",
    "{model_type: gpt2, architectures: [GPT2LMHeadModel], n_embd: 8, n_layer: 3,\n"
    " n_head: 4, vocab_size: 12, n_positions: 9}",
    "{model_type: llama, architectures: [LlamaForCausalLM], " TEXT "}",
    "{model_type: llama, architectures: [LlamaForCausalLM],\n"
    " num_key_value_heads: 2, " TEXT "}",
    "{model_type: marian, architectures: [MarianMTModel], " SEQ2SEQ "}",
    "{model_type: mistral, architectures: [MistralForCausalLM],\n"
    " num_key_value_heads: 4, " TEXT "}",
    "{model_type: modernbert, architectures: [ModernBertForSequenceClassification],\n"
    " local_attention: 4, " TEXT "}",
    "{model_type: mpnet, architectures: [MPNetForSequenceClassification], " TEXT "}",
    "{model_type: mt5, architectures: [MT5ForConditionalGeneration], " T5 "}",
    "{model_type: phi3, architectures: [Phi3ForCausalLM], pad_token_id: 0, " TEXT "}",
    "{model_type: qwen2, architectures: [Qwen2ForCausalLM],\n"
    " num_key_value_heads: 4, " TEXT "}",
    "{model_type: qwen3, architectures: [Qwen3ForCausalLM], head_dim: 2,\n"
    " num_key_value_heads: 4, " TEXT "}",
    "{model_type: roberta, architectures: [RobertaForSequenceClassification], " TEXT "}",
    "{model_type: swin, architectures: [SwinForImageClassification], embed_dim: 8,\n"
    " depths: [2, 2], num_heads: [2, 4], window_size: 3, mlp_ratio: 2, image_size: 8,\n"
    " patch_size: 1, num_channels: 1, use_absolute_embeddings: true}",
    "{model_type: t5, architectures: [T5ForConditionalGeneration], " T5 "}",
    "{model_type: vit, architectures: [ViTForImageClassification], " IMAGE "}",
    "{model_type: xlm-roberta, architectures: [XLMRobertaForTokenClassification],\n"
    " pad_token_id: 0, " TEXT "}",
    "{model_type: mistral, architectures: [MistralForCausalLM],\n"
    " num_key_value_heads: 2, " TEXT "}",
    "{model_type: qwen3, architectures: [Qwen3ForCausalLM], head_dim: 2,\n"
    " num_key_value_heads: 2, attention_bias: true, " TEXT "}",
    "{model_type: phi3, architectures: [Phi3ForCausalLM], pad_token_id: 0,\n"
    " num_key_value_heads: 2, " TEXT "}",
};

#endif
