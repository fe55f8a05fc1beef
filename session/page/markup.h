/* Markup: text from anywhere made safe for HTML, SVG, Markdown, CSV and graphviz.
 *
 * Names, labels and messages of reports are not to be trusted. What XML cannot hold,
 * malformed UTF-8 and characters that change the direction of writing become U+FFFD. */
#ifndef COMPRESS_SESSION_PAGE_MARKUP_H
#define COMPRESS_SESSION_PAGE_MARKUP_H

#include "ir/text.h"

/* Appends a string as text of HTML or SVG, or as an attribute's value. */
void markup_text(Text *text, const char *string);

/* The same of at most `most` characters; of a longer string the last one is an ellipsis.
 */
void markup_clip(Text *text, const char *string, int most);

/* Appends a string as code of Markdown, in which nothing is a link, a mention or the end
 * of a table's cell; at most `most` characters. Of an empty string nothing. */
void markup_code(Text *text, const char *string, int most);

/* Appends a string as a field of CSV, in quotes where it needs them. Spreadsheets take no
 * field for a formula: one that begins like that gets an apostrophe in front. */
void markup_field(Text *text, const char *string);

/* Appends a string in double quotes for graphviz, of at most `most` characters. */
void markup_quoted(Text *text, const char *string, int most);

/* Characters of a string. */
int markup_length(const char *string);

#endif
