/* LSTM language model: embedding, LSTM layers (Hochreiter and Schmidhuber, 1997), head.
 * The baseline of T2R (Kasai et al., 2021). The configuration's keys and the names of the
 * storages are this program's own. */
#include "io/families/decoder.h"

#include <math.h>

typedef struct Lstm {
    int64_t vocabulary, embedding, width, layers;
    double dropout;
    bool tied;
} Lstm;

static void read_config(Builder *b, Lstm *lstm) {
    *lstm = (Lstm){
        .vocabulary = build_config_int(b, "vocab_size", NULL, 1, DECODER_VOCABULARY_MAX),
        .embedding = build_config_int(b, "embedding_size", NULL, 1, BUILD_WIDTH_MAX),
        .width = build_config_int(b, "hidden_size", NULL, 1, BUILD_WIDTH_MAX),
        .layers = build_config_int(b, "num_layers", NULL, 1, BUILD_LAYERS_MAX),
        .dropout = build_config_dropout(b, "dropout", 0),
        .tied = build_config_bool(b, "tie_word_embeddings", false),
    };
    /* the deviation of PyTorch's uniform numbers up to 1 / sqrt(H) */
    const double std = 1 / sqrt(3.0 * (double)lstm->width);
    b->std = build_config_real(b, "initializer_range", &std, 0, 100);
    if (b->status == STATUS_OK && lstm->tied && lstm->embedding != lstm->width)
        b->status =
            diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, "tie_word_embeddings"),
                      "tie_word_embeddings",
                      "expected embedding_size equal to hidden_size, found %lld "
                      "and %lld",
                      (long long)lstm->embedding, (long long)lstm->width);
}

static Node *decode_layer(Builder *b, const Lstm *lstm, Node *x) {
    if (b->status != STATUS_OK) return x;
    const int64_t gates = 4 * lstm->width;
    const int64_t in_dim[] = {gates, x->type.dim[2]}, state_dim[] = {gates, lstm->width};
    Node *const in[4] = {
        x,
        build_param(b, decoder_part(b, "layers", "weight_in"), INIT_TRUNC_NORMAL, 2,
                    in_dim),
        build_param(b, decoder_part(b, "layers", "weight_state"), INIT_TRUNC_NORMAL, 2,
                    state_dim),
        build_param(b, decoder_part(b, "layers", "bias"), INIT_ZEROS, 1, &gates)};
    x = build_op(b, "lstm", ROLE_NONE, in, NULL);
    return build_dropout(b, lstm->dropout, x);
}

static Status build(Model *model, Diag *diag) {
    Builder b = {.model = model, .diag = diag, .layer = -1, .prefix = ""};
    Lstm lstm;
    read_config(&b, &lstm);
    Node *x = decoder_embed(&b, "embedding.weight", lstm.vocabulary, lstm.embedding);
    Node *words = b.status == STATUS_OK && lstm.tied ? x->in[1] : NULL;
    x = build_dropout(&b, lstm.dropout, x);
    b.stack = STACK_DECODER;
    for (int i = 0; i < lstm.layers && b.status == STATUS_OK; i++) {
        b.layer = i;
        x = decode_layer(&b, &lstm, x);
    }
    b.layer = -1;
    build_output(&b, OUTPUT_STATES, x);
    decoder_predict(&b, x, words, lstm.vocabulary, 0);
    return b.status;
}

static const SizeKey SIZES[] = {
    {"num_layers", SIZE_LAYERS, STACK_DECODER, false},
    {"vocab_size", SIZE_VOCABULARY, STACK_EMBEDDINGS, false},
    {"embedding_size", SIZE_EMBEDDING, STACK_EMBEDDINGS, false},
    {NULL}};

const Family family_lstm_lm = {.model_type = "lstm_lm",
                               .summary = "LSTM language model, a baseline",
                               .build = build,
                               .sizes = SIZES,
                               .rename = family_same_name,
                               .heads = decoder_heads};
