/* Elements of SVG: see svg.h. */
#include "session/page/svg.h"

#include "session/page/markup.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CHARACTER_WIDTH 6.6 /* of 11 high text, generous */

void svg_number(Text *text, double value) {
    char digits[48];
    const double rounded = round(value * 100) / 100;
    snprintf(digits, sizeof digits, "%.2f", rounded == 0 ? 0 : rounded);
    size_t length = strlen(digits);
    while (digits[length - 1] == '0') length--;
    if (digits[length - 1] == '.') length--;
    text_bytes(text, digits, length);
}

void svg_attribute(Text *text, const char *name, double value) {
    text_add(text, " %s=\"", name);
    svg_number(text, value);
    text_add(text, "\"");
}

void svg_text(Text *text, const char *classes, double x, double y, const char *string,
              int most) {
    text_add(text, "<text class=\"%s\"", classes);
    svg_attribute(text, "x", x);
    svg_attribute(text, "y", y);
    text_add(text, ">");
    markup_clip(text, string, most);
    text_add(text, "</text>");
}

void svg_rect(Text *text, const char *classes, double x, double y, double width,
              double height) {
    text_add(text, "<rect class=\"%s\"", classes);
    svg_attribute(text, "x", x);
    svg_attribute(text, "y", y);
    svg_attribute(text, "width", width);
    svg_attribute(text, "height", height);
}

void svg_line(Text *text, const char *classes, double x1, double y1, double x2,
              double y2) {
    text_add(text, "<path class=\"%s\" d=\"M", classes);
    svg_number(text, x1);
    text_add(text, " ");
    svg_number(text, y1);
    text_add(text, "L");
    svg_number(text, x2);
    text_add(text, " ");
    svg_number(text, y2);
    text_add(text, "\"/>");
}

double svg_text_width(int characters) {
    return CHARACTER_WIDTH * characters;
}
