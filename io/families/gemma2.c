/* Gemma 2 (2024): Gemma with a norm before and behind each block, caps of scores and
 * predictions, and a sliding window in every second layer. */
#include "io/families/gated_decoder.h"

static const char *const CLASSES[] = {"Gemma2ForCausalLM", "Gemma2Model", NULL};

static const DecoderKind KIND = {.classes = CLASSES,
                                 .parts = DECODER_BIAS_KEY | DECODER_UNIT_NORMS |
                                          DECODER_SCALED_WORDS | DECODER_NORMS_AROUND |
                                          DECODER_CAPS | DECODER_QUERY_SCALAR |
                                          DECODER_CAUSAL_KEY | DECODER_ALT_ACT_KEY,
                                 .window = WINDOW_SECOND,
                                 .rope = {.scales = true},
                                 .act = "gelu_pytorch_tanh",
                                 .eps = 1e-6,
                                 .positions = 8192,
                                 .window_size = 4096,
                                 .kv_heads = 4,
                                 .head_width = 256,
                                 .tied = true};

static Status build(Model *model, Diag *diag) {
    return gated_decoder_build(&KIND, model, diag);
}

const Family family_gemma2 = {
    .model_type = "gemma2",
    .summary = "Gemma 2: capped scores, norms around blocks, alternating windows",
    .classes = CLASSES,
    .build = build,
    .sizes = gated_decoder_window_sizes,
    .follows = gated_decoder_follows,
    .rename = gated_decoder_rename,
    .prefix = "model.",
    .spare = decoder_spare,
    .heads = decoder_heads};
