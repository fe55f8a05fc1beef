/* Phi-3 (Abdin et al., 2024): Llama whose checkpoints keep queries, keys and values, and
 * gate and units, below each other in one matrix; rotary positions may turn a part of the
 * heads, and a window may slide along the tokens. The graph has a matrix for each. */
#include "io/families/gated_decoder.h"

#include <string.h>

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

/* ---- names ---- */

typedef struct JoinedMatrix {
    const char *name, *parts[SPLIT_MAX];
} JoinedMatrix;

static const JoinedMatrix JOINED[] = {
    {".self_attn.qkv_proj.",
     {".self_attn.q_proj.", ".self_attn.k_proj.", ".self_attn.v_proj."}},
    {".mlp.gate_up_proj.", {".mlp.gate_proj.", ".mlp.up_proj."}},
};
enum { JOINED_COUNT = sizeof JOINED / sizeof *JOINED };

/* `name` with `to` in the place of `from`, which stands at `at`. */
static const char *renamed(Arena *arena, const char *name, const char *at,
                           const char *from, const char *to) {
    return arena_printf(arena, "%.*s%s%s", (int)(at - name), name, to, at + strlen(from));
}

static int split(Arena *arena, const char *tensor, const char *parts[SPLIT_MAX]) {
    int count = 0;
    for (int i = 0; i < JOINED_COUNT; i++) {
        const char *at = strstr(tensor, JOINED[i].name);
        for (; at && count < SPLIT_MAX && JOINED[i].parts[count]; count++)
            parts[count] =
                renamed(arena, tensor, at, JOINED[i].name, JOINED[i].parts[count]);
    }
    return count;
}

static bool join(Arena *arena, const char *storage, TensorSlice *slice) {
    for (int i = 0; i < JOINED_COUNT; i++) {
        const JoinedMatrix *joined = &JOINED[i];
        int count = 0, part = -1;
        for (; count < SPLIT_MAX && joined->parts[count]; count++)
            if (strstr(storage, joined->parts[count])) part = count;
        if (part < 0) continue;
        const char *name = joined->parts[part], *at = strstr(storage, name);
        *slice = (TensorSlice){.tensor = renamed(arena, storage, at, name, joined->name),
                               .part = part,
                               .parts = count};
        return true;
    }
    return false;
}

const Family family_phi3 = {.model_type = "phi3",
                            .summary = "Phi-3: Llama with joined matrices",
                            .classes = CLASSES,
                            .build = build,
                            .sizes = gated_decoder_sizes,
                            .follows = gated_decoder_follows,
                            .rename = gated_decoder_rename,
                            .split = split,
                            .join = join,
                            .split_rows = true,
                            .prefix = "model.",
                            .spare = decoder_spare,
                            .heads = decoder_heads};
