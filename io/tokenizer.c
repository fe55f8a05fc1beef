/* Tokenizer: encoding, truncation, template. */
#include "io/tokenizer_parts.h"

#include "io/file.h"
#include "io/unicode.h"

#include <stdlib.h>
#include <string.h>

/* Memory that encoding takes, beside the numbers. */
typedef struct EncodingScratch {
    IdList first, second;
    Text normalized;
    MarkRun marks;
} EncodingScratch;

static EncodingScratch *scratch_of(Encoding *out) {
    if (!out->scratch) out->scratch = memory_alloc(1, sizeof *out->scratch);
    return out->scratch;
}

/* --- text to tokens --- */

/* Appends the tokens of a stretch of the text that holds no token of `original`. */
static void add_stretch(const Tokenizer *self, EncodingScratch *scratch, const char *text,
                        size_t length, IdList *ids) {
    Text *normal = &scratch->normalized;
    size_t search = 0, done = 0;
    AddedMatch match;
    bert_normalize(&self->rules, normal, &scratch->marks, text, length);
    while (added_next(&self->normalized, normal->data, normal->length, &search, done,
                      &match)) {
        if (done < match.begin)
            wordpiece_split(&self->model, normal->data + done, match.begin - done, ids);
        ids_add(ids, match.id);
        done = match.end;
    }
    if (done < normal->length)
        wordpiece_split(&self->model, normal->data + done, normal->length - done, ids);
}

/* Replaces `ids` by the tokens of a whole text. */
static Status text_split(const Tokenizer *self, EncodingScratch *scratch, TextSpan span,
                         IdList *ids, Loc at, Diag *diag) {
    size_t search = 0, done = 0, valid = utf8_check(span.text, span.length);
    AddedMatch match;
    ids->count = 0;
    if (valid < span.length)
        return diag_fail(diag, STATUS_FORMAT, at, NULL,
                         "invalid UTF-8, byte 0x%02x at offset %zu of the text",
                         (unsigned char)span.text[valid], valid);
    while (added_next(&self->original, span.text, span.length, &search, done, &match)) {
        if (done < match.begin)
            add_stretch(self, scratch, span.text + done, match.begin - done, ids);
        ids_add(ids, match.id);
        done = match.end;
    }
    if (done < span.length)
        add_stretch(self, scratch, span.text + done, span.length - done, ids);
    return STATUS_OK;
}

/* --- truncation and template --- */

/* Cuts the longer text until both fit, then both. */
static void cut_pair(size_t *first, size_t *second, size_t room) {
    bool second_longer = *first <= *second;
    size_t *shorter = second_longer ? first : second;
    size_t *longer = second_longer ? second : first;
    if (*shorter <= room && *longer <= room - *shorter) return;
    if (*shorter > room / 2) *shorter = room / 2;
    *longer = room - *shorter;
}

static void out_reserve(Encoding *out, size_t length) {
    if (length <= out->capacity) return;
    out->capacity = length + length / 2;
    out->ids = memory_grow(out->ids, out->capacity, sizeof *out->ids);
    out->types = memory_grow(out->types, out->capacity, sizeof *out->types);
}

static void out_add(Encoding *out, const int32_t *ids, size_t count, int32_t type) {
    if (count > 0) memcpy(out->ids + out->length, ids, count * sizeof *ids);
    for (size_t i = 0; i < count; i++) out->types[out->length + i] = type;
    out->length += count;
}

static void template_apply(const Template *template, Encoding *out) {
    const IdList *first = &out->scratch->first, *second = &out->scratch->second;
    out_reserve(out, (size_t) template->count + first->count + second->count);
    out->length = 0;
    for (int i = 0; i < template->count; i++) {
        const TemplatePiece *piece = &template->pieces[i];
        if (piece->id == PIECE_FIRST)
            out_add(out, first->items, first->count, piece->type);
        else if (piece->id == PIECE_SECOND)
            out_add(out, second->items, second->count, piece->type);
        else
            out_add(out, &piece->id, 1, piece->type);
    }
}

size_t tokenizer_overhead(const Tokenizer *self, bool pair) {
    return (size_t)(pair ? self->pair.count - 2 : self->single.count - 1);
}

Status tokenizer_encode(const Tokenizer *self, Encoding *out, TextSpan first,
                        const TextSpan *second, size_t max_length, Loc at, Diag *diag) {
    size_t overhead = tokenizer_overhead(self, second != NULL);
    EncodingScratch *scratch = scratch_of(out);
    if (max_length > 0 && max_length < overhead)
        return diag_fail(diag, STATUS_RECIPE, at, "max_length",
                         "expected at least %zu, for the special tokens, found %zu",
                         overhead, max_length);
    scratch->second.count = 0;
    TRY(text_split(self, scratch, first, &scratch->first, at, diag));
    if (second) TRY(text_split(self, scratch, *second, &scratch->second, at, diag));
    if (max_length > 0)
        cut_pair(&scratch->first.count, &scratch->second.count, max_length - overhead);
    template_apply(second ? &self->pair : &self->single, out);
    return STATUS_OK;
}

Status tokenizer_encode_plain(const Tokenizer *self, Encoding *out, TextSpan text, Loc at,
                              Diag *diag) {
    EncodingScratch *scratch = scratch_of(out);
    TRY(text_split(self, scratch, text, &scratch->first, at, diag));
    out_reserve(out, scratch->first.count);
    out->length = 0;
    out_add(out, scratch->first.items, scratch->first.count, 0);
    return STATUS_OK;
}

void encoding_free(Encoding *encoding) {
    free(encoding->ids);
    free(encoding->types);
    if (encoding->scratch) {
        free(encoding->scratch->first.items);
        free(encoding->scratch->second.items);
        free(encoding->scratch->marks.items);
        text_free(&encoding->scratch->normalized);
    }
    free(encoding->scratch);
    *encoding = (Encoding){0};
}

/* --- what a tokenizer knows --- */

int32_t tokenizer_size(const Tokenizer *self) {
    return self->model.vocabulary.capacity;
}

const SpecialIds *tokenizer_specials(const Tokenizer *self) {
    return &self->specials;
}

const char *tokenizer_token(const Tokenizer *self, int32_t id) {
    if (id < 0 || id >= tokenizer_size(self)) return NULL;
    return self->model.vocabulary.tokens[id].text;
}

static int32_t added_find(const AddedSet *set, const char *token) {
    for (int32_t i = 0; i < set->vocabulary.capacity; i++)
        if (strcmp(set->tokens[i].content, token) == 0) return set->tokens[i].id;
    return -1;
}

int32_t tokenizer_find(const Tokenizer *self, const char *token) {
    int32_t id = vocabulary_find(&self->model.vocabulary, token, strlen(token));
    return id >= 0 ? id : added_find(&self->original, token);
}

/* --- reading --- */

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), bytes = strlen(end);
    return length >= bytes && strcmp(text + length - bytes, end) == 0;
}

/* Reads from a folder: what lies in it decides. */
static Status read_folder(Tokenizer *self, const char *folder, Diag *diag) {
    const char *json = path_join(self->arena, folder, "tokenizer.json");
    const char *vocab = path_join(self->arena, folder, "vocab.txt");
    bool has_json = path_is_file(json);
    if (!has_json && !path_is_file(vocab))
        return diag_fail(diag, STATUS_IO, LOC_FILE(folder), NULL,
                         "expected a folder with a tokenizer.json or a vocab.txt");
    TRY(path_check_inside(folder, has_json ? json : vocab, diag));
    return has_json ? tokenizer_read_json(self, json, folder, diag)
                    : tokenizer_read_vocab(self, vocab, folder, diag);
}

static Status read_any(Tokenizer *self, const char *path, Diag *diag) {
    if (path_is_folder(path)) return read_folder(self, path, diag);
    const char *folder = path_folder(self->arena, path);
    if (ends_with(path, ".json")) return tokenizer_read_json(self, path, folder, diag);
    return tokenizer_read_vocab(self, path, folder, diag);
}

Status tokenizer_read(Tokenizer **out, const char *path, Diag *diag) {
    Arena *arena = arena_create();
    Tokenizer *self = ARENA_NEW(arena, Tokenizer);
    self->arena = arena;
    Status status = read_any(self, path, diag);
    if (status == STATUS_OK)
        *out = self;
    else
        arena_destroy(arena);
    return status;
}

void tokenizer_destroy(Tokenizer *self) {
    if (self) arena_destroy(self->arena);
}
