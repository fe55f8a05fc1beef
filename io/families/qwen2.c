/* Qwen2 (Yang et al., 2024): Llama with biases of queries, keys and values; upper layers
 * may have a sliding window. */
#include "io/families/gated_decoder.h"

static const char *const CLASSES[] = {"Qwen2ForCausalLM", "Qwen2Model", NULL};

static const DecoderKind KIND = {.classes = CLASSES,
                                 .parts = DECODER_QKV_BIAS,
                                 .window = WINDOW_UPPER,
                                 .rope = {.scales = true},
                                 .act = "silu",
                                 .eps = 1e-6,
                                 .positions = 32768,
                                 .window_size = 4096,
                                 .kv_heads = 32};

static Status build(Model *model, Diag *diag) {
    return gated_decoder_build(&KIND, model, diag);
}

const Family family_qwen2 = {
    .model_type = "qwen2",
    .summary = "Qwen2, Qwen2.5: language model with biases of queries, keys, values",
    .classes = CLASSES,
    .build = build,
    .sizes = gated_decoder_window_sizes,
    .follows = gated_decoder_follows,
    .rename = gated_decoder_rename,
    .prefix = "model.",
    .spare = decoder_spare,
    .heads = decoder_heads};
