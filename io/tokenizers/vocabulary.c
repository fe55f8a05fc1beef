/* Vocabulary: an open hash table, and reading vocab.txt. */
#include "io/tokenizers/vocabulary.h"

#include "io/tokenizers/unicode.h"

#include <string.h>

enum { ID_BITS = 21, ID_MASK = (1 << ID_BITS) - 1, PROBES_MAX = 1024 };
static const uint64_t HASH_START = 0xcbf29ce484222325u;

/* --- hash table --- */

/* FNV-1a: the hash of a text is a step from that of the text without its last byte. */
static inline uint64_t hash_step(uint64_t hash, char byte) {
    return (hash ^ (unsigned char)byte) * 0x100000001b3u;
}

static uint64_t hash_bytes(uint64_t hash, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) hash = hash_step(hash, text[i]);
    return hash;
}

/* Spreads the hash: the place is its upper bits, the tag its lower ones. */
static inline uint64_t hash_mix(uint64_t hash) {
    return (hash ^ hash >> 32) * 0x9e3779b97f4a7c15u;
}

static inline uint32_t slot_tag(uint64_t mixed) {
    return (uint32_t)mixed << ID_BITS;
}

static bool token_equals(const Token *token, const Prefix *prefix, const char *text,
                         size_t length) {
    return token->length == prefix->length + length &&
           memcmp(token->text + prefix->length, text, length) == 0 &&
           (prefix->length == 0 ||
            memcmp(token->text, prefix->text, prefix->length) == 0);
}

/* Number of the token prefix + text of this hash, or -1; `place` (may be NULL) receives
 * the slot where the search ended, NULL when it was given up. */
static inline int32_t slot_find(const Vocabulary *vocabulary, uint64_t hash,
                                const Prefix *prefix, const char *text, size_t length,
                                uint32_t **place) {
    uint64_t mixed = hash_mix(hash);
    uint64_t mask = UINT64_MAX >> vocabulary->shift;
    for (uint64_t i = 0; i < PROBES_MAX; i++) {
        uint32_t *slot = &vocabulary->slots[((mixed >> vocabulary->shift) + i) & mask];
        if (place) *place = slot;
        if (*slot == 0) return -1;
        int32_t id = (int32_t)(*slot & ID_MASK) - 1;
        if ((*slot & ~(uint32_t)ID_MASK) == slot_tag(mixed) &&
            token_equals(&vocabulary->tokens[id], prefix, text, length))
            return id;
    }
    if (place) *place = NULL;
    return -1;
}

void vocabulary_create(Vocabulary *vocabulary, Arena *arena, int32_t capacity) {
    int bits = 4;
    while ((int64_t)1 << bits < 2 * (int64_t)capacity) bits++;
    *vocabulary = (Vocabulary){.tokens = ARENA_ARRAY(arena, Token, (size_t)capacity),
                               .capacity = capacity,
                               .slots = ARENA_ARRAY(arena, uint32_t, (size_t)1 << bits),
                               .shift = 64 - bits};
}

int32_t vocabulary_add(Vocabulary *vocabulary, int32_t id) {
    const Token *token = &vocabulary->tokens[id];
    Prefix none = prefix_of("", 0);
    uint64_t hash = hash_bytes(HASH_START, token->text, token->length);
    uint32_t *place;
    int32_t found =
        slot_find(vocabulary, hash, &none, token->text, token->length, &place);
    if (found >= 0) return found;
    if (!place) return VOCABULARY_FULL;
    *place = slot_tag(hash_mix(hash)) | (uint32_t)(id + 1);
    if (token->length > vocabulary->longest) vocabulary->longest = token->length;
    return id;
}

int32_t vocabulary_find(const Vocabulary *vocabulary, const char *text, size_t length) {
    Prefix none = prefix_of("", 0);
    if (length > vocabulary->longest) return -1;
    uint64_t hash = hash_bytes(HASH_START, text, length);
    return slot_find(vocabulary, hash, &none, text, length, NULL);
}

Prefix prefix_of(const char *text, size_t length) {
    return (Prefix){text, (uint32_t)length, hash_bytes(HASH_START, text, length)};
}

int32_t vocabulary_longest(const Vocabulary *vocabulary, const Prefix *prefix,
                           const char *text, size_t length, size_t *matched) {
    uint64_t hashes[TOKEN_BYTES_MAX], hash = prefix->hash;
    if (vocabulary->longest <= prefix->length) return -1;
    size_t most = vocabulary->longest - prefix->length;
    if (most > length) most = length;
    for (size_t i = 0; i < most; i++) hashes[i] = hash = hash_step(hash, text[i]);
    for (size_t n = most; n > 0; n--) {
        if (n < length && (text[n] & 0xc0) == 0x80) continue; /* within a character */
        int32_t id = slot_find(vocabulary, hashes[n - 1], prefix, text, n, NULL);
        if (id < 0) continue;
        *matched = n;
        return id;
    }
    return -1;
}

/* --- vocab.txt --- */

static Status add_line(Vocabulary *vocabulary, Loc at, char *line, size_t length,
                       Diag *diag) {
    int32_t id = at.line - 1;
    while (length > 0 && (unsigned char)line[length - 1] < 0x80 &&
           char_is_space((unsigned char)line[length - 1]))
        length--;
    if (length == 0)
        return diag_fail(diag, STATUS_FORMAT, at, NULL,
                         "expected a token, found an empty line");
    if (length > TOKEN_BYTES_MAX)
        return diag_fail(diag, STATUS_FORMAT, at, NULL,
                         "expected a token of at most %d bytes, found %zu",
                         TOKEN_BYTES_MAX, length);
    line[length] = 0;
    vocabulary->tokens[id] = (Token){line, (uint32_t)length};
    int32_t found = vocabulary_add(vocabulary, id);
    if (found == id) return STATUS_OK;
    if (found == VOCABULARY_FULL)
        return diag_fail(diag, STATUS_FORMAT, at, NULL,
                         "too many tokens share one place in the hash table");
    return diag_fail(diag, STATUS_FORMAT, at, NULL,
                     "expected tokens that differ, found '%s' of line %d again", line,
                     (int)found + 1);
}

Status vocabulary_parse(Vocabulary *vocabulary, Arena *arena, const char *file,
                        char *text, size_t length, Diag *diag) {
    TRY(utf8_check_file(file, text, length, diag));
    size_t mark = utf8_mark_length(text, length);
    char *line = text + mark, *end = text + length;
    int32_t lines = 0;
    for (const char *at = line; at < end && lines <= TOKENS_MAX; lines++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        at = newline ? newline + 1 : end;
    }
    if (lines == 0 || lines > TOKENS_MAX)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(file), NULL,
                         "expected 1 to %d tokens, one a line, found %s", TOKENS_MAX,
                         lines == 0 ? "none" : "more");
    vocabulary_create(vocabulary, arena, lines);
    for (Loc at = {file, 1, 0}; line < end; at.line++) {
        char *newline = memchr(line, '\n', (size_t)(end - line));
        size_t bytes = (size_t)((newline ? newline : end) - line);
        TRY(add_line(vocabulary, at, line, bytes, diag));
        line += bytes + 1;
    }
    return STATUS_OK;
}

/* --- numbers of tokens --- */

void ids_add(IdList *ids, int32_t id) {
    if (ids->count == ids->capacity) {
        ids->capacity = ids->capacity ? 2 * ids->capacity : 64;
        ids->items = memory_grow(ids->items, ids->capacity, sizeof *ids->items);
    }
    ids->items[ids->count++] = id;
}
