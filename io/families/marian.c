/* Marian (Junczys-Dowmunt et al., 2018): the encoder-decoder transformer (Vaswani et al.,
 * 2017) of the OPUS-MT translation models, with positions that are computed.
 *
 * Norms stand after the residual sums; a configuration may ask for them before the blocks
 * or on the branches. */
#include "io/families/encoder_decoder.h"

#include <string.h>

static const char *const CLASSES[] = {"MarianMTModel", "MarianModel", NULL};

/* ---- configuration ---- */

static NormPlace read_place(Builder *b) {
    static const char *const NAMES[] = {[NORM_PRE] = "pre",
                                        [NORM_POST] = "post",
                                        [NORM_BRANCH] = "branch",
                                        [NORM_BRANCH + 1] = NULL};
    const bool before = build_config_bool(b, "normalize_before", false);
    return (NormPlace)build_config_choice(b, "norm", NAMES,
                                          before ? NORM_PRE : NORM_POST);
}

/* Both vocabularies, which one table serves when they are shared. */
static void read_vocabularies(Builder *b, EncoderDecoder *m) {
    const int64_t source = m->encoder.vocabulary;
    const int64_t target =
        build_config_int(b, "decoder_vocab_size", &source, 1, SEQ2SEQ_VOCABULARY_MAX);
    m->decoder.vocabulary = target;
    m->shared = build_config_bool(b, "share_encoder_decoder_embeddings", true);
    if (b->status == STATUS_OK && m->shared && source != target)
        b->status =
            diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, "decoder_vocab_size"),
                      "decoder_vocab_size",
                      "expected vocab_size %lld, as the embeddings are shared "
                      "(share_encoder_decoder_embeddings), found %lld",
                      (long long)source, (long long)target);
}

static void read_config(Builder *b, EncoderDecoder *m) {
    const double eps = 1e-5;
    const int64_t positions = 1024;
    encoder_decoder_read(b, m);
    m->eps = build_config_real(b, "layer_norm_eps", &eps, 0, 1);
    m->place = read_place(b);
    m->embedding_norm = build_config_bool(b, "normalize_embedding", false);
    m->final_norm = build_config_bool(b, "add_final_layer_norm", m->place != NORM_POST);
    read_vocabularies(b, m);
    build_config_int(b, "max_position_embeddings", &positions, 1, 1 << 24);
    build_config_require(b, "static_position_embeddings", true, true);
    if (b->status == STATUS_OK && m->width % 2)
        b->status =
            diag_fail(b->diag, STATUS_MODEL, build_config_loc(b, "d_model"), "d_model",
                      "expected an even width, half sines and half cosines of "
                      "the positions, found %lld",
                      (long long)m->width);
}

static Status build(Model *model, Diag *diag) {
    Builder b = {.model = model, .diag = diag, .layer = -1};
    EncoderDecoder m;
    read_config(&b, &m);
    const char *class = build_config_architecture(&b, CLASSES);
    encoder_decoder_build(&b, &m, strcmp(class, "MarianModel") == 0);
    return b.status;
}

/* Early checkpoints hold the tables of positions. */
static const char *rename_tensor(Arena *arena, const char *tensor) {
    (void)arena;
    return strstr(tensor, ".embed_positions.") ? NULL : tensor;
}

/* In transformers norms stand after the sums, and nowhere else. */
static const OwnKey OWN_KEYS[] = {{"normalize_before", "false"},
                                  {"norm", "\"post\""},
                                  {"add_final_layer_norm", "false"},
                                  {"normalize_embedding", "false"},
                                  {NULL, NULL}};

const Family family_marian = {.model_type = "marian",
                              .summary = "Marian: encoder-decoder for translation",
                              .classes = CLASSES,
                              .build = build,
                              .sizes = encoder_decoder_sizes,
                              .rename = rename_tensor,
                              .own_keys = OWN_KEYS,
                              .rows = encoder_decoder_rows,
                              .prefix = "model.",
                              .spare = encoder_decoder_spare,
                              .heads = encoder_decoder_heads};
