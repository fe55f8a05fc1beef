/* Gemma (2024): Llama with embeddings times sqrt(hidden_size), norms that multiply by 1 +
 * weight, heads of a width of their own, and a head that is the table of words. */
#include "io/families/gated_decoder.h"

static const char *const CLASSES[] = {"GemmaForCausalLM", "GemmaModel", NULL};

static const DecoderKind KIND = {.classes = CLASSES,
                                 .parts = DECODER_BIAS_KEY | DECODER_UNIT_NORMS |
                                          DECODER_SCALED_WORDS | DECODER_CAUSAL_KEY |
                                          DECODER_ALT_ACT_KEY,
                                 .rope = {.scales = true},
                                 .act = "gelu_pytorch_tanh",
                                 .eps = 1e-6,
                                 .positions = 8192,
                                 .kv_heads = 16,
                                 .head_width = 256,
                                 .tied = true};

static Status build(Model *model, Diag *diag) {
    return gated_decoder_build(&KIND, model, diag);
}

const Family family_gemma = {.model_type = "gemma",
                             .summary = "Gemma: language model with scaled embeddings",
                             .classes = CLASSES,
                             .build = build,
                             .sizes = gated_decoder_sizes,
                             .rename = gated_decoder_rename,
                             .prefix = "model.",
                             .spare = decoder_spare,
                             .heads = decoder_heads};
