/* Svg: the elements of pictures. */
#ifndef COMPRESS_SESSION_PAGE_SVG_H
#define COMPRESS_SESSION_PAGE_SVG_H

#include "ir/text.h"

/* Appends a number with at most two decimals. */
void svg_number(Text *text, double value);

/* Appends ` name="number"`. */
void svg_attribute(Text *text, const char *name, double value);

/* Appends a text of at most `most` characters; `classes` are of the palette: "t" is text,
 * "m" muted, "e" ends at x, "c" is centred there. */
void svg_text(Text *text, const char *classes, double x, double y, const char *string,
              int most);

/* Appends a rectangle, not closed: further attributes and ` />` follow. */
void svg_rect(Text *text, const char *classes, double x, double y, double width,
              double height);

/* Appends a line of a class. */
void svg_line(Text *text, const char *classes, double x1, double y1, double x2,
              double y2);

/* Maximum width of a text with this many characters. */
double svg_text_width(int characters);

#endif
