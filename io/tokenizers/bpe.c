/* BPE: merging with a heap over a linked list, n log n in the length of the word. */
#include "io/tokenizers/bpe.h"

#include "io/tokenizers/unicode.h"

#include <stdlib.h>
#include <string.h>

enum { PROBES_MAX = 1024, SPELLED_MAX = 8, SHOWN_MAX = 64 };
#define SPLIT_BYTES_MAX (UINT64_C(1) << 32)

/* What stands for a space in front of a word (U+2581). */
static const char SPACE[] = "\xe2\x96\x81";
enum { SPACE_BYTES = 3 };

/* --- bytes as characters --- */

/* Whether a byte stands for itself. */
static bool is_printed(int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
}

uint32_t byte_char(unsigned char byte) {
    uint32_t before = 0; /* bytes before it that do not stand for themselves */
    if (is_printed(byte)) return byte;
    for (int i = 0; i < byte; i++) before += !is_printed(i);
    return 256 + before;
}

int char_byte(uint32_t c) {
    if (c >= BYTE_CHARS) return -1;
    if (c < 256) return is_printed((int)c) ? (int)c : -1;
    int place = (int)c - 256, byte = 0;
    for (;; byte++)
        if (!is_printed(byte) && place-- == 0) return byte;
}

/* How a byte is written in the vocabulary. */
static size_t byte_spell(const Bpe *bpe, int byte, char out[SPELLED_MAX]) {
    if (bpe->byte_level) return utf8_encode(out, byte_char((unsigned char)byte));
    return (size_t)snprintf(out, SPELLED_MAX, "<0x%02X>", (unsigned)byte);
}

Status bpe_bytes(Bpe *bpe, Loc at, Diag *diag) {
    for (int byte = 0; byte < 256; byte++) {
        char name[SPELLED_MAX];
        size_t length = byte_spell(bpe, byte, name);
        bpe->bytes[byte] = vocabulary_find(bpe->vocabulary, name, length);
        if (bpe->byte_fallback && !bpe->byte_level && bpe->bytes[byte] < 0)
            return diag_fail(diag, STATUS_FORMAT, at, "model.byte_fallback",
                             "the vocabulary lacks the token %s", name);
    }
    return STATUS_OK;
}

/* --- merges --- */

void bpe_create(Bpe *bpe, Arena *arena, const Vocabulary *vocabulary, size_t count) {
    int bits = 4;
    while ((size_t)1 << bits < 2 * count) bits++;
    bpe->vocabulary = vocabulary;
    bpe->merges = ARENA_ARRAY(arena, Merge, (size_t)1 << bits);
    bpe->shift = 64 - bits;
    bpe->merge_count = 0;
}

/* Key of two tokens, not 0. */
static uint64_t pair_key(int32_t left, int32_t right) {
    return ((uint64_t)left << 32 | (uint32_t)right) + 1;
}

/* Slot of a key, or the free one where it belongs; NULL when the search is given up. */
static inline Merge *merge_slot(const Bpe *bpe, uint64_t key) {
    uint64_t mask = UINT64_MAX >> bpe->shift;
    uint64_t mixed = (key ^ key >> 29) * 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93u;
    for (uint64_t i = 0; i < PROBES_MAX; i++) {
        Merge *slot = &bpe->merges[((mixed >> bpe->shift) + i) & mask];
        if (slot->key == key || slot->key == 0) return slot;
    }
    return NULL;
}

/* The merge of two neighbours, NULL = none. */
static inline const Merge *merge_find(const Bpe *bpe, int32_t left, int32_t right) {
    const Merge *slot = merge_slot(bpe, pair_key(left, right));
    return slot && slot->key ? slot : NULL;
}

static Status find_part(int32_t *id, const Bpe *bpe, TextSpan part, Loc at,
                        const char *key, Diag *diag) {
    *id = vocabulary_find(bpe->vocabulary, part.text, part.length);
    if (*id >= 0) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, at, key, "'%.*s' is not in the vocabulary",
                     part.length < SHOWN_MAX ? (int)part.length : SHOWN_MAX, part.text);
}

static bool begins_with_space(TextSpan text) {
    return text.length >= SPACE_BYTES && memcmp(text.text, SPACE, SPACE_BYTES) == 0;
}

static bool ends_with_space(TextSpan text) {
    return text.length >= SPACE_BYTES &&
           memcmp(text.text + text.length - SPACE_BYTES, SPACE, SPACE_BYTES) == 0;
}

/* Notes whether a merge joins words: a token that holds the place between two was made by
 * a merge just there. */
static void note_merge(Bpe *bpe, TextSpan left, TextSpan right) {
    bpe->joins_words |= begins_with_space(right) && !ends_with_space(left);
}

Status bpe_add(Bpe *bpe, TextSpan left, TextSpan right, Loc at, const char *key,
               Diag *diag) {
    int32_t a, b, whole;
    char text[2 * TOKEN_BYTES_MAX];
    TRY(find_part(&a, bpe, left, at, key, diag));
    TRY(find_part(&b, bpe, right, at, key, diag));
    memcpy(text, left.text, left.length); /* tokens are at most TOKEN_BYTES_MAX long */
    memcpy(text + left.length, right.text, right.length);
    TextSpan both = {text, left.length + right.length};
    TRY(find_part(&whole, bpe, both, at, key, diag));
    Merge *slot = merge_slot(bpe, pair_key(a, b));
    if (!slot)
        return diag_fail(diag, STATUS_FORMAT, at, key,
                         "too many merges share one place in the hash table");
    *slot = (Merge){pair_key(a, b), bpe->merge_count++, whole};
    note_merge(bpe, left, right);
    return STATUS_OK;
}

/* --- merges in the order of scores --- */

/* A token by its score, the highest first. */
typedef struct Scored {
    double score;
    int32_t id;
} Scored;

static int scored_order(const void *a, const void *b) {
    const Scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* The parts of a token that is cut at `at`; false when one is none to join. */
static bool split_parts(const Vocabulary *vocabulary, const bool *joined,
                        const Token *token, size_t at, int32_t count, int32_t parts[2]) {
    parts[0] = vocabulary_find(vocabulary, token->text, at);
    if (parts[0] < 0 || parts[0] >= count || !joined[parts[0]]) return false;
    parts[1] = vocabulary_find(vocabulary, token->text + at, token->length - at);
    return parts[1] >= 0 && parts[1] < count && joined[parts[1]];
}

/* Counts the ways to make a token of two others; appends them when they are to have a
 * rank. False when too many share one place in the hash table. */
static bool add_splits(Bpe *bpe, const Vocabulary *vocabulary, const bool *joined,
                       int32_t count, const Scored *scored, bool append, size_t *ways) {
    const Token *token = &vocabulary->tokens[scored->id];
    for (size_t at = 1; at < token->length; at++) {
        int32_t parts[2];
        if (((unsigned char)token->text[at] & 0xc0) == 0x80) continue;
        if (!split_parts(vocabulary, joined, token, at, count, parts)) continue;
        ++*ways;
        if (!append) continue;
        Merge *slot = merge_slot(bpe, pair_key(parts[0], parts[1]));
        if (!slot) return false;
        *slot = (Merge){pair_key(parts[0], parts[1]), bpe->merge_count, scored->id};
        note_merge(bpe, (TextSpan){token->text, at},
                   (TextSpan){token->text + at, token->length - at});
    }
    return true;
}

Status bpe_add_splits(Bpe *bpe, Arena *arena, const Vocabulary *vocabulary,
                      const double *scores, const bool *joined, int32_t count, Loc at,
                      const char *key, Diag *diag) {
    Scored *order = memory_alloc((size_t)count + 1, sizeof *order);
    size_t made = 0, ways = 0;
    uint64_t bytes = 0;
    bool fits = true;
    for (int32_t i = 0; i < count; i++) {
        const uint64_t length = vocabulary->tokens[i].length;
        if (!joined[i]) continue;
        order[made++] = (Scored){scores[i], i};
        bytes += length * length; /* that looking for the parts reads */
    }
    qsort(order, made, sizeof *order, scored_order);
    for (size_t i = 0; i < made && bytes <= SPLIT_BYTES_MAX; i++)
        add_splits(bpe, vocabulary, joined, count, &order[i], false, &ways);
    fits = bytes <= SPLIT_BYTES_MAX && ways <= MERGES_MAX;
    if (fits) bpe_create(bpe, arena, vocabulary, ways);
    for (size_t i = 0; i < made && fits; i++) {
        if (i > 0 && order[i].score != order[i - 1].score) bpe->merge_count++;
        fits = add_splits(bpe, vocabulary, joined, count, &order[i], true, &ways);
    }
    free(order);
    if (fits) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, at, key,
                     "expected shorter tokens, of at most %d merges that share no place "
                     "in the hash table",
                     MERGES_MAX);
}

/* --- heap of the merges that wait --- */

static void heap_push(BpeScratch *scratch, BpeCandidate item) {
    if (scratch->waiting == scratch->heap_capacity) {
        scratch->heap_capacity = scratch->heap_capacity ? 2 * scratch->heap_capacity : 64;
        scratch->heap =
            memory_grow(scratch->heap, scratch->heap_capacity, sizeof *scratch->heap);
    }
    BpeCandidate *heap = scratch->heap;
    size_t i = scratch->waiting++;
    for (; i > 0 && heap[(i - 1) / 2].order > item.order; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = item;
}

static BpeCandidate heap_pop(BpeScratch *scratch) {
    BpeCandidate *heap = scratch->heap, first = heap[0];
    BpeCandidate item = heap[--scratch->waiting];
    size_t i = 0, count = scratch->waiting;
    for (size_t child; (child = 2 * i + 1) < count; i = child) {
        if (child + 1 < count && heap[child + 1].order < heap[child].order) child++;
        if (heap[child].order >= item.order) break;
        heap[i] = heap[child];
    }
    heap[i] = item;
    return first;
}

/* Lets the merge of a symbol and the one after it wait, if there is one. */
static void wait_for(const Bpe *bpe, BpeScratch *scratch, int32_t place) {
    const BpeSymbol *left = &scratch->symbols[place];
    if (left->after < 0) return;
    const Merge *merge = merge_find(bpe, left->id, scratch->symbols[left->after].id);
    if (merge)
        heap_push(scratch, (BpeCandidate){(uint64_t)merge->rank << 32 | (uint32_t)place,
                                          merge->id});
}

/* --- words --- */

static void symbol_add(BpeScratch *scratch, int32_t id) {
    if (scratch->count == scratch->capacity) {
        scratch->capacity = scratch->capacity ? 2 * scratch->capacity : 64;
        scratch->symbols =
            memory_grow(scratch->symbols, scratch->capacity, sizeof *scratch->symbols);
    }
    int32_t place = (int32_t)scratch->count++;
    scratch->symbols[place] = (BpeSymbol){id, place - 1, place + 1};
}

/* Adds a character that is not in the vocabulary: its bytes, or the unknown token.
 * `fused` is whether the symbol before stands for an unknown character. */
static bool add_unknown(const Bpe *bpe, BpeScratch *scratch, const char *text,
                        size_t bytes, bool fused, UnknownChars *unknown) {
    if (bpe->byte_fallback && !bpe->byte_level) {
        for (size_t i = 0; i < bytes; i++)
            symbol_add(scratch, bpe->bytes[(unsigned char)text[i]]);
        return false;
    }
    if (bpe->unknown < 0) {
        size_t length;
        if (unknown->count++ == 0) unknown->first = utf8_decode(text, &length);
        return false;
    }
    if (!(fused && bpe->fuse_unknown)) symbol_add(scratch, bpe->unknown);
    return true;
}

static void add_chars(const Bpe *bpe, BpeScratch *scratch, const char *word,
                      size_t length, UnknownChars *unknown) {
    bool fused = false;
    for (size_t i = 0, bytes; i < length; i += bytes) {
        utf8_decode(word + i, &bytes);
        int32_t id = vocabulary_find(bpe->vocabulary, word + i, bytes);
        if (id >= 0) {
            symbol_add(scratch, id);
            fused = false;
        } else {
            fused = add_unknown(bpe, scratch, word + i, bytes, fused, unknown);
        }
    }
}

/* Adds the bytes of a word; a character of which one has no token is unknown. */
static void add_bytes(const Bpe *bpe, BpeScratch *scratch, const char *word,
                      size_t length, UnknownChars *unknown) {
    bool fused = false;
    for (size_t i = 0; i < length; i++) {
        int32_t id = bpe->bytes[(unsigned char)word[i]];
        if (id >= 0) {
            symbol_add(scratch, id);
            fused = false;
            continue;
        }
        size_t start = i, bytes;
        while (((unsigned char)word[start] & 0xc0) == 0x80) start--;
        utf8_decode(word + start, &bytes);
        fused = add_unknown(bpe, scratch, word + start, bytes, fused, unknown);
    }
}

static void merge_all(const Bpe *bpe, BpeScratch *scratch) {
    scratch->waiting = 0;
    for (size_t i = 0; i + 1 < scratch->count; i++) wait_for(bpe, scratch, (int32_t)i);
    while (scratch->waiting > 0) {
        BpeCandidate next = heap_pop(scratch);
        int32_t place = (int32_t)(next.order & UINT32_MAX);
        BpeSymbol *left = &scratch->symbols[place];
        if (left->id < 0 || left->after < 0) continue;
        /* what stands here may be other tokens by now */
        const Merge *merge = merge_find(bpe, left->id, scratch->symbols[left->after].id);
        if (!merge || merge->id != next.id) continue;
        BpeSymbol *symbols = scratch->symbols, *right = &symbols[left->after];
        left->id = next.id;
        left->after = right->after;
        right->id = -1;
        if (left->after >= 0) symbols[left->after].before = place;
        if (left->before >= 0) wait_for(bpe, scratch, left->before);
        wait_for(bpe, scratch, place);
    }
}

/* Number of a whole word that is a token, or -1. */
static int32_t find_whole(const Bpe *bpe, BpeScratch *scratch, const char *word,
                          size_t length) {
    if (!bpe->byte_level) return vocabulary_find(bpe->vocabulary, word, length);
    if (length > TOKEN_BYTES_MAX) return -1;
    scratch->spelled.length = 0;
    for (size_t i = 0; i < length; i++) {
        char spelled[SPELLED_MAX];
        size_t bytes = byte_spell(bpe, (unsigned char)word[i], spelled);
        text_bytes(&scratch->spelled, spelled, bytes);
    }
    return vocabulary_find(bpe->vocabulary, scratch->spelled.data,
                           scratch->spelled.length);
}

/* Bytes at the start of a word that no merge joins with what is behind them: tokenizers
 * of SentencePiece's kind take a whole text for one word, in which "▁" begins the real
 * ones. */
static size_t part_length(const Bpe *bpe, const char *word, size_t length) {
    if (bpe->joins_words || bpe->ignore_merges || bpe->byte_level) return length;
    const char *at = word;
    while ((at = memmem(at + 1, length - (size_t)(at + 1 - word), SPACE, SPACE_BYTES)))
        if (!ends_with_space((TextSpan){word, (size_t)(at - word)}))
            return (size_t)(at - word);
    return length;
}

/* Appends the tokens of a part of a word. */
static void split_part(const Bpe *bpe, BpeScratch *scratch, const char *word,
                       size_t length, IdList *ids, UnknownChars *unknown) {
    scratch->count = 0;
    if (bpe->byte_level)
        add_bytes(bpe, scratch, word, length, unknown);
    else
        add_chars(bpe, scratch, word, length, unknown);
    if (scratch->count == 0) return;
    scratch->symbols[scratch->count - 1].after = -1;
    merge_all(bpe, scratch);
    for (int32_t i = 0; i >= 0; i = scratch->symbols[i].after)
        ids_add(ids, scratch->symbols[i].id);
}

void bpe_split(const Bpe *bpe, BpeScratch *scratch, const char *word, size_t length,
               IdList *ids, UnknownChars *unknown) {
    if (length == 0) return;
    int32_t whole = bpe->ignore_merges ? find_whole(bpe, scratch, word, length) : -1;
    if (whole >= 0) {
        ids_add(ids, whole);
        return;
    }
    for (size_t done = 0, part; done < length; done += part) {
        part = part_length(bpe, word + done, length - done);
        split_part(bpe, scratch, word + done, part, ids, unknown);
    }
}

void bpe_scratch_free(BpeScratch *scratch) {
    free(scratch->symbols);
    free(scratch->heap);
    text_free(&scratch->spelled);
    *scratch = (BpeScratch){0};
}
