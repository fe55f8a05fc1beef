/* Tokenizer: encoding, truncation, template. */
#include "io/tokenizers/tokenizer_model.h"

#include "io/files/file.h"
#include "io/tokenizers/unicode.h"

#include <stdlib.h>
#include <string.h>

/* Memory that encoding takes, beside the numbers. */
typedef struct EncodingScratch {
    IdList first, second;
    IdList word_of; /* of each token of `first`: tokenizer_encode_words */
    Text spaced;    /* a word with a space in front */
    NormalizeScratch normalize;
    WordScratch words;
    UnknownChars unknown;
} EncodingScratch;

static EncodingScratch *scratch_of(Encoding *out) {
    if (!out->scratch) out->scratch = memory_alloc(1, sizeof *out->scratch);
    return out->scratch;
}

/* --- text to tokens --- */

/* Characters without a token are the unknown one, or counted. */
static void characters_split(const Tokenizer *self, TextSpan text, IdList *ids,
                             UnknownChars *unknown) {
    for (size_t i = 0, bytes; i < text.length; i += bytes) {
        uint32_t c = utf8_decode(text.text + i, &bytes);
        int32_t id = vocabulary_find(&self->vocabulary, text.text + i, bytes);
        if (id < 0) id = self->unknown;
        if (id >= 0)
            ids_add(ids, id);
        else if (unknown->count++ == 0)
            unknown->first = c;
    }
}

/* The same for whole words. */
static void wordlevel_split(const Tokenizer *self, TextSpan text, IdList *ids,
                            UnknownChars *unknown) {
    size_t begin = 0, end = 0;
    for (; word_next(self->split, text.text, text.length, &begin, &end); begin = end) {
        size_t bytes;
        int32_t id = vocabulary_find(&self->vocabulary, text.text + begin, end - begin);
        if (id < 0) id = self->unknown;
        if (id >= 0)
            ids_add(ids, id);
        else if (unknown->count++ == 0)
            unknown->first = utf8_decode(text.text + begin, &bytes);
    }
}

/* Appends the tokens of a piece of normalized text that holds no added token; `first` is
 * whether the text starts with it. False when it becomes too long. */
static bool add_piece(const Tokenizer *self, EncodingScratch *scratch, TextSpan piece,
                      bool first, IdList *ids) {
    const WordModel model = {&self->bpe,
                             self->kind == MODEL_UNIGRAM ? &self->unigram : NULL};
    switch (self->kind) {
    case MODEL_WORDPIECE:
        wordpiece_split(&self->wordpiece, piece.text, piece.length, ids);
        return true;
    case MODEL_BPE:
    case MODEL_UNIGRAM:
        return words_split(&self->words, &model, &scratch->words, piece, first, ids,
                           &scratch->unknown);
    case MODEL_CHARACTERS:
        characters_split(self, piece, ids, &scratch->unknown);
        return true;
    case MODEL_WORDS: wordlevel_split(self, piece, ids, &scratch->unknown);
    }
    return true;
}

/* Appends the tokens of a stretch of the text that holds no token of `original`. */
static bool add_stretch(const Tokenizer *self, EncodingScratch *scratch, TextSpan stretch,
                        bool first, IdList *ids) {
    size_t search = 0, done = 0;
    AddedMatch match;
    TextSpan text;
    if (!normalizer_apply(&self->normalizer, &scratch->normalize, stretch, first, &text))
        return false;
    while (added_next(&self->normalized, text.text, text.length, &search, done, &match)) {
        TextSpan piece = {text.text + done, match.begin - done};
        if (done < match.begin &&
            !add_piece(self, scratch, piece, first && done == 0, ids))
            return false;
        ids_add(ids, match.id);
        done = match.end;
    }
    TextSpan rest = {text.text + done, text.length - done};
    return rest.length == 0 || add_piece(self, scratch, rest, first && done == 0, ids);
}

/* Appends the tokens of a text; false when it becomes too long. */
static bool add_text(const Tokenizer *self, EncodingScratch *scratch, TextSpan text,
                     IdList *ids) {
    size_t search = 0, done = 0;
    AddedMatch match;
    while (added_next(&self->original, text.text, text.length, &search, done, &match)) {
        TextSpan stretch = {text.text + done, match.begin - done};
        if (done < match.begin && !add_stretch(self, scratch, stretch, done == 0, ids))
            return false;
        ids_add(ids, match.id);
        done = match.end;
    }
    TextSpan rest = {text.text + done, text.length - done};
    return rest.length == 0 || add_stretch(self, scratch, rest, done == 0, ids);
}

/* Where a character stands in a text, in lower case or not; the length when nowhere. */
static size_t find_char(TextSpan text, uint32_t wanted) {
    for (size_t i = 0, bytes; i < text.length; i += bytes) {
        uint32_t lower[2], c = utf8_decode(text.text + i, &bytes);
        if (c == wanted) return i;
        for (int j = char_lower(c, lower); j > 0; j--)
            if (lower[j - 1] == wanted) return i;
    }
    return text.length;
}

static Status fail_unknown(TextSpan text, uint32_t c, Loc at, Diag *diag) {
    char shown[UTF8_MAX + 1] = "", place[64] = "";
    size_t offset = find_char(text, c);
    if (c >= ' ' && !char_is_control(c)) shown[utf8_encode(shown, c)] = 0;
    Loc found = utf8_locate("", text.text, offset);
    if (offset < text.length)
        snprintf(place, sizeof place, ", line %d, column %d of the text", found.line,
                 found.column);
    diag_fail(diag, STATUS_FORMAT, at, NULL,
              "no token stands for the character '%s' (U+%04X)%s", shown, c, place);
    diag_hint(diag, "leave such characters out (skip_unknown of data sets), or give the "
                    "tokenizer an unk_token");
    return STATUS_FORMAT;
}

/* Replaces `ids` by the tokens of a whole text. */
static Status text_split(const Tokenizer *self, Encoding *out, TextSpan text, IdList *ids,
                         Loc at, Diag *diag) {
    EncodingScratch *scratch = out->scratch;
    size_t valid = utf8_check(text.text, text.length);
    ids->count = 0;
    scratch->unknown = (UnknownChars){0};
    if (valid < text.length)
        return diag_fail(diag, STATUS_FORMAT, at, NULL,
                         "invalid UTF-8, byte 0x%02x at offset %zu of the text",
                         (unsigned char)text.text[valid], valid);
    regex_start(&scratch->words.regex, text.length);
    if (text.length > NORMALIZED_BYTES || !add_text(self, scratch, text, ids)) {
        if (scratch->words.regex.gave_up || scratch->normalize.regex.gave_up)
            return diag_fail(diag, STATUS_FORMAT, at, NULL,
                             "a regular expression of the tokenizer takes more steps on "
                             "this text than it may");
        return diag_fail(
            diag, STATUS_FORMAT, at, NULL,
            "expected a text of at most %d bytes that normalizing does not swell",
            NORMALIZED_BYTES);
    }
    if (scratch->unknown.count > 0 && !out->skip_unknown)
        return fail_unknown(text, scratch->unknown.first, at, diag);
    out->skipped += scratch->unknown.count;
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

int32_t tokenizer_begin(const Tokenizer *self) {
    const int32_t bos = self->specials.bos;
    return bos >= 0 && self->single.pieces[0].id == bos ? bos : -1;
}

static Status check_room(size_t max_length, size_t overhead, Loc at, Diag *diag) {
    if (max_length == 0 || max_length >= overhead) return STATUS_OK;
    return diag_fail(diag, STATUS_RECIPE, at, "max_length",
                     "expected at least %zu, for the special tokens, found %zu", overhead,
                     max_length);
}

Status tokenizer_encode(const Tokenizer *self, Encoding *out, TextSpan first,
                        const TextSpan *second, size_t max_length, Loc at, Diag *diag) {
    size_t overhead = tokenizer_overhead(self, second != NULL);
    EncodingScratch *scratch = scratch_of(out);
    TRY(check_room(max_length, overhead, at, diag));
    scratch->second.count = 0;
    out->skipped = 0;
    TRY(text_split(self, out, first, &scratch->first, at, diag));
    if (second) TRY(text_split(self, out, *second, &scratch->second, at, diag));
    const size_t all = scratch->first.count + scratch->second.count;
    if (max_length > 0)
        cut_pair(&scratch->first.count, &scratch->second.count, max_length - overhead);
    out->cut = all - scratch->first.count - scratch->second.count;
    template_apply(second ? &self->pair : &self->single, out);
    return STATUS_OK;
}

Status tokenizer_encode_plain(const Tokenizer *self, Encoding *out, TextSpan text, Loc at,
                              Diag *diag) {
    EncodingScratch *scratch = scratch_of(out);
    out->skipped = out->cut = 0;
    TRY(text_split(self, out, text, &scratch->first, at, diag));
    out_reserve(out, scratch->first.count);
    out->length = 0;
    out_add(out, scratch->first.items, scratch->first.count, 0);
    return STATUS_OK;
}

/* --- words that were cut before --- */

/* Whether tokens begin with spaces that the pre-tokenizer does not put there. */
static bool wants_space(const Tokenizer *self) {
    bool bytes = false, space = false;
    for (int i = 0; i < self->words.count; i++) {
        bytes |= self->words.steps[i].kind == WORDS_BYTES;
        space |= self->words.steps[i].space_in_front;
    }
    return bytes && !space;
}

/* Which word each token is of, once the template is applied. */
static void words_place(const Tokenizer *self, Encoding *out) {
    const IdList *word_of = &out->scratch->word_of;
    size_t at = 0;
    if (out->length > out->word_capacity) {
        out->word_capacity = out->capacity;
        out->words = memory_grow(out->words, out->word_capacity, sizeof *out->words);
    }
    for (int i = 0; i < self->single.count; i++) {
        if (self->single.pieces[i].id != PIECE_FIRST) {
            out->words[at++] = -1;
            continue;
        }
        for (size_t k = 0; k < out->scratch->first.count; k++)
            out->words[at++] = word_of->items[k];
    }
}

Status tokenizer_encode_words(const Tokenizer *self, Encoding *out, const TextSpan *words,
                              size_t count, size_t max_length, Loc at, Diag *diag) {
    const bool space = wants_space(self);
    const size_t overhead = tokenizer_overhead(self, false);
    EncodingScratch *scratch = scratch_of(out);
    IdList *all = &scratch->first;
    TRY(check_room(max_length, overhead, at, diag));
    all->count = scratch->word_of.count = out->skipped = out->cut = 0;
    for (size_t w = 0; w < count; w++) {
        TextSpan word = words[w];
        scratch->spaced.length = 0;
        text_bytes(&scratch->spaced, " ", 1);
        text_bytes(&scratch->spaced, word.text, word.length);
        if (space) word = (TextSpan){scratch->spaced.data, scratch->spaced.length};
        TRY(text_split(self, out, word, &scratch->second, at, diag));
        for (size_t k = 0; k < scratch->second.count; k++) {
            ids_add(all, scratch->second.items[k]);
            ids_add(&scratch->word_of, (int32_t)w);
        }
    }
    if (max_length > 0 && all->count > max_length - overhead) {
        out->cut = all->count - (max_length - overhead);
        all->count = max_length - overhead;
    }
    template_apply(&self->single, out);
    words_place(self, out);
    return STATUS_OK;
}

void encoding_free(Encoding *encoding) {
    free(encoding->ids);
    free(encoding->types);
    free(encoding->words);
    if (encoding->scratch) {
        free(encoding->scratch->first.items);
        free(encoding->scratch->second.items);
        free(encoding->scratch->word_of.items);
        text_free(&encoding->scratch->spaced);
        normalize_scratch_free(&encoding->scratch->normalize);
        word_scratch_free(&encoding->scratch->words);
    }
    free(encoding->scratch);
    *encoding = (Encoding){0};
}

/* --- what a tokenizer knows --- */

int32_t tokenizer_size(const Tokenizer *self) {
    return self->vocabulary.capacity;
}

const SpecialIds *tokenizer_specials(const Tokenizer *self) {
    return &self->specials;
}

bool tokenizer_lowercases(const Tokenizer *self) {
    for (int i = 0; i < self->normalizer.count; i++) {
        const NormalizeStep *step = &self->normalizer.steps[i];
        if (step->kind == NORMALIZE_LOWERCASE) return true;
        if (step->kind == NORMALIZE_BERT && step->rules.lowercase) return true;
    }
    return false;
}

const char *tokenizer_token(const Tokenizer *self, int32_t id) {
    if (id < 0 || id >= tokenizer_size(self)) return NULL;
    return self->vocabulary.tokens[id].text;
}

int32_t tokenizer_find(const Tokenizer *self, const char *token) {
    int32_t id = vocabulary_find(&self->vocabulary, token, strlen(token));
    const AddedSet *added = &self->original;
    for (int32_t i = 0; i < added->vocabulary.capacity && id < 0; i++)
        if (strcmp(added->tokens[i].content, token) == 0) id = added->tokens[i].id;
    return id;
}

/* --- the end --- */

void tokenizer_destroy(Tokenizer *self) {
    if (!self) return;
    for (int i = 0; i < self->normalizer.count; i++)
        regex_destroy(self->normalizer.steps[i].regex);
    for (int i = 0; i < self->words.count; i++) regex_destroy(self->words.steps[i].regex);
    for (int i = 0; i < self->decode.count; i++)
        regex_destroy(self->decode.steps[i].regex);
    arena_destroy(self->arena);
}
