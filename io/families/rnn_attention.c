/* Recurrent translation model: a simple recurrence as encoder, an LSTM cell with additive
 * attention as decoder (Bahdanau et al., 2015), or with the mean of the encoder's states
 * in attention's place; equations 2.14 to 2.25 of the paper on Bayesian distillation. The
 * configuration's keys and the names of the storages are this program's own.
 *
 * decoder_input: what the gates see beside the context. `token`, the embedding of the
 * target's token before; or `state`, the decoder's last output, as the equations are
 * printed: then the target's tokens give no more than their number. */
#include "io/families/seq2seq.h"

#include <math.h>
#include <string.h>

typedef struct Recurrent {
    int64_t source, target; /* vocabularies */
    int64_t embedding, target_embedding, encoder, decoder, alignment;
    const char *fn; /* of the encoder */
    double dropout;
    bool additive, token;
} Recurrent;

/* ---- configuration ---- */

/* Whether a key says `yes`; otherwise it must say `no`. */
static bool read_choice(Builder *b, const char *key, const char *yes, const char *no) {
    return build_config_choice(b, key, (const char *[]){yes, no, NULL}, 0) == 0;
}

static const char *read_fn(Builder *b) {
    static const char *const NAMES[] = {"tanh", "sigmoid", "relu", NULL};
    return NAMES[build_config_choice(b, "encoder_activation", NAMES, 0)];
}

static void read_config(Builder *b, Recurrent *r) {
    const int64_t width = BUILD_WIDTH_MAX / 4; /* four gates side by side */
    *r = (Recurrent){
        .source =
            build_config_int(b, "source_vocab_size", NULL, 1, SEQ2SEQ_VOCABULARY_MAX),
        .target =
            build_config_int(b, "target_vocab_size", NULL, 1, SEQ2SEQ_VOCABULARY_MAX),
        .embedding = build_config_int(b, "embedding_size", NULL, 1, width),
        .encoder = build_config_int(b, "encoder_size", NULL, 1, width),
        .decoder = build_config_int(b, "decoder_size", NULL, 1, width),
        .fn = read_fn(b),
        .dropout = build_config_dropout(b, "dropout", 0),
        .additive = read_choice(b, "context", "additive", "mean"),
        .token = read_choice(b, "decoder_input", "token", "state"),
    };
    r->alignment = build_config_int(b, "alignment_size", &r->decoder, 1, width);
    r->target_embedding =
        build_config_int(b, "decoder_embedding_size", &r->decoder, 1, width);
    /* the deviation of PyTorch's uniform numbers up to 1 / sqrt(width) */
    const double std = 1 / sqrt(3.0 * (double)r->decoder);
    b->std = build_config_real(b, "initializer_range", &std, 0, 100);
}

/* ---- layers ---- */

static Node *weight(Builder *b, const char *name, int64_t rows, int64_t columns) {
    return build_param(b, name, INIT_TRUNC_NORMAL, 2, (const int64_t[]){rows, columns});
}

static Node *encode(Builder *b, const Recurrent *r, Node *ids) {
    b->stack = STACK_EMBEDDINGS;
    Node *x = seq2seq_embed(b, ids, "encoder.embedding.weight", r->source, r->embedding);
    x = build_dropout(b, r->dropout, x);
    b->stack = STACK_ENCODER;
    b->layer = 0;
    Node *const in[4] = {x, weight(b, "encoder.input.weight", r->encoder, r->embedding),
                         weight(b, "encoder.recurrent.weight", r->encoder, r->encoder)};
    x = build_op(b, "rnn", ROLE_RECURRENCE, in, "fn=%s", r->fn);
    b->layer = -1;
    build_output(b, OUTPUT_ENCODER_STATES, x);
    return build_dropout(b, r->dropout, x);
}

static Node *decode(Builder *b, const Recurrent *r, Node *memory, Node *mask, Node *ids) {
    const int64_t gates = 4 * r->decoder;
    const int64_t seen = r->token ? r->target_embedding : r->decoder;
    Node *x = NULL; /* the embedded tokens of the target */
    if (r->token) {
        b->stack = STACK_DECODER_EMBEDDINGS;
        x = seq2seq_embed(b, ids, "decoder.embedding.weight", r->target,
                          r->target_embedding);
        x = build_dropout(b, r->dropout, x);
    }
    b->stack = STACK_DECODER;
    b->layer = 0;
    Node *const in[] = {
        memory,
        weight(b, "decoder.weight_in", gates, seen),
        weight(b, "decoder.weight_context", gates, r->encoder),
        build_param(b, "decoder.bias", INIT_ZEROS, 1, &gates),
        x,
        x ? NULL : ids,
        mask,
        r->additive ? weight(b, "attention.memory.weight", r->alignment, r->encoder)
                    : NULL,
        r->additive ? weight(b, "attention.state.weight", r->alignment, r->decoder)
                    : NULL,
        r->additive ? weight(b, "attention.score.weight", 1, r->alignment) : NULL,
    };
    x = build_op_list(b, "attention_lstm", ROLE_RECURRENCE, in, sizeof in / sizeof *in);
    b->layer = -1;
    build_output(b, OUTPUT_STATES, x);
    return build_dropout(b, r->dropout, x);
}

static Status build(Model *model, Diag *diag) {
    Builder b = {.model = model, .diag = diag, .layer = -1, .prefix = ""};
    Recurrent r;
    Node *source, *source_mask, *target, *target_mask;
    read_config(&b, &r);
    seq2seq_inputs(&b, &source, &source_mask, &target, &target_mask);
    Node *memory = encode(&b, &r, source);
    Node *x = decode(&b, &r, memory, source_mask, target);
    b.stack = STACK_HEAD;
    Node *const in[4] = {x, weight(&b, "head.weight", r.target, r.decoder)};
    build_logits(&b, TASK_TRANSLATE, build_op(&b, "linear", ROLE_HEAD, in, NULL));
    return b.status;
}

static const char *const HEADS[] = {"head.", NULL};

static const SizeKey SIZES[] = {
    {"source_vocab_size", SIZE_VOCABULARY, STACK_EMBEDDINGS, false},
    {"target_vocab_size", SIZE_VOCABULARY, STACK_DECODER_EMBEDDINGS, false},
    {"embedding_size", SIZE_EMBEDDING, STACK_EMBEDDINGS, false},
    {NULL}};

const Family family_rnn_attention = {
    .model_type = "rnn_attention",
    .summary = "recurrent encoder-decoder with additive attention",
    .build = build,
    .sizes = SIZES,
    .rename = family_same_name,
    .heads = HEADS};
