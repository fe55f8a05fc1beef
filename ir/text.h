/* Text: a growing string, for printers (IR text, JSON, tables). */
#ifndef COMPRESS_IR_TEXT_H
#define COMPRESS_IR_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct Text {
    char *data; /* terminated once anything was added; NULL if empty */
    size_t length, capacity;
} Text;

/* Appends formatted text. */
void text_add(Text *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The same with arguments in a list. */
void text_add_list(Text *text, const char *fmt, va_list args);

/* Appends `length` bytes unchanged. */
void text_bytes(Text *text, const char *bytes, size_t length);

/* Appends a string in double quotes with \" \\ \n \t and \uXXXX escapes (JSON's rules).
 */
void text_quoted(Text *text, const char *string);

/* Appends the shortest decimal number that reads back as the same double. Always
 * contains a '.', an 'e' or one of inf, -inf, nan, so that it reads back as a float. */
void text_real(Text *text, double value);

/* Frees the memory and empties the text. */
void text_free(Text *text);

/* A piece of text; it may hold NUL. */
typedef struct TextSpan {
    const char *text;
    size_t length;
} TextSpan;

/* Whether a text ends with another; every text ends with "". */
bool text_ends_with(const char *text, const char *end);

/* Bytes of the UTF-8 character that a terminated string begins with, 0 = malformed; and
 * whether all of a string is UTF-8. */
int utf8_bytes(const char *text);
bool utf8_is_valid(const char *text);

/* Order of texts by their bytes, for qsort and bsearch over `const char *`, or over
 * structs that begin with one. */
int text_order(const void *a, const void *b);

#endif
