/* Qwen3 (2025): Llama with a norm of each head of the queries and keys; upper layers may
 * have a sliding window. */
#include "io/families/gated_decoder.h"

static const char *const CLASSES[] = {"Qwen3ForCausalLM", "Qwen3Model", NULL};

static const DecoderKind KIND = {.classes = CLASSES,
                                 .parts = DECODER_BIAS_KEY | DECODER_HEAD_NORMS,
                                 .window = WINDOW_UPPER,
                                 .rope = {.scales = true},
                                 .act = "silu",
                                 .eps = 1e-6,
                                 .positions = 32768,
                                 .window_size = 4096,
                                 .kv_heads = 32,
                                 .head_width = 128};

static Status build(Model *model, Diag *diag) {
    return gated_decoder_build(&KIND, model, diag);
}

const Family family_qwen3 = {.model_type = "qwen3",
                             .summary =
                                 "Qwen3: language model with norms of queries and keys",
                             .classes = CLASSES,
                             .build = build,
                             .sizes = gated_decoder_window_sizes,
                             .follows = gated_decoder_follows,
                             .rename = gated_decoder_rename,
                             .prefix = "model.",
                             .spare = decoder_spare,
                             .heads = decoder_heads};
