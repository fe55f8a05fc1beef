/* Charsmap: the normalizer within a SentencePiece model, as stored in its files. Leading
 * bytes give the size of a double-array trie of what is replaced (Aoe 1989, packed as in
 * darts-clone: 32 bits per unit, little-endian); it is followed by the replacements,
 * each ended by a zero byte, and the trie's values are their offsets.
 *
 * A map comes with a file and is hostile: every step within it is checked. */
#ifndef COMPRESS_IO_TOKENIZERS_CHARSMAP_H
#define COMPRESS_IO_TOKENIZERS_CHARSMAP_H

#include "ir/arena.h"
#include "ir/status.h"
#include "ir/text.h"

#include <stdint.h>

enum { CHARSMAP_KEY_MAX = 256 /* most bytes examined for one replacement */ };

typedef struct Charsmap {
    const uint32_t *units; /* [unit_count], at least 1 */
    size_t unit_count;
    const char *texts; /* [texts_length], valid UTF-8 that ends with a zero byte */
    size_t texts_length;
} Charsmap;

/* Reads a map's bytes; all in the arena. Fails with STATUS_FORMAT, about `key`. */
Status charsmap_parse(Charsmap *out, Arena *arena, const void *bytes, size_t length,
                      Loc at, const char *key, Diag *diag);

/* The same from base64, as in a tokenizer.json. */
Status charsmap_parse_base64(Charsmap *out, Arena *arena, const char *text, Loc at,
                             const char *key, Diag *diag);

/* The replacement for the longest start of a text that is in the map, or for the
 * shortest: a terminated string, and at `matched` the bytes of the start, at least 1.
 * NULL if there is none. */
const char *charsmap_find(const Charsmap *map, const char *text, size_t length,
                          bool longest, size_t *matched);

/* Appends valid UTF-8 as the normalizer Precompiled of the `tokenizers` library of
 * Hugging Face replaces it: a grapheme cluster of at most 5 bytes is replaced as a whole
 * by the replacement for its shortest start; if there is none, or the cluster is longer,
 * every character is replaced by itself. False when `out` becomes longer than
 * `limit`. */
bool charsmap_replace_clusters(const Charsmap *map, Text *out, size_t limit,
                               TextSpan text);

#endif
