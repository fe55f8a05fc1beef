/* Markup: text from any source made safe for HTML, SVG, Markdown, CSV and graphviz.
 *
 * Names, labels and messages of reports are not to be trusted. Characters that XML
 * cannot hold or that change the direction of writing, and malformed UTF-8, become
 * U+FFFD. */
#ifndef COMPRESS_SESSION_PAGE_MARKUP_H
#define COMPRESS_SESSION_PAGE_MARKUP_H

#include "ir/text.h"

/* Appends a string as text of HTML or SVG, or as an attribute's value. */
void markup_text(Text *text, const char *string);

/* The same with at most `most` characters; a longer string ends with an ellipsis.
 */
void markup_clip(Text *text, const char *string, int most);

/* Appends a string as Markdown code, in which nothing is a link, a mention or the end of
 * a table cell; at most `most` characters. Nothing for an empty string. */
void markup_code(Text *text, const char *string, int most);

/* Appends a string as a CSV field, in quotes if needed. So that spreadsheets do not take
 * a field for a formula, one that begins like a formula gets a leading apostrophe. */
void markup_field(Text *text, const char *string);

/* Appends a string in double quotes for graphviz, of at most `most` characters. */
void markup_quoted(Text *text, const char *string, int most);

/* Characters of a string. */
int markup_length(const char *string);

#endif
