/* Tokenizer: normalizers. */
#include "io/tokenizers/tokenizer_normalize.h"

#include "io/tokenizers/tokenizer_members.h"

#include <stdlib.h>
#include <string.h>

/* --- doing it --- */

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

static bool strip(const NormalizeStep *step, Text *out, size_t limit, TextSpan text) {
    size_t begin = 0, end = text.length, bytes;
    while (step->left && begin < end &&
           char_is_space(utf8_decode(text.text + begin, &bytes)))
        begin += bytes;
    while (step->right && end > begin) {
        const size_t last = utf8_before(text.text, end);
        if (!char_is_space(utf8_decode(text.text + last, &bytes))) break;
        end = last;
    }
    return append(out, limit, text.text + begin, end - begin);
}

/* What a character becomes by the rules of Nmt, 0 = nothing. */
static uint32_t nmt_char(uint32_t c) {
    const bool space = c == '\t' || c == '\n' || c == '\f' || c == '\r' || c == 0x1680 ||
                       (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 ||
                       c == 0x2581 || c == 0xfeff || c == 0xfffd;
    if (space) return ' ';
    const bool control = (c >= 1 && c < ' ') || c == 0x7f || c == 0x8f || c == 0x9f;
    return control ? 0 : c;
}

/* Nmt, or Accents: character by character. */
static bool filter(NormalizeKind kind, Text *out, size_t limit, TextSpan text) {
    for (size_t i = 0, bytes; i < text.length; i += bytes) {
        const uint32_t c = utf8_decode(text.text + i, &bytes);
        const uint32_t to = kind == NORMALIZE_NMT ? nmt_char(c) : char_is_mark(c) ? 0 : c;
        const char *from = to == c ? text.text + i : " ";
        const size_t length = to == c ? bytes : to == ' ';
        if (!append(out, limit, from, length)) return false;
    }
    return true;
}

static bool step_apply(const NormalizeStep *step, NormalizeScratch *scratch, Text *out,
                       size_t limit, TextSpan text, bool first) {
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
    case NORMALIZE_FORM:
        utf8_normalize(out, step->form, text.text, text.length);
        return out->length <= limit;
    case NORMALIZE_STRIP: return strip(step, out, limit, text);
    case NORMALIZE_ACCENTS:
    case NORMALIZE_NMT: return filter(step->kind, out, limit, text);
    case NORMALIZE_CHARSMAP:
        return charsmap_replace_clusters(&step->map, out, limit, text);
    case NORMALIZE_PIECES:
        return pieces_normalize(&step->pieces, out, limit, text, first);
    }
    return out->length <= limit;
}

bool normalizer_apply(const Normalizer *normalizer, NormalizeScratch *scratch,
                      TextSpan text, bool first, TextSpan *out) {
    /* hostile steps could let the text grow without end */
    size_t limit = NORMALIZED_BYTES;
    if (text.length <= (limit - ((size_t)1 << 20)) / 64)
        limit = ((size_t)1 << 20) + 64 * text.length;
    regex_start(&scratch->regex, text.length);
    for (int i = 0; i < normalizer->count; i++) {
        Text *result = &scratch->texts[i % 2];
        if (!step_apply(&normalizer->steps[i], scratch, result, limit, text, first))
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

static const struct {
    const char *type;
    NormalizeKind kind;
    NormalForm form; /* of NORMALIZE_FORM */
} STEPS[] = {{"BertNormalizer", NORMALIZE_BERT},
             {"Prepend", NORMALIZE_PREPEND},
             {"Replace", NORMALIZE_REPLACE},
             {"Lowercase", NORMALIZE_LOWERCASE},
             {"NFC", NORMALIZE_FORM, NORMAL_NFC},
             {"NFD", NORMALIZE_FORM, NORMAL_NFD},
             {"NFKC", NORMALIZE_FORM, NORMAL_NFKC},
             {"NFKD", NORMALIZE_FORM, NORMAL_NFKD},
             {"Strip", NORMALIZE_STRIP},
             {"StripAccents", NORMALIZE_ACCENTS},
             {"Nmt", NORMALIZE_NMT},
             {"Precompiled", NORMALIZE_CHARSMAP}};

/* Reads the members of a step of the kind that it has. */
static Status read_members(NormalizeStep *step, Arena *arena, const Tree *map,
                           const char *where, Diag *diag) {
    BertRules *bert = &step->rules;
    const Tree *chars;
    switch (step->kind) {
    case NORMALIZE_BERT:
        TRY(json_flag(&bert->clean_text, map, "clean_text", true, where, diag));
        TRY(json_flag(&bert->space_chinese, map, "handle_chinese_chars", true, where,
                      diag));
        TRY(json_flag(&bert->lowercase, map, "lowercase", true, where, diag));
        return json_flag(&bert->strip_accents, map, "strip_accents", bert->lowercase,
                         where, diag);
    case NORMALIZE_PREPEND:
        return json_token(&step->to, arena, map, "prepend", where, diag);
    case NORMALIZE_REPLACE:
        return json_replace(&step->regex, &step->to, arena, map, where, diag);
    case NORMALIZE_STRIP:
        TRY(json_flag(&step->left, map, "strip_left", true, where, diag));
        return json_flag(&step->right, map, "strip_right", true, where, diag);
    case NORMALIZE_CHARSMAP:
        TRY(json_member(&chars, map, "precompiled_charsmap", TREE_STRING, where, diag));
        return charsmap_parse_base64(&step->map, arena, chars ? chars->string : "",
                                     map->loc, where, diag);
    case NORMALIZE_LOWERCASE:
    case NORMALIZE_FORM:
    case NORMALIZE_ACCENTS:
    case NORMALIZE_NMT:
    case NORMALIZE_PIECES: break;
    }
    return STATUS_OK;
}

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
        if (strcmp(type, STEPS[i].type) == 0) {
            NormalizeStep *step = &normalizer->steps[normalizer->count++];
            *step = (NormalizeStep){.kind = STEPS[i].kind, .form = STEPS[i].form};
            return read_members(step, reading->arena, map, where, diag);
        }
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
