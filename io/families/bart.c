/* BART (Lewis et al., 2020): the encoder-decoder transformer with learned positions,
 * norms after the residual sums and a norm of the embeddings. */
#include "io/families/encoder_decoder.h"

#include <string.h>

static const char *const CLASSES[] = {"BartForConditionalGeneration", "BartModel", NULL};

/* Early configurations say where norms and positions are; transformers has one kind. */
static void check_kind(Builder *b) {
    static const struct {
        const char *key;
        bool value;
    } KIND[] = {
        {"normalize_before", false},           {"add_final_layer_norm", false},
        {"normalize_embedding", true},         {"static_position_embeddings", false},
        {"do_blenderbot_90_layernorm", false}, {"is_decoder", false}};
    for (size_t i = 0; i < sizeof KIND / sizeof *KIND; i++)
        build_config_require(b, KIND[i].key, KIND[i].value, KIND[i].value);
}

static Status build(Model *model, Diag *diag) {
    Builder b = {.model = model, .diag = diag, .layer = -1};
    EncoderDecoder m;
    const int64_t positions = 1024;
    encoder_decoder_read(&b, &m);
    check_kind(&b);
    m.positions = build_config_int(&b, "max_position_embeddings", &positions, 1, 1 << 24);
    m.embedding_norm = true;
    const char *class = build_config_architecture(&b, CLASSES);
    encoder_decoder_build(&b, &m, strcmp(class, "BartModel") == 0);
    return b.status;
}

/* Early checkpoints hold the version of their code's stacks. */
static const char *rename_tensor(Arena *arena, const char *tensor) {
    (void)arena;
    return strstr(tensor, "coder.version") ? NULL : tensor;
}

const Family family_bart = {.model_type = "bart",
                            .summary = "BART: encoder-decoder with learned positions",
                            .classes = CLASSES,
                            .build = build,
                            .sizes = encoder_decoder_sizes,
                            .rename = rename_tensor,
                            .rows = encoder_decoder_rows,
                            .prefix = "model.",
                            .spare = encoder_decoder_spare,
                            .heads = encoder_decoder_heads};
