/* Piece normalizer: see piece_normalize.h. */
#include "io/tokenizers/piece_normalize.h"

#include "io/tokenizers/unicode.h"

#include <string.h>

static const char MARK[] = PIECE_MARK;
enum { MARK_BYTES = sizeof MARK - 1 };

/* What the start of a text becomes; `taken` is how much of it. */
static TextSpan next_part(const PieceRules *rules, TextSpan text, size_t *taken) {
    const Prefix none = prefix_of("", 0);
    if (rules->kept &&
        vocabulary_longest(rules->kept, &none, text.text, text.length, taken) >= 0)
        return (TextSpan){text.text, *taken};
    const char *to = rules->has_map
                         ? charsmap_find(&rules->map, text.text, text.length, true, taken)
                         : NULL;
    if (to) return (TextSpan){to, strlen(to)};
    utf8_decode(text.text, taken);
    return (TextSpan){text.text, *taken};
}

/* Appends with marks for spaces; false when it becomes too long. */
static bool add_marked(Text *out, size_t limit, TextSpan part) {
    for (size_t i = 0, end; i < part.length; i = end) {
        const char *space = memchr(part.text + i, ' ', part.length - i);
        end = space ? (size_t)(space - part.text) : part.length;
        if (end - i + MARK_BYTES > limit - out->length) return false;
        if (end > i) text_bytes(out, part.text + i, end - i);
        if (space) text_bytes(out, MARK, MARK_BYTES), end++;
    }
    return true;
}

static bool ends_with_mark(const Text *out, size_t from) {
    return out->length - from >= MARK_BYTES &&
           memcmp(out->data + out->length - MARK_BYTES, MARK, MARK_BYTES) == 0;
}

bool pieces_normalize(const PieceRules *rules, Text *out, size_t limit, TextSpan text,
                      bool first) {
    const size_t from = out->length;
    const bool whole = first || !rules->first_only; /* not what follows a special token */
    size_t taken;
    for (; rules->trim && whole && text.length > 0;
         text.text += taken, text.length -= taken) {
        const TextSpan part = next_part(rules, text, &taken);
        if (part.length != 1 || part.text[0] != ' ') break;
    }
    if (text.length == 0) return true;
    if (rules->prefix && whole && !add_marked(out, limit, (TextSpan){" ", 1}))
        return false;
    bool spaced = rules->trim && whole; /* a space here would be one too many */
    for (; text.length > 0; text.text += taken, text.length -= taken) {
        TextSpan part = next_part(rules, text, &taken);
        while (spaced && part.length > 0 && part.text[0] == ' ')
            part.text++, part.length--;
        if (part.length == 0) continue;
        if (!add_marked(out, limit, part)) return false;
        spaced = rules->trim && part.text[part.length - 1] == ' ';
    }
    while (rules->trim && ends_with_mark(out, from)) out->length -= MARK_BYTES;
    return true;
}
