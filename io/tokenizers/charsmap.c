/* Charsmap: see charsmap.h. */
#include "io/tokenizers/charsmap.h"

#include "io/tokenizers/unicode.h"

#include <string.h>

enum {
    CLUSTER_BYTES = 5, /* longer ones are taken apart at once */
    LABEL_MASK = 0xff, /* fields of a unit: the byte that leads to it, */
    LEAF_BIT = 1 << 8, /* whether a value stands behind it, */
    FAR_BIT = 1 << 9,  /* the scale of the offset to its children, */
    OFFSET_SHIFT = 10  /* that offset */
};
#define VALUE_BIT (UINT32_C(1) << 31) /* a value, not a node */

/* --- reading --- */

static uint32_t read_u32(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
           (uint32_t)p[3] << 24;
}

Status charsmap_parse(Charsmap *out, Arena *arena, const void *bytes, size_t length,
                      Loc at, const char *key, Diag *diag) {
    const unsigned char *p = bytes;
    const size_t trie = length >= 4 ? read_u32(p) : 0;
    if (trie == 0 || trie % 4 != 0 || trie > length - 4)
        return diag_fail(diag, STATUS_FORMAT, at, key,
                         "expected a trie of 4 bytes or more before the replacements, "
                         "found %zu of %zu",
                         trie, length);
    uint32_t *units = ARENA_ARRAY(arena, uint32_t, trie / 4);
    for (size_t i = 0; i < trie / 4; i++) units[i] = read_u32(p + 4 + 4 * i);
    const char *texts = (const char *)p + 4 + trie;
    const size_t texts_length = length - 4 - trie;
    if (texts_length == 0 || texts[texts_length - 1] != 0 ||
        utf8_check(texts, texts_length) != texts_length)
        return diag_fail(diag, STATUS_FORMAT, at, key,
                         "expected replacements in UTF-8, each ended by a zero byte");
    *out = (Charsmap){units, trie / 4, arena_strndup(arena, texts, texts_length),
                      texts_length};
    return STATUS_OK;
}

/* Value of a digit of base64, -1 = none. */
static int base64_value(char c) {
    static const char DIGITS[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *digit = c ? strchr(DIGITS, c) : NULL;
    return digit ? (int)(digit - DIGITS) : -1;
}

Status charsmap_parse_base64(Charsmap *out, Arena *arena, const char *text, Loc at,
                             const char *key, Diag *diag) {
    size_t digits = strlen(text), count = 0;
    const size_t written = digits;
    while (digits > 0 && written - digits < 2 && text[digits - 1] == '=') digits--;
    unsigned char *bytes = ARENA_ARRAY(arena, unsigned char, digits / 4 * 3 + 3);
    for (size_t i = 0, held = 0; i < digits; i++) {
        const int value = base64_value(text[i]);
        if (value < 0 || written % 4 != 0)
            return diag_fail(diag, STATUS_FORMAT, at, key, "expected base64");
        held = held << 6 | (size_t)value;
        if (i % 4 > 0) bytes[count++] = (unsigned char)(held >> (6 - 2 * (i % 4)) & 0xff);
    }
    return charsmap_parse(out, arena, bytes, count, at, key, diag);
}

/* --- looking up --- */

/* Where the children of a node lie: a place that their bytes are added to (by xor). */
static size_t children_of(uint32_t unit) {
    return (size_t)(unit >> OFFSET_SHIFT) << (unit & FAR_BIT ? 8 : 0);
}

const char *charsmap_find(const Charsmap *map, const char *text, size_t length,
                          bool longest, size_t *matched) {
    const char *found = NULL;
    size_t place = children_of(map->units[0]);
    if (length > CHARSMAP_KEY_MAX) length = CHARSMAP_KEY_MAX;
    for (size_t i = 0; i < length && text[i] && (longest || !found); i++) {
        const unsigned char byte = (unsigned char)text[i];
        place ^= byte;
        if (place >= map->unit_count) break;
        const uint32_t unit = map->units[place];
        if ((unit & (VALUE_BIT | LABEL_MASK)) != byte) break;
        place ^= children_of(unit);
        if (!(unit & LEAF_BIT)) continue;
        if (place >= map->unit_count) break;
        const size_t offset = map->units[place] & ~VALUE_BIT;
        /* a place within a character would be no text */
        if (offset >= map->texts_length ||
            ((unsigned char)map->texts[offset] & 0xc0) == 0x80)
            break;
        found = map->texts + offset;
        *matched = i + 1;
    }
    return found;
}

bool charsmap_replace_clusters(const Charsmap *map, Text *out, size_t limit,
                               TextSpan text) {
    for (size_t i = 0, end; i < text.length; i = end) {
        end = i + utf8_cluster(text.text + i, text.length - i);
        const bool whole = end - i <= CLUSTER_BYTES;
        for (size_t at = i, bytes; at < end; at += bytes) {
            size_t matched;
            utf8_decode(text.text + at, &bytes);
            const char *part = text.text + at, *to = NULL;
            if (whole && at == i) to = charsmap_find(map, part, end - i, false, &matched);
            if (to)
                bytes = end - i;
            else
                to = charsmap_find(map, part, bytes, false, &matched);
            const size_t length = to ? strlen(to) : bytes;
            if (length > limit - out->length) return false;
            if (length > 0) text_bytes(out, to ? to : part, length);
        }
    }
    return true;
}
