/* Piece normalizer: what SentencePiece does to a text before cutting it into pieces:
 * characters are replaced by the model's map, spaces become the mark U+2581. */
#ifndef COMPRESS_IO_TOKENIZERS_PIECE_NORMALIZE_H
#define COMPRESS_IO_TOKENIZERS_PIECE_NORMALIZE_H

#include "io/tokenizers/charsmap.h"
#include "io/tokenizers/vocabulary.h"

#define PIECE_MARK "\xe2\x96\x81" /* U+2581, what stands for a space */

typedef struct PieceRules {
    Charsmap map; /* where has_map */
    bool has_map;
    bool prefix;     /* a space comes before the text; */
    bool first_only; /* not if a special token comes before it */
    bool trim;       /* spaces at both ends, and all but one of a run, are left out */
    const Vocabulary *kept; /* texts that the map does not change; NULL = none */
} PieceRules;

/* Appends valid UTF-8, normalized; `first` is whether the whole text starts with it.
 * False when `out` becomes longer than `limit`. */
bool pieces_normalize(const PieceRules *rules, Text *out, size_t limit, TextSpan text,
                      bool first);

#endif
