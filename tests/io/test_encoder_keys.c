/* Configurations of BERT's relatives, key by key: each key of transformers' configuration
 * is changed by itself, and the graph that is built becomes another one, or the key is
 * refused or warned of by its name, or it is one that is known to change no result. */
#include "tests/io/folder_fixture.h"

/* What a change of a key does. */
typedef enum KeyEffect {
    CHANGES, /* another graph */
    REFUSED, /* a failure at the key */
    WARNED,  /* the same graph, a warning at the key of who trains it */
    PASSIVE  /* nothing */
} KeyEffect;

typedef struct KeyChange {
    const char *key, *value; /* as JSON */
    KeyEffect effect;
} KeyChange;

#define SIZES                                                                            \
    "\"vocab_size\": 12, \"hidden_size\": 8, \"num_hidden_layers\": 2, "                 \
    "\"num_attention_heads\": 2, \"intermediate_size\": 6, "                             \
    "\"max_position_embeddings\": 9, \"attention_probs_dropout_prob\": 0"
#define ROBERTA "\"model_type\": \"roberta\", \"architectures\": "
#define MODERN                                                                           \
    "\"model_type\": \"modernbert\", \"vocab_size\": 12, \"hidden_size\": 8, "           \
    "\"num_hidden_layers\": 4, \"num_attention_heads\": 2, \"intermediate_size\": 6, "   \
    "\"architectures\": "
#define MPNET   "\"model_type\": \"mpnet\", \"architectures\": "
#define ELECTRA "\"model_type\": \"electra\", \"architectures\": "

/* What all of BERT's relatives have. */
static const KeyChange SHARED[] = {{"vocab_size", "13", CHANGES},
                                   {"hidden_size", "10", CHANGES},
                                   {"num_hidden_layers", "3", CHANGES},
                                   {"num_attention_heads", "4", CHANGES},
                                   {"intermediate_size", "7", CHANGES},
                                   {"max_position_embeddings", "10", CHANGES},
                                   {"hidden_act", "\"relu\"", CHANGES},
                                   {"hidden_act", "\"mish\"", REFUSED},
                                   {"hidden_dropout_prob", "0.2", CHANGES},
                                   {"attention_probs_dropout_prob", "0.1", WARNED},
                                   {"layer_norm_eps", "1e-3", CHANGES},
                                   {"is_decoder", "true", REFUSED},
                                   {"add_cross_attention", "true", REFUSED},
                                   {"quantization_config", "{\"bits\": 4}", REFUSED},
                                   {"logit_scale", "2", WARNED},
                                   {"initializer_range", "0.5", CHANGES},
                                   {"use_cache", "false", PASSIVE},
                                   {"bos_token_id", "5", PASSIVE},
                                   {"eos_token_id", "5", PASSIVE},
                                   {"torch_dtype", "\"float16\"", PASSIVE},
                                   {NULL}};

static const KeyChange CLASSES[] = {
    {"pruned_heads", "{\"0\": [1]}", CHANGES},
    {"pruned_heads", "{\"0\": [2]}", REFUSED},
    {"pruned_heads", "{\"9\": [0]}", REFUSED},
    {"pruned_heads", "{\"0\": [0, 1]}", REFUSED},
    {"pruned_heads", "[1]", REFUSED},
    {"num_labels", "5", CHANGES},
    {"id2label", "{\"0\": \"a\"}", CHANGES},
    {"problem_type", "\"regression\"", CHANGES},
    {"problem_type", "\"ranking\"", REFUSED},
    {"type_vocab_size", "3", CHANGES},
    {"position_embedding_type", "\"relative_key\"", REFUSED},
    {"classifier_dropout", "0.3", CHANGES},
    {"tie_word_embeddings", "false", PASSIVE},
    {"summary_last_dropout", "0.2", PASSIVE},
    {NULL}};

static const KeyChange PADDED[] = {
    {"pad_token_id", "0", CHANGES}, {"pad_token_id", "8", REFUSED}, {NULL}};

static const KeyChange DISTANCES[] = {{"pruned_heads", "{\"0\": [1]}", REFUSED},
                                      {"relative_attention_num_buckets", "16", REFUSED},
                                      {"pad_token_id", "3", PASSIVE}, /* always 1 */
                                      {"type_vocab_size", "3", WARNED},
                                      {"num_labels", "5", CHANGES},
                                      {NULL}};

static const KeyChange WORDS[] = {{"tie_word_embeddings", "false", CHANGES},
                                  {"problem_type", "\"regression\"", PASSIVE},
                                  {NULL}};

static const KeyChange NARROW[] = {{"embedding_size", "8", CHANGES},
                                   {"embedding_size", "6", CHANGES},
                                   {"pad_token_id", "3", PASSIVE},
                                   {NULL}};

static const KeyChange SUMMARY[] = {
    {"summary_type", "\"mean\"", REFUSED},       {"summary_use_proj", "false", CHANGES},
    {"summary_activation", "\"relu\"", CHANGES}, {"summary_activation", "null", CHANGES},
    {"summary_last_dropout", "0.2", CHANGES},    {"summary_first_dropout", "0.2", WARNED},
    {"summary_proj_to_labels", "true", REFUSED}, {NULL}};

#define LAYERS(a, b)                                                                     \
    "[\"" a "_attention\", \"" b "_attention\", \"full_attention\", \"full_attention\"]"
static const KeyChange NEAR[] = {
    {"vocab_size", "13", CHANGES},
    {"hidden_size", "12", CHANGES},
    {"num_hidden_layers", "3", CHANGES},
    {"num_attention_heads", "4", CHANGES},
    {"num_attention_heads", "8", REFUSED},
    {"intermediate_size", "7", CHANGES},
    {"hidden_activation", "\"relu\"", CHANGES},
    {"norm_eps", "1e-3", CHANGES},
    {"layer_norm_eps", "1e-3", WARNED},
    {"norm_bias", "true", CHANGES},
    {"attention_bias", "true", CHANGES},
    {"mlp_bias", "true", CHANGES},
    {"attention_dropout", "0.1", CHANGES},
    {"embedding_dropout", "0.1", CHANGES},
    {"mlp_dropout", "0.1", CHANGES},
    {"local_attention", "64", CHANGES},
    {"global_attn_every_n_layers", "2", CHANGES},
    {"layer_types", LAYERS("full", "full"), CHANGES},
    {"layer_types", LAYERS("full", "chunked"), REFUSED},
    {"layer_types", "[\"full_attention\"]", REFUSED},
    {"global_rope_theta", "10", CHANGES},
    {"local_rope_theta", "10", CHANGES},
    {"local_rope_theta", "null", CHANGES},
    {"rope_parameters", "{\"full_attention\": {\"rope_theta\": 10}}", CHANGES},
    {"rope_parameters", "{\"sliding_attention\": {\"rope_type\": \"yarn\"}}", REFUSED},
    {"rope_scaling", "{\"rope_type\": \"linear\"}", REFUSED},
    {"position_embedding_type", "\"relative_key\"", REFUSED},
    {"sparse_prediction", "true", REFUSED},
    {"initializer_range", "0.5", CHANGES},
    {"pruned_heads", "{\"0\": [1]}", REFUSED},
    {"logit_scale", "2", WARNED},
    {"max_position_embeddings", "64", PASSIVE},
    {"sparse_pred_ignore_index", "-1", PASSIVE},
    {"deterministic_flash_attn", "true", PASSIVE},
    {"reference_compile", "true", PASSIVE},
    {"initializer_cutoff_factor", "3", PASSIVE},
    {"pad_token_id", "3", PASSIVE},
    {"cls_token_id", "3", PASSIVE},
    {NULL}};

static const KeyChange DENSE[] = {{"classifier_activation", "\"relu\"", CHANGES},
                                  {"classifier_bias", "true", CHANGES},
                                  {NULL}};

static const KeyChange MEANS[] = {{"classifier_pooling", "\"mean\"", CHANGES},
                                  {"classifier_pooling", "\"max\"", REFUSED},
                                  {"classifier_dropout", "0.1", CHANGES},
                                  {"num_labels", "5", CHANGES},
                                  {"decoder_bias", "false", PASSIVE},
                                  {NULL}};

static const KeyChange DECODER[] = {{"decoder_bias", "false", CHANGES},
                                    {"tie_word_embeddings", "false", CHANGES},
                                    {"classifier_pooling", "\"mean\"", PASSIVE},
                                    {NULL}};

static const struct {
    const char *config;
    const KeyChange *changes[4];
} CONFIGS[] = {
    {ROBERTA "[\"RobertaForSequenceClassification\"], " SIZES, {SHARED, CLASSES, PADDED}},
    {ROBERTA "[\"RobertaForMaskedLM\"], " SIZES, {WORDS, PADDED}},
    {ROBERTA "[\"RobertaModel\"], " SIZES, {SHARED, PADDED}},
    {ELECTRA "[\"ElectraForSequenceClassification\"], " SIZES, {SHARED, CLASSES, NARROW}},
    {MPNET "[\"MPNetForSequenceClassification\"], " SIZES, {SHARED, DISTANCES}},
    {MPNET "[\"MPNetForMaskedLM\"], " SIZES, {WORDS}},
    {ELECTRA "[\"ElectraForMaskedLM\"], " SIZES, {SHARED, WORDS, NARROW}},
    {MODERN "[\"ModernBertForSequenceClassification\"]", {NEAR, DENSE, MEANS}},
    {MODERN "[\"ModernBertForMaskedLM\"]", {NEAR, DENSE, DECODER}},
    {MODERN "[\"ModernBertModel\"]", {NEAR}},
    {ELECTRA "[\"ElectraForMultipleChoice\"], " SIZES, {SHARED, NARROW, SUMMARY}},
};

/* What is built and said; graph NULL = it was refused. */
typedef struct Built {
    const char *graph, *said;
} Built;

static Built build_of(Fixture *f, const char *config, const KeyChange *change) {
    Tree *tree;
    Model *model = NULL;
    Built built = {NULL, NULL};
    const char *json = arena_printf(f->arena, "{%s}", config);
    put_text(f->config, json);
    expect_ok(f->diag, json_read(&tree, f->arena, f->config, 1 << 20, f->diag));
    if (change) {
        Tree *value;
        put_text(f->config, arena_printf(f->arena, "[%s]", change->value));
        expect_ok(f->diag, json_read(&value, f->arena, f->config, 1 << 20, f->diag));
        tree_put(f->arena, tree, change->key, value->first);
    }
    if (hf_build_from(&model, tree, CONFIG_FILE, ops_table(), f->diag) == STATUS_OK) {
        Text text = {0};
        graph_print(&text, model->graph);
        built.graph = arena_strdup(f->arena, text.data);
        text_free(&text);
        model_warn_left_out(model, f->diag);
    }
    char *said = diag_text(f->diag);
    built.said = arena_strdup(f->arena, said);
    free(said);
    diag_clear(f->diag);
    model_destroy(model);
    return built;
}

static KeyEffect effect_of(const Built *usual, const Built *changed, const char *key) {
    const bool named = strstr(changed->said, key) != NULL;
    if (!changed->graph) return named ? REFUSED : PASSIVE;
    if (strcmp(usual->graph, changed->graph) != 0) return CHANGES;
    return named ? WARNED : PASSIVE;
}

static void walk(void **state) {
    static const char *const NAMES[] = {"another graph", "a refusal", "a warning",
                                        "nothing"};
    Fixture *f = *state;
    for (size_t i = 0; i < sizeof CONFIGS / sizeof *CONFIGS; i++) {
        const Built usual = build_of(f, CONFIGS[i].config, NULL);
        if (!usual.graph || *usual.said)
            fail_msg("%s: %s", CONFIGS[i].config, usual.said);
        for (int k = 0; k < 4 && CONFIGS[i].changes[k]; k++)
            for (const KeyChange *c = CONFIGS[i].changes[k]; c->key; c++) {
                const Built changed = build_of(f, CONFIGS[i].config, c);
                const KeyEffect found = effect_of(&usual, &changed, c->key);
                if (found != c->effect)
                    fail_msg("%s with %s: %s: expected %s, found %s: %s",
                             CONFIGS[i].config, c->key, c->value, NAMES[c->effect],
                             NAMES[found], changed.said);
            }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(walk, fixture_make, fixture_free)};
    return cmocka_run_group_tests_name("keys of encoders", tests, NULL, NULL);
}
