/* Phi-3 (Abdin et al., 2024): Llama whose checkpoints keep queries, keys and values, and
 * gate and units, below each other in one matrix; rotary positions may turn a part of the
 * heads, and a window may slide along the tokens. The graph has a matrix for each. */
#include "io/families/gated_decoder.h"

static const char *const CLASSES[] = {"Phi3ForCausalLM", "Phi3Model", NULL};

static const DecoderKind KIND = {.classes = CLASSES,
                                 .parts = DECODER_DROPOUT_KEYS,
                                 .window = WINDOW_ALL,
                                 .rope = {.partial = true},
                                 .act = "silu",
                                 .eps = 1e-5,
                                 .positions = 4096};

static Status build(Model *model, Diag *diag) {
    return gated_decoder_build(&KIND, model, diag);
}

static const JoinedTensor JOINED[] = {
    {".self_attn.qkv_proj.",
     {".self_attn.q_proj.", ".self_attn.k_proj.", ".self_attn.v_proj."}},
    {".mlp.gate_up_proj.", {".mlp.gate_proj.", ".mlp.up_proj."}},
    {NULL, {NULL}}};

const Family family_phi3 = {.model_type = "phi3",
                            .summary = "Phi-3: Llama with joined matrices",
                            .classes = CLASSES,
                            .build = build,
                            .sizes = gated_decoder_sizes,
                            .follows = gated_decoder_follows,
                            .rename = gated_decoder_rename,
                            .joined = JOINED,
                            .joined_rows = true,
                            .prefix = "model.",
                            .spare = decoder_spare,
                            .heads = decoder_heads};
