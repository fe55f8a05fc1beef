/* Unicode: UTF-8 and the properties of characters that text needs. The tables are those
 * of libutf8proc (version 2.8: Unicode 15). */
#ifndef COMPRESS_IO_TOKENIZERS_UNICODE_H
#define COMPRESS_IO_TOKENIZERS_UNICODE_H

#include "ir/status.h"
#include "ir/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    UTF8_MAX = 4,      /* most bytes of a character */
    DECOMPOSED_MAX = 8 /* room for a canonical decomposition; the longest takes 4 */
};

/* Offset of the first byte that is not valid UTF-8 (overlong forms, surrogates and values
 * above U+10FFFF are not), `length` when all is. */
size_t utf8_check(const char *text, size_t length);

/* Bytes, at least 1, of the longest partial character that the text starts with; it must
 * not start with a whole one. `open` says whether more text could complete it. */
size_t utf8_start(const char *text, size_t length, bool *open);

/* Bytes of the grapheme cluster (extended, UAX 29) that valid, non-empty UTF-8 starts
 * with: what a reader perceives as one character. */
size_t utf8_cluster(const char *text, size_t length);

/* Number of characters of valid UTF-8. */
size_t utf8_count(const char *text, size_t length);

/* Line and column (in characters) of an offset; what precedes it must be valid UTF-8.
 * Only the file when they are too large to count. */
Loc utf8_locate(const char *file, const char *text, size_t offset);

/* Fails with STATUS_FORMAT, at the line and column (in characters) of `file`, when its
 * text holds invalid UTF-8 or a NUL, and as text_start_check (io/files/text_start.h)
 * does. */
Status utf8_check_file(const char *file, const char *text, size_t length, Diag *diag);

/* Reads one character of valid UTF-8 and its length in bytes. */
uint32_t utf8_decode(const char *text, size_t *bytes);

/* Start of the character of valid UTF-8 that ends before `end`, which is not 0. */
size_t utf8_before(const char *text, size_t end);

/* Writes one character, up to UTF8_MAX bytes; returns their number. */
size_t utf8_encode(char *out, uint32_t c);

/* Length of a byte order mark at the start of the text: 3 or 0. */
size_t utf8_mark_length(const char *text, size_t length);

/* White_Space. */
bool char_is_space(uint32_t c);

/* General categories L* and N*: \p{L} and \p{N} of regular expressions. */
bool char_is_letter(uint32_t c);
bool char_is_number(uint32_t c);

/* General categories Cc, Cf and Co; not Cn. */
bool char_is_control(uint32_t c);

/* General categories P*. */
bool char_is_punctuation(uint32_t c);

/* General category Mn; general categories M*. */
bool char_is_nonspacing(uint32_t c);
bool char_is_mark(uint32_t c);

/* Matches \w of regular expressions: letters, marks, digits, connectors, joiners. */
bool char_is_word(uint32_t c);

/* Upper case, lower case or title case letter (Cased, except those that are also
 * Case_Ignorable). */
bool char_is_cased(uint32_t c);

/* Case_Ignorable: what may occur within a word without ending it, for the final
 * sigma. */
bool char_is_case_ignorable(uint32_t c);

/* Full lower case without regard to context; `out` takes up to 2 characters. Returns
 * their number. */
int char_lower(uint32_t c, uint32_t out[2]);

/* Appends valid UTF-8 in lower case, by char_lower. */
void utf8_lower(Text *out, const char *text, size_t length);

/* Full canonical decomposition, not reordered. Returns the number of characters. */
int char_decompose(uint32_t c, uint32_t out[DECOMPOSED_MAX]);

/* Canonical combining class, 0 to 254. */
int char_combining(uint32_t c);

typedef enum NormalForm { NORMAL_NFC, NORMAL_NFD, NORMAL_NFKC, NORMAL_NFKD } NormalForm;

/* Appends valid UTF-8 in a normal form. */
void utf8_normalize(Text *out, NormalForm form, const char *text, size_t length);

#endif
