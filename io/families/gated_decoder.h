/* Gated decoders: Llama and its relatives. Private to the families.
 *
 * Layers consist of attention with rotary positions, in which several query heads may
 * share heads of keys and values, and a gated feed-forward block, each preceded by an
 * RMS norm and followed by a residual sum. The differences between families are the rows
 * of a record. */
#ifndef COMPRESS_IO_FAMILIES_GATED_DECODER_H
#define COMPRESS_IO_FAMILIES_GATED_DECODER_H

#include "io/families/decoder.h"
#include "io/families/rope.h"

/* Parts and keys that not all families have. */
typedef enum DecoderPart {
    DECODER_BIAS_KEY = 1 << 0,     /* attention_bias: biases of q, k, v and out */
    DECODER_QKV_BIAS = 1 << 1,     /* biases of q, k and v, always */
    DECODER_MLP_BIAS_KEY = 1 << 2, /* mlp_bias: biases of the feed-forward block */
    DECODER_HEAD_NORMS = 1 << 3,   /* an RMS norm of each head of queries and keys */
    DECODER_UNIT_NORMS = 1 << 4,   /* norms multiply by 1 + weight */
    DECODER_SCALED_WORDS = 1 << 5, /* embeddings times sqrt(hidden_size) */
    DECODER_NORMS_AROUND = 1 << 6, /* a second norm for each block, after it */
    DECODER_CAPS = 1 << 7,         /* attn_logit_softcapping, final_logit_softcapping */
    DECODER_QUERY_SCALAR =
        1 << 8, /* query_pre_attn_scalar: scores are divided by its root */
    DECODER_CAUSAL_KEY = 1 << 9,   /* use_bidirectional_attention, which must be false */
    DECODER_ALT_ACT_KEY = 1 << 10, /* hidden_activation, before hidden_act */
    DECODER_DROPOUT_KEYS = 1 << 11 /* resid_pdrop, embd_pdrop */
} DecoderPart;

/* Which layers see only the last sliding_window tokens. */
typedef enum DecoderWindow {
    WINDOW_NEVER,
    WINDOW_ALL,    /* all of them, unless the key is null */
    WINDOW_UPPER,  /* with use_sliding_window, those from max_window_layers on, or by
                      layer_types */
    WINDOW_SECOND, /* the first and every second one after it, or by layer_types */
} DecoderWindow;

typedef struct DecoderKind {
    const char *const *classes; /* the model with a head, only its trunk, NULL */
    unsigned parts;             /* DecoderPart */
    DecoderWindow window;
    RopeKind rope;
    const char *act;     /* if the configuration names none */
    double eps;          /* rms_norm_eps without the key */
    int64_t positions;   /* max_position_embeddings without the key */
    int64_t kv_heads;    /* num_key_value_heads without the key; 0 = as many as heads */
    int64_t head_width;  /* head_dim without the key; 0 = hidden_size / heads */
    int64_t window_size; /* sliding_window without the key; 0 = none */
    bool tied;           /* tie_word_embeddings without the key */
} DecoderKind;

/* Builds a model of the kind from its configuration. */
Status gated_decoder_build(const DecoderKind *kind, Model *model, Diag *diag);

/* Family.rename: early checkpoints hold the angles. */
const char *gated_decoder_rename(Arena *arena, const char *tensor);

/* Family.sizes, with layer_types and without; Family.follows if there are windows. */
extern const SizeKey gated_decoder_sizes[], gated_decoder_window_sizes[];
extern const char *const gated_decoder_follows[];

#endif
