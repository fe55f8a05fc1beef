/* Added tokens: finding them in a text, as AddedVocabulary of Hugging Face does. */
#include "io/tokenizers/added_tokens.h"

#include "io/tokenizers/unicode.h"

#include <stdlib.h>
#include <string.h>

/* Content as it is looked for, in the arena; empty when there is nothing left of it. */
static Token content_token(Arena *arena, const char *content,
                           const Normalizer *normalizer) {
    TextSpan text = {content, strlen(content)};
    NormalizeScratch scratch = {0};
    if (normalizer && !normalizer_apply(normalizer, &scratch, text, true, &text))
        text.length = 0; /* far too long to occur */
    const char *copy = arena_strndup(arena, text.length ? text.text : "", text.length);
    normalize_scratch_free(&scratch);
    return (Token){copy, (uint32_t)text.length};
}

Status added_collect(AddedSet *set, Arena *arena, const AddedToken *tokens, int count,
                     const Normalizer *normalizer, Loc at, Diag *diag) {
    vocabulary_create(&set->vocabulary, arena, count);
    set->tokens = tokens;
    for (int i = 0; i < count; i++) {
        if (tokens[i].normalized != (normalizer != NULL)) continue;
        Token token = content_token(arena, tokens[i].content, normalizer);
        if (token.length == 0) continue;
        if (token.length > TOKEN_BYTES_MAX)
            return diag_fail(diag, STATUS_FORMAT, at, "added_tokens",
                             "expected at most %d bytes, found %u", TOKEN_BYTES_MAX,
                             token.length);
        set->vocabulary.tokens[i] = token;
        if (vocabulary_add(&set->vocabulary, i) == VOCABULARY_FULL)
            return diag_fail(diag, STATUS_FORMAT, at, "added_tokens",
                             "too many tokens share one place in the hash table");
        set->starts[(unsigned char)token.text[0]] = true;
    }
    return STATUS_OK;
}

/* --- what stands beside a token --- */

static uint32_t char_at(const char *text, size_t i) {
    size_t bytes;
    return utf8_decode(text + i, &bytes);
}

/* Start of the white space before `begin`, not before `least`. */
static size_t space_before(const char *text, size_t begin, size_t least) {
    while (begin > least) {
        size_t at = utf8_before(text, begin);
        if (!char_is_space(char_at(text, at))) break;
        begin = at;
    }
    return begin > least ? begin : least;
}

/* --- searching --- */

/* Longest token at or after `from`: its index and place, or -1. */
static int32_t find_from(const AddedSet *set, const char *text, size_t length,
                         size_t from, AddedMatch *match) {
    Prefix none = prefix_of("", 0);
    for (size_t i = from; i < length; i++) {
        size_t bytes;
        if (!set->starts[(unsigned char)text[i]]) continue;
        int32_t index =
            vocabulary_longest(&set->vocabulary, &none, text + i, length - i, &bytes);
        if (index < 0) continue;
        *match = (AddedMatch){i, i + bytes, set->tokens[index].id};
        return index;
    }
    return -1;
}

bool added_next(const AddedSet *set, const char *text, size_t length, size_t *search,
                size_t done, AddedMatch *match) {
    int32_t index;
    if (set->vocabulary.longest == 0) return false;
    while ((index = find_from(set, text, length, *search, match)) >= 0) {
        const AddedToken *token = &set->tokens[index];
        *search = match->end;
        const size_t begin = match->begin;
        const bool in_word =
            (begin > 0 && char_is_word(char_at(text, utf8_before(text, begin)))) ||
            (match->end < length && char_is_word(char_at(text, match->end)));
        if (token->single_word && in_word) continue;
        if (token->lstrip) match->begin = space_before(text, begin, done);
        for (size_t bytes; token->rstrip && match->end < length; match->end += bytes)
            if (!char_is_space(utf8_decode(text + match->end, &bytes))) break;
        return true;
    }
    return false;
}
