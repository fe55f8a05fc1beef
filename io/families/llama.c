/* Llama (Touvron et al., 2023): pre-norm decoder with RMS norms, rotary positions, heads
 * of keys and values that several heads of queries share, and a gated feed-forward block.
 */
#include "io/families/gated_decoder.h"

static const char *const CLASSES[] = {"LlamaForCausalLM", "LlamaModel", NULL};

static const DecoderKind KIND = {.classes = CLASSES,
                                 .parts = DECODER_BIAS_KEY | DECODER_MLP_BIAS_KEY,
                                 .rope = {.scales = true},
                                 .act = "silu",
                                 .eps = 1e-6,
                                 .positions = 2048};

static Status build(Model *model, Diag *diag) {
    return gated_decoder_build(&KIND, model, diag);
}

const Family family_llama = {.model_type = "llama",
                             .summary = "Llama: language model with rotary positions",
                             .classes = CLASSES,
                             .build = build,
                             .sizes = gated_decoder_sizes,
                             .rename = gated_decoder_rename,
                             .prefix = "model.",
                             .spare = decoder_spare,
                             .heads = decoder_heads};
