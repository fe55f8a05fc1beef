/* Outlines and the keys of a file. See outline.h. */
#include "io/gguf/outline.h"

#include "io/families/build.h"
#include "io/families/decoder.h"

#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

/* Our own keys: layers whose block is there for llama.cpp's sake alone. */
static const char EMPTY_ATTENTION[] = "compress.empty_attention";
static const char EMPTY_UNITS[] = "compress.empty_feed_forward";

typedef enum LayerSize { SIZE_HEADS_OF, SIZE_KV_HEADS_OF, SIZE_UNITS_OF } LayerSize;

typedef struct KeyWriter {
    GgufWriter *writer;
    Arena *arena;
    const Outline *outline;
    const char *architecture;
} KeyWriter;

static const char *full_key(Arena *arena, const char *architecture, const char *name) {
    return arena_printf(arena, "%s.%s", architecture, name);
}

static void put_integer(const KeyWriter *w, const char *name, int64_t value) {
    gguf_put_integer(w->writer, full_key(w->arena, w->architecture, name), value);
}

static void put_real(const KeyWriter *w, const char *name, double value) {
    gguf_put_real(w->writer, full_key(w->arena, w->architecture, name), value);
}

/* One number where all layers are alike by architecture, else one for each. */
static void put_layers(const KeyWriter *w, const char *name, LayerSize size) {
    const Outline *outline = w->outline;
    int64_t *values = ARENA_ARRAY(w->arena, int64_t, (size_t)outline->layers);
    for (int i = 0; i < outline->layers; i++) {
        const OutlineLayer *layer = &outline->layer[i];
        values[i] = size == SIZE_HEADS_OF      ? layer->heads
                    : size == SIZE_KV_HEADS_OF ? layer->kv_heads
                                               : layer->units;
    }
    if (strcmp(w->architecture, "deci") == 0)
        gguf_put_integers(w->writer, full_key(w->arena, w->architecture, name), values,
                          outline->layers);
    else
        put_integer(w, name, values[0]);
}

static void put_empty(const KeyWriter *w, const char *key, bool attention) {
    const Outline *outline = w->outline;
    int64_t *layers = ARENA_ARRAY(w->arena, int64_t, (size_t)outline->layers), count = 0;
    for (int i = 0; i < outline->layers; i++)
        if (attention ? outline->layer[i].empty_attention : outline->layer[i].empty_units)
            layers[count++] = i;
    if (count) gguf_put_integers(w->writer, key, layers, count);
}

void outline_put(GgufWriter *writer, Arena *arena, const Outline *outline) {
    const KeyWriter w = {writer, arena, outline, outline_architecture(outline)};
    const bool llama = outline_is_gated(outline);
    put_integer(&w, "context_length", outline->positions);
    put_integer(&w, "embedding_length", outline->width);
    put_integer(&w, "block_count", outline->layers);
    put_layers(&w, "feed_forward_length", SIZE_UNITS_OF);
    put_layers(&w, "attention.head_count", SIZE_HEADS_OF);
    if (llama) put_layers(&w, "attention.head_count_kv", SIZE_KV_HEADS_OF);
    put_real(&w,
             llama ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
             outline->eps);
    if (llama) {
        put_integer(&w, "attention.key_length", outline->head_width);
        put_integer(&w, "attention.value_length", outline->head_width);
        put_integer(&w, "rope.dimension_count", outline->head_width);
        put_real(&w, "rope.freq_base", outline->theta);
    }
    put_integer(&w, "vocab_size", outline->vocabulary);
    put_empty(&w, EMPTY_ATTENTION, true);
    put_empty(&w, EMPTY_UNITS, false);
    if (outline->kind == OUTLINE_BERT) {
        gguf_put_flag(writer, "bert.attention.causal", false);
        gguf_put_integer(writer, "tokenizer.ggml.token_type_count",
                         outline->types ? outline->types : 1);
    }
}

/* ---- reading ---- */

typedef struct KeyReader {
    const GgufFile *file;
    Arena *arena;
    const char *architecture;
    Diag *diag;
} KeyReader;

#define FAIL(r, status, key, ...)                                                        \
    diag_fail((r)->diag, status, LOC_FILE((r)->file->path), key, __VA_ARGS__)

static const GgufPair *find_key(const KeyReader *r, const char *name) {
    return gguf_find(r->file, full_key(r->arena, r->architecture, name));
}

/* Element `i` of a pair (the only one where it is no array) within bounds. */
static Status read_element(const KeyReader *r, const GgufPair *pair, int64_t i,
                           int64_t min, int64_t max, int64_t *out) {
    if (gguf_integer(pair, pair->array ? i : 0, out) && *out >= min && *out <= max)
        return STATUS_OK;
    return FAIL(r, STATUS_FORMAT, pair->key, "expected an integer from %lld to %lld",
                (long long)min, (long long)max);
}

/* `fallback` below `min`: the key is required. */
static Status read_integer(const KeyReader *r, const char *name, int64_t min, int64_t max,
                           int64_t fallback, int64_t *out) {
    const GgufPair *pair = find_key(r, name);
    *out = fallback;
    if (!pair && fallback >= min) return STATUS_OK;
    if (!pair || pair->array)
        return FAIL(r, STATUS_FORMAT, full_key(r->arena, r->architecture, name),
                    pair ? "expected an integer, found an array" : "missing");
    return read_element(r, pair, 0, min, max, out);
}

/* The shortest decimal number that is this float: what was meant when it was written. */
static double shortest_decimal(double value) {
    char text[32];
    for (int digits = 1; digits < 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        const double decimal = strtod(text, NULL);
        if ((float)decimal == (float)value) return decimal;
    }
    return value;
}

static Status read_real(const KeyReader *r, const char *name, double min, double max,
                        double fallback, double *out) {
    const GgufPair *pair = find_key(r, name);
    *out = fallback;
    if (!pair && fallback > 0) return STATUS_OK;
    if (pair && !pair->array && gguf_real(pair, 0, out) && *out >= min && *out <= max) {
        if (pair->kind == GGUF_F32) *out = shortest_decimal(*out);
        return STATUS_OK;
    }
    return FAIL(r, STATUS_FORMAT, full_key(r->arena, r->architecture, name),
                "expected a number from %g to %g", min, max);
}

/* A number for all layers, or one for each. */
static Status read_layers(const KeyReader *r, Outline *out, const char *name,
                          LayerSize size, int64_t max) {
    const bool varies = strcmp(r->architecture, "deci") == 0;
    const GgufPair *pair = find_key(r, name);
    if (!pair && size == SIZE_KV_HEADS_OF) {
        for (int i = 0; i < out->layers; i++)
            out->layer[i].kv_heads = out->layer[i].heads;
        return STATUS_OK;
    }
    if (!pair || (pair->array && pair->count < out->layers))
        return FAIL(r, STATUS_FORMAT, full_key(r->arena, r->architecture, name),
                    pair ? "expected one number for each layer" : "missing");
    for (int i = 0; i < out->layers; i++) {
        int64_t *value = size == SIZE_HEADS_OF      ? &out->layer[i].heads
                         : size == SIZE_KV_HEADS_OF ? &out->layer[i].kv_heads
                                                    : &out->layer[i].units;
        TRY(read_element(r, pair, i, varies ? 0 : 1, max, value));
    }
    return STATUS_OK;
}

static Status read_empty(const KeyReader *r, Outline *out, const char *key,
                         bool attention) {
    const GgufPair *pair = gguf_find(r->file, key);
    for (int64_t i = 0; pair && i < pair->count; i++) {
        int64_t layer;
        TRY(read_element(r, pair, i, 0, out->layers - 1, &layer));
        if (attention)
            out->layer[layer].empty_attention = true;
        else
            out->layer[layer].empty_units = true;
    }
    return STATUS_OK;
}

/* Keys that mean other mathematics, and the value that means none. */
static Status check_foreign_keys(const KeyReader *r) {
    static const struct {
        const char *name;
        double harmless;
    } KEYS[] = {{"attention.scale", 0},
                {"attention.clamp_kqv", 0},
                {"attention.sliding_window", 0},
                {"attention.max_alibi_bias", 0},
                {"attention.causal", -1},
                {"expert_count", 0},
                {"logit_scale", 0},
                {"embedding_scale", 0},
                {"residual_scale", 0},
                {"rope.scaling.factor", 1},
                {"use_parallel_residual", 0}};
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        const GgufPair *pair = find_key(r, KEYS[i].name);
        double value, harmless = KEYS[i].harmless;
        if (!pair) continue;
        if (harmless < 0) harmless = strcmp(r->architecture, "bert") != 0;
        if (pair->array || !gguf_real(pair, 0, &value) || value != harmless)
            return FAIL(r, STATUS_MODEL, pair->key, "models with this key are not known");
    }
    const GgufPair *type = find_key(r, "rope.scaling.type");
    if (type &&
        (type->kind != GGUF_STRING || type->count != 1 || type->strings[0].length != 4 ||
         memcmp(type->strings[0].text, "none", 4) != 0))
        return FAIL(r, STATUS_MODEL, type->key,
                    "expected none: positions that are scaled are not known");
    return STATUS_OK;
}

/* Rows of a table, 0 without one. */
static int64_t table_rows(const GgufFile *file, const char *name) {
    const GgufTensor *tensor = gguf_find_tensor(file, name);
    return tensor && tensor->rank == 2 ? tensor->dim[0] : 0;
}

/* Whether predictions read the table of tokens: their matrix is left out, or is that
 * table once more. */
static bool is_tied(const GgufFile *file) {
    const GgufTensor *head = gguf_find_tensor(file, "output.weight");
    const GgufTensor *words = gguf_find_tensor(file, "token_embd.weight");
    const char *data = buf_data(file->buf);
    return !head || (words && head->type == words->type && head->bytes == words->bytes &&
                     memcmp(data + head->offset, data + words->offset, head->bytes) == 0);
}

static Status read_llama(const KeyReader *r, Outline *out) {
    int64_t width = out->layer[0].heads ? out->width / out->layer[0].heads : 0, turned;
    TRY(read_integer(r, "attention.key_length", 2, BUILD_WIDTH_MAX, width,
                     &out->head_width));
    TRY(read_integer(r, "attention.value_length", 2, BUILD_WIDTH_MAX, out->head_width,
                     &width));
    TRY(read_integer(r, "rope.dimension_count", 2, BUILD_WIDTH_MAX, out->head_width,
                     &turned));
    if (width != out->head_width || turned != out->head_width || width % 2)
        return FAIL(r, STATUS_MODEL, full_key(r->arena, r->architecture, "rope"),
                    "expected heads that are turned as a whole, of an even width, found "
                    "keys of %lld, values of %lld, of which %lld are turned",
                    (long long)out->head_width, (long long)width, (long long)turned);
    TRY(read_real(r, "rope.freq_base", 1, 1e12, 10000, &out->theta));
    for (int i = 0; i < out->layers; i++) {
        const OutlineLayer *layer = &out->layer[i];
        if (layer->heads > BUILD_WIDTH_MAX / out->head_width ||
            (layer->heads == 0) != (layer->kv_heads == 0) ||
            (layer->heads && layer->heads % layer->kv_heads))
            return FAIL(r, STATUS_MODEL,
                        full_key(r->arena, r->architecture, "attention.head_count"),
                        "layer %d: expected heads that %lld heads of keys divide, found "
                        "%lld of %lld numbers",
                        i, (long long)layer->kv_heads, (long long)layer->heads,
                        (long long)out->head_width);
    }
    for (const GgufTensor *t = r->file->tensors;
         t < r->file->tensors + r->file->tensor_count; t++) {
        out->attention_bias |= strstr(t->name, ".attn_q.bias") != NULL;
        out->units_bias |= strstr(t->name, ".ffn_up.bias") != NULL;
    }
    return STATUS_OK;
}

static Status read_kind(const KeyReader *r, Outline *out) {
    const GgufFile *file = r->file;
    const double most = 1;
    out->vocabulary = table_rows(file, "token_embd.weight");
    out->tied = is_tied(file);
    if (out->vocabulary < 1 || out->vocabulary > DECODER_VOCABULARY_MAX)
        return FAIL(r, STATUS_FORMAT, "token_embd.weight",
                    "expected a table of 1 to %d tokens", DECODER_VOCABULARY_MAX);
    if (outline_is_gated(out)) {
        TRY(read_real(r, "attention.layer_norm_rms_epsilon", 0, most, 0, &out->eps));
        return read_llama(r, out);
    }
    TRY(read_real(r, "attention.layer_norm_epsilon", 0, most, 0, &out->eps));
    out->positions = table_rows(file, "position_embd.weight");
    out->types = table_rows(file, "token_types.weight");
    out->labels = table_rows(file, "cls.output.weight");
    out->pooled = table_rows(file, "cls.weight") > 0;
    out->head_width = out->width / out->layer[0].heads;
    if (out->labels && !out->pooled)
        return FAIL(r, STATUS_MODEL, "cls.output.weight",
                    "a classifier needs the projection cls.weight before it");
    return STATUS_OK;
}

/* Architecture by name. */
static Status read_architecture(KeyReader *r, Outline *out) {
    static const struct {
        const char *name;
        OutlineKind kind;
    } KNOWN[] = {{"llama", OUTLINE_LLAMA}, {"deci", OUTLINE_LLAMA},
                 {"qwen2", OUTLINE_QWEN2}, {"qwen3", OUTLINE_QWEN3},
                 {"gpt2", OUTLINE_GPT2},   {"bert", OUTLINE_BERT}};
    const GgufPair *pair = gguf_find(r->file, "general.architecture");
    if (!pair || pair->kind != GGUF_STRING || pair->count != 1)
        return FAIL(r, STATUS_FORMAT, "general.architecture", "expected a string");
    const TextSpan name = pair->strings[0];
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (strlen(KNOWN[i].name) == name.length &&
            memcmp(KNOWN[i].name, name.text, name.length) == 0) {
            r->architecture = KNOWN[i].name;
            out->kind = KNOWN[i].kind;
            return STATUS_OK;
        }
    return FAIL(r, STATUS_MODEL, pair->key,
                "expected llama, deci, qwen2, qwen3, gpt2 or bert, found '%.*s'",
                name.length < 60 ? (int)name.length : 60, name.text);
}

Status outline_of_file(Outline *out, Arena *arena, const GgufFile *file, Diag *diag) {
    KeyReader r = {file, arena, NULL, diag};
    const int64_t positions = 2048;
    int64_t layers;
    *out = (Outline){0};
    TRY(read_architecture(&r, out));
    TRY(check_foreign_keys(&r));
    TRY(read_integer(&r, "embedding_length", 1, BUILD_WIDTH_MAX, 0, &out->width));
    TRY(read_integer(&r, "block_count", 1, BUILD_LAYERS_MAX, 0, &layers));
    TRY(read_integer(&r, "context_length", 1, DECODER_POSITIONS_MAX, positions,
                     &out->positions));
    out->layers = (int)layers;
    out->layer = ARENA_ARRAY(arena, OutlineLayer, (size_t)layers);
    TRY(read_layers(&r, out, "attention.head_count", SIZE_HEADS_OF, BUILD_WIDTH_MAX));
    TRY(read_layers(&r, out, "attention.head_count_kv", SIZE_KV_HEADS_OF,
                    BUILD_WIDTH_MAX));
    TRY(read_layers(&r, out, "feed_forward_length", SIZE_UNITS_OF, BUILD_FFN_MAX));
    TRY(read_empty(&r, out, EMPTY_ATTENTION, true));
    TRY(read_empty(&r, out, EMPTY_UNITS, false));
    return read_kind(&r, out);
}
