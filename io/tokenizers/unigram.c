/* Unigram: see unigram.h. */
#include "io/tokenizers/unigram.h"

#include "io/tokenizers/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the trie --- */

/* A piece while the trie is built. */
typedef struct Piece {
    const char *text; /* first: text_order compares it */
    uint32_t length;
    int32_t id;
} Piece;

/* Nodes, breadth first, and of each the pieces [begin, end) that go through it. */
typedef struct TrieBuilder {
    const Piece *pieces;
    UnigramNode *nodes;
    uint32_t *begin, *end;
    size_t count, capacity;
} TrieBuilder;

static void add_node(TrieBuilder *self, uint8_t byte, uint32_t begin, uint32_t end) {
    if (self->count == self->capacity) {
        self->capacity = 2 * self->capacity + 1024;
        self->nodes = memory_grow(self->nodes, self->capacity, sizeof *self->nodes);
        self->begin = memory_grow(self->begin, self->capacity, sizeof *self->begin);
        self->end = memory_grow(self->end, self->capacity, sizeof *self->end);
    }
    self->begin[self->count] = begin;
    self->end[self->count] = end;
    self->nodes[self->count++] = (UnigramNode){.byte = byte, .id = -1};
}

/* Gives a node, `depth` bytes below the root, its piece and its children. */
static void add_children(TrieBuilder *self, size_t node, uint32_t depth) {
    uint32_t i = self->begin[node], end = self->end[node];
    if (i < end && self->pieces[i].length == depth)
        self->nodes[node].id = self->pieces[i++].id;
    self->nodes[node].first = (uint32_t)self->count;
    while (i < end) {
        const uint32_t begin = i;
        const char byte = self->pieces[i].text[depth];
        while (i < end && self->pieces[i].text[depth] == byte) i++;
        add_node(self, (uint8_t)byte, begin, i);
        self->nodes[node].count++;
    }
}

/* False when there are more than UNIGRAM_NODES_MAX. */
static bool add_nodes(TrieBuilder *self, uint32_t pieces) {
    uint32_t depth = 0;
    size_t level_end = 1;
    add_node(self, 0, 0, pieces);
    for (size_t node = 0; node < self->count; node++) {
        if (node == level_end) {
            depth++;
            level_end = self->count;
        }
        add_children(self, node, depth);
        if (self->count > UNIGRAM_NODES_MAX) return false;
    }
    return true;
}

void unigram_bytes(Unigram *self) {
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        const int length = snprintf(name, sizeof name, "<0x%02X>", byte);
        self->bytes[byte] = vocabulary_find(self->vocabulary, name, (size_t)length);
    }
}

Status unigram_build(Unigram *self, Arena *arena, const bool *left_out, Loc at,
                     const char *key, Diag *diag) {
    Piece *pieces = memory_alloc((size_t)self->pieces + 1, sizeof *pieces);
    uint32_t count = 0;
    for (int32_t i = 0; i < self->pieces; i++) {
        const Token *token = &self->texts[i];
        if (token->length > 0 && !(left_out && left_out[i]))
            pieces[count++] = (Piece){token->text, token->length, i};
    }
    qsort(pieces, count, sizeof *pieces, text_order);
    for (uint32_t i = 1; i < count; i++) {
        if (strcmp(pieces[i - 1].text, pieces[i].text) != 0) continue;
        diag_fail(diag, STATUS_FORMAT, at, key,
                  "expected pieces that differ, found '%.64s' again", pieces[i].text);
        free(pieces);
        return STATUS_FORMAT;
    }
    TrieBuilder builder = {.pieces = pieces};
    const bool built = add_nodes(&builder, count);
    if (built) {
        UnigramNode *nodes = ARENA_ARRAY(arena, UnigramNode, builder.count);
        memcpy(nodes, builder.nodes, builder.count * sizeof *nodes);
        self->nodes = nodes;
    }
    free(builder.nodes);
    free(builder.begin);
    free(builder.end);
    free(pieces);
    if (built) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, at, key,
                     "expected pieces that start alike, found more than %d different "
                     "starts",
                     UNIGRAM_NODES_MAX);
}

/* The child of a node that a byte leads to, NULL = none. */
static inline const UnigramNode *child_find(const Unigram *self, const UnigramNode *node,
                                            uint8_t byte) {
    const UnigramNode *children = self->nodes + node->first;
    uint32_t low = 0, high = node->count;
    if (high == 256) return &children[byte];
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (children[middle].byte == byte) return &children[middle];
        if (children[middle].byte < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* --- the best cut --- */

static void offer(const Unigram *self, UnigramStep *step, double score, size_t length,
                  int32_t id) {
    if (step->length > 0 && score <= step->score) return;
    *step =
        (UnigramStep){self->single ? (double)(float)score : score, (uint32_t)length, id};
}

/* Offers every piece that starts at a place to the place where it ends. */
static void offer_pieces(const Unigram *self, UnigramStep *steps, const char *word,
                         size_t at, size_t length) {
    size_t character;
    bool alone = false; /* a piece is just the character */
    const double here = steps[at].score;
    const UnigramNode *node = self->nodes;
    utf8_decode(word + at, &character);
    for (size_t i = at; i < length; i++) {
        node = child_find(self, node, (uint8_t)word[i]);
        if (!node) break;
        if (node->id < 0) continue;
        offer(self, &steps[i + 1], here + self->scores[node->id], i + 1 - at, node->id);
        alone |= i + 1 - at == character;
    }
    if (alone) return;
    double score = here + self->unknown_score;
    if (self->single) score = (double)(float)score;
    offer(self, &steps[at + character], score, character, -1);
}

/* Appends what stands for unknown characters side by side; several come last first. */
static void add_unknown(const Unigram *self, const char *text, size_t length, IdList *ids,
                        UnknownChars *unknown) {
    int32_t id = self->single ? -1 : vocabulary_find(self->vocabulary, text, length);
    bool bytes = self->byte_fallback && id < 0;
    for (size_t i = 0; i < length && bytes; i++)
        bytes = self->bytes[(uint8_t)text[i]] >= 0;
    if (id < 0) id = self->unknown;
    if (bytes) {
        for (size_t i = length; i > 0; i--)
            ids_add(ids, self->bytes[(uint8_t)text[i - 1]]);
    } else if (id >= 0) {
        ids_add(ids, id);
    } else {
        size_t character;
        unknown->first = utf8_decode(text, &character);
        unknown->count += utf8_count(text, length);
    }
}

/* Appends the tokens of the best cut, whose steps lead from the end to the beginning. */
static void add_path(const Unigram *self, const UnigramStep *steps, const char *word,
                     size_t length, IdList *ids, UnknownChars *unknown) {
    const size_t before = ids->count;
    UnknownChars here = {0};
    for (size_t end = length, begin; end > 0; end = begin) {
        begin = end - steps[end].length;
        if (steps[end].id >= 0) {
            const int32_t piece = steps[end].id;
            const int32_t id = self->numbers ? self->numbers[piece] : piece;
            ids_add(ids, id >= 0 ? id : self->unknown);
            continue;
        }
        while (begin > 0 && steps[begin].id < 0) begin -= steps[begin].length;
        add_unknown(self, word + begin, end - begin, ids, &here);
    }
    for (size_t low = before, high = ids->count; low + 1 < high;) {
        const int32_t id = ids->items[low];
        ids->items[low++] = ids->items[--high];
        ids->items[high] = id;
    }
    if (unknown->count == 0) unknown->first = here.first;
    unknown->count += here.count;
}

void unigram_split(const Unigram *self, UnigramScratch *scratch, const char *word,
                   size_t length, IdList *ids, UnknownChars *unknown) {
    if (scratch->capacity < length + 1) {
        scratch->capacity = length + length / 2 + 64;
        scratch->steps =
            memory_grow(scratch->steps, scratch->capacity, sizeof *scratch->steps);
    }
    memset(scratch->steps, 0, (length + 1) * sizeof *scratch->steps);
    for (size_t at = 0, bytes; at < length; at += bytes) {
        utf8_decode(word + at, &bytes);
        offer_pieces(self, scratch->steps, word, at, length);
    }
    add_path(self, scratch->steps, word, length, ids, unknown);
}

void unigram_scratch_free(UnigramScratch *scratch) {
    free(scratch->steps);
    *scratch = (UnigramScratch){0};
}
