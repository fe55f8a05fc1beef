/* WordPiece: splitting normalized text into words, and words into tokens. */
#include "io/tokenizers/wordpiece.h"

#include "io/tokenizers/unicode.h"

typedef enum CharKind { CHAR_LETTER, CHAR_SPACE, CHAR_PUNCTUATION, CHAR_WIDE } CharKind;

/* Kinds of bytes; CHAR_WIDE starts a character beyond ASCII. ASCII symbols count as
 * punctuation. */
static const uint8_t BYTE_KIND[256] = {
    ['\t' ... '\r'] = CHAR_SPACE,     [' '] = CHAR_SPACE,
    ['!' ... '/'] = CHAR_PUNCTUATION, [':' ... '@'] = CHAR_PUNCTUATION,
    ['[' ... '`'] = CHAR_PUNCTUATION, ['{' ... '~'] = CHAR_PUNCTUATION,
    [0x80 ... 0xff] = CHAR_WIDE,
};

/* Kind of the character at `text` and its length. */
static inline CharKind char_kind(const char *text, size_t *bytes) {
    CharKind kind = BYTE_KIND[(unsigned char)*text];
    *bytes = 1;
    if (kind != CHAR_WIDE) return kind;
    uint32_t c = utf8_decode(text, bytes);
    if (char_is_space(c)) return CHAR_SPACE;
    return char_is_punctuation(c) ? CHAR_PUNCTUATION : CHAR_LETTER;
}

/* Appends the tokens of one word; what was appended is taken back when a part has none.
 */
static void word_split(const WordPiece *model, const char *word, size_t length,
                       size_t chars, IdList *ids) {
    size_t before = ids->count, matched = 0;
    const Prefix *prefix = &model->whole;
    if (chars > model->max_chars) {
        ids_add(ids, model->unknown);
        return;
    }
    for (size_t i = 0; i < length; i += matched, prefix = &model->continued) {
        int32_t id =
            vocabulary_longest(model->vocabulary, prefix, word + i, length - i, &matched);
        if (id < 0) {
            ids->count = before;
            ids_add(ids, model->unknown);
            return;
        }
        ids_add(ids, id);
    }
}

void wordpiece_split(const WordPiece *model, const char *text, size_t length,
                     IdList *ids) {
    for (size_t i = 0; i < length;) {
        size_t start = i, chars = 0, bytes = 0;
        CharKind kind = CHAR_SPACE;
        while (i < length && (kind = char_kind(text + i, &bytes)) == CHAR_LETTER) {
            i += bytes;
            chars++;
        }
        if (i > start) word_split(model, text + start, i - start, chars, ids);
        if (i >= length) break;
        if (kind == CHAR_PUNCTUATION) word_split(model, text + i, bytes, 1, ids);
        i += bytes;
    }
}
