/* Tokenizer: normalizers. */
#include "io/tokenizers/tokenizer_normalize.h"

#include "io/tokenizers/tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

/* --- doing it --- */

/* What a text may become; hostile steps could let it grow without end. */
static size_t growth_limit(size_t length) {
    size_t limit = ((size_t)1 << 20) + 64 * length;
    return length > NORMALIZED_BYTES / 64 || limit > NORMALIZED_BYTES ? NORMALIZED_BYTES
                                                                      : limit;
}

/* Appends; false when the text becomes too long. */
static bool append(Text *out, size_t limit, const char *bytes, size_t length) {
    if (length > limit - out->length) return false;
    if (length > 0) text_bytes(out, bytes, length);
    return true;
}

static bool lowercase(Text *out, size_t limit, TextSpan text) {
    for (size_t i = 0, bytes; i < text.length; i += bytes) {
        uint32_t lower[2];
        char encoded[2 * UTF8_MAX];
        size_t length = 0;
        int count = char_lower(utf8_decode(text.text + i, &bytes), lower);
        for (int j = 0; j < count; j++) length += utf8_encode(encoded + length, lower[j]);
        if (!append(out, limit, encoded, length)) return false;
    }
    return true;
}

static bool step_apply(const NormalizeStep *step, NormalizeScratch *scratch, Text *out,
                       size_t limit, TextSpan text) {
    out->length = 0;
    switch (step->kind) {
    case NORMALIZE_BERT:
        bert_normalize(&step->rules, out, &scratch->marks, text.text, text.length);
        return out->length <= limit;
    case NORMALIZE_PREPEND:
        return text.length == 0 || (append(out, limit, step->to.text, step->to.length) &&
                                    append(out, limit, text.text, text.length));
    case NORMALIZE_REPLACE:
        return regex_replace(step->regex, &scratch->regex, text,
                             (TextSpan){step->to.text, step->to.length}, out, limit);
    case NORMALIZE_LOWERCASE: return lowercase(out, limit, text);
    case NORMALIZE_FORM: utf8_normalize(out, step->form, text.text, text.length);
    }
    return out->length <= limit;
}

bool normalizer_apply(const Normalizer *normalizer, NormalizeScratch *scratch,
                      TextSpan text, TextSpan *out) {
    const size_t limit = growth_limit(text.length);
    regex_start(&scratch->regex, text.length);
    for (int i = 0; i < normalizer->count; i++) {
        Text *result = &scratch->texts[i % 2];
        if (!step_apply(&normalizer->steps[i], scratch, result, limit, text))
            return false;
        text = (TextSpan){result->data, result->length};
    }
    *out = text;
    return true;
}

void normalize_scratch_free(NormalizeScratch *scratch) {
    text_free(&scratch->texts[0]);
    text_free(&scratch->texts[1]);
    free(scratch->marks.items);
    regex_scratch_free(&scratch->regex);
    *scratch = (NormalizeScratch){0};
}

/* --- reading --- */

typedef Status (*StepReader)(NormalizeStep *step, Arena *arena, const Tree *map,
                             const char *where, Diag *diag);

static Status read_bert(NormalizeStep *step, Arena *arena, const Tree *map,
                        const char *where, Diag *diag) {
    BertRules *rules = &step->rules;
    (void)arena;
    step->kind = NORMALIZE_BERT;
    TRY(json_flag(&rules->clean_text, map, "clean_text", true, where, diag));
    TRY(json_flag(&rules->space_chinese, map, "handle_chinese_chars", true, where, diag));
    TRY(json_flag(&rules->lowercase, map, "lowercase", true, where, diag));
    return json_flag(&rules->strip_accents, map, "strip_accents", rules->lowercase, where,
                     diag);
}

static Status read_prepend(NormalizeStep *step, Arena *arena, const Tree *map,
                           const char *where, Diag *diag) {
    step->kind = NORMALIZE_PREPEND;
    return json_token(&step->to, arena, map, "prepend", where, diag);
}

static Status read_replace(NormalizeStep *step, Arena *arena, const Tree *map,
                           const char *where, Diag *diag) {
    step->kind = NORMALIZE_REPLACE;
    return json_replace(&step->regex, &step->to, arena, map, where, diag);
}

static Status read_lowercase(NormalizeStep *step, Arena *arena, const Tree *map,
                             const char *where, Diag *diag) {
    (void)arena, (void)map, (void)where, (void)diag;
    step->kind = NORMALIZE_LOWERCASE;
    return STATUS_OK;
}

#define FORM_READER(name, value)                                                         \
    static Status name(NormalizeStep *step, Arena *arena, const Tree *map,               \
                       const char *where, Diag *diag) {                                  \
        (void)arena, (void)map, (void)where, (void)diag;                                 \
        step->kind = NORMALIZE_FORM;                                                     \
        step->form = (value);                                                            \
        return STATUS_OK;                                                                \
    }
FORM_READER(read_nfc, NORMAL_NFC)
FORM_READER(read_nfd, NORMAL_NFD)
FORM_READER(read_nfkc, NORMAL_NFKC)
FORM_READER(read_nfkd, NORMAL_NFKD)

static const struct {
    const char *type;
    StepReader read;
} STEPS[] = {
    {"BertNormalizer", read_bert}, {"Prepend", read_prepend}, {"Replace", read_replace},
    {"Lowercase", read_lowercase}, {"NFC", read_nfc},         {"NFD", read_nfd},
    {"NFKC", read_nfkc},           {"NFKD", read_nfkd}};

typedef struct NormalizerReading {
    Normalizer *normalizer;
    Arena *arena;
} NormalizerReading;

static Status read_step(void *user, const Tree *map, const char *type, const char *where,
                        Diag *diag) {
    NormalizerReading *reading = user;
    Normalizer *normalizer = reading->normalizer;
    if (normalizer->count == NORMALIZE_MAX)
        return diag_fail(diag, STATUS_FORMAT, map->loc, where,
                         "expected at most %d steps", NORMALIZE_MAX);
    for (size_t i = 0; i < sizeof STEPS / sizeof *STEPS; i++)
        if (strcmp(type, STEPS[i].type) == 0)
            return STEPS[i].read(&normalizer->steps[normalizer->count++], reading->arena,
                                 map, where, diag);
    return diag_fail(diag, STATUS_FORMAT, map->loc, where,
                     "expected a normalizer that is supported, found '%.64s'", type);
}

Status normalizer_read(Normalizer *normalizer, Arena *arena, const Tree *root, bool bert,
                       Diag *diag) {
    static const char WHERE[] = "normalizer";
    const Tree *map;
    TRY(json_member(&map, root, WHERE, TREE_MAP, "", diag));
    if (map && bert) TRY(json_type(map, WHERE, "BertNormalizer", root, diag));
    NormalizerReading reading = {normalizer, arena};
    return json_steps(map, WHERE, "normalizers", read_step, &reading, diag);
}
