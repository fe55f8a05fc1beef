/* Mistral (Jiang et al., 2023): Llama whose tokens see the last sliding_window ones
 * alone. */
#include "io/families/gated_decoder.h"

static const char *const CLASSES[] = {"MistralForCausalLM", "MistralModel", NULL};

static const DecoderKind KIND = {.classes = CLASSES,
                                 .window = WINDOW_ALL,
                                 .rope = {.scales = true},
                                 .act = "silu",
                                 .eps = 1e-6,
                                 .positions = 131072,
                                 .window_size = 4096,
                                 .kv_heads = 8};

static Status build(Model *model, Diag *diag) {
    return gated_decoder_build(&KIND, model, diag);
}

const Family family_mistral = {.model_type = "mistral",
                               .summary = "Mistral: Llama with a sliding window",
                               .classes = CLASSES,
                               .build = build,
                               .sizes = gated_decoder_sizes,
                               .follows = gated_decoder_follows,
                               .rename = gated_decoder_rename,
                               .prefix = "model.",
                               .spare = decoder_spare,
                               .heads = decoder_heads};
