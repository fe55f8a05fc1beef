/* Pictures of pages: see figure.h. */
#include "session/page/figure.h"

#include "session/page/markup.h"
#include "session/page/palette.h"
#include "session/page/svg.h"

#define TITLE_HEIGHT 24.0
#define MARGIN       12.0

/* Appends what is in the picture, from (0, 0) on, and stores its size. */
static void draw(Text *text, const Figure *figure, double *width, double *height) {
    *width = CHART_WIDTH;
    if (figure->chart) {
        *height = chart_draw(text, figure->chart);
    } else if (figure->heat) {
        *height = heat_draw(text, figure->heat);
    } else {
        outline_draw(text, figure->outline, figure->scale, 0);
        *width = OUTLINE_WIDTH;
        *height = outline_height(figure->scale);
    }
}

static void add_title(Text *text, const Figure *figure) {
    markup_text(text, figure->title);
    if (!figure->run) return;
    text_add(text, ", ");
    markup_clip(text, figure->run, 80);
}

static void describe(Text *text, const Figure *figure) {
    if (figure->chart)
        chart_describe(text, figure->chart);
    else if (figure->heat)
        heat_describe(text, figure->heat);
    else
        outline_describe(text, figure->outline);
}

void figure_inline(Text *text, const Figure *figure, int id) {
    Text body = {0};
    double width, height;
    draw(&body, figure, &width, &height);
    text_add(text, "<svg viewBox=\"-1 0 ");
    svg_number(text, width + 2);
    text_add(text, " ");
    svg_number(text, height + 2);
    text_add(text, "\" role=\"img\" aria-labelledby=\"t%d d%d\"><title id=\"t%d\">", id,
             id, id);
    add_title(text, figure);
    text_add(text, "</title><desc id=\"d%d\">", id);
    describe(text, figure);
    text_add(text, "</desc>\n%s</svg>\n", body.data ? body.data : "");
    text_free(&body);
}

void figure_file(Text *text, const Figure *figure) {
    Text body = {0};
    double width, height;
    draw(&body, figure, &width, &height);
    if (width < CHART_WIDTH) width = CHART_WIDTH; /* room for the title */
    width += 2 * MARGIN;
    height += 2 * MARGIN + TITLE_HEIGHT;
    text_add(text, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ");
    svg_number(text, width);
    text_add(text, " ");
    svg_number(text, height);
    text_add(text, "\"");
    svg_attribute(text, "width", width * 1.5);
    svg_attribute(text, "height", height * 1.5);
    text_add(text, " role=\"img\" aria-labelledby=\"t d\">\n<title id=\"t\">");
    add_title(text, figure);
    text_add(text, "</title>\n<desc id=\"d\">");
    describe(text, figure);
    text_add(text,
             "</desc>\n<style>svg{%s}@media (prefers-color-scheme:dark){svg{%s}}%s"
             "</style>\n",
             palette_light, palette_dark, palette_rules);
    text_add(text, "<rect width=\"100%%\" height=\"100%%\" fill=\"var(--paper)\"/>\n");
    text_add(text, "<text class=\"t b\" x=\"%.0f\" y=\"%.0f\">", MARGIN, MARGIN + 10);
    add_title(text, figure);
    text_add(text, "</text>\n<g transform=\"translate(%.0f %.0f)\">\n%s</g>\n</svg>\n",
             MARGIN, MARGIN + TITLE_HEIGHT, body.data ? body.data : "");
    text_free(&body);
}

/* stack,layer,original,heads,cross_heads,units,shares,exit */
static void outline_csv(Text *text, const Outline *outline) {
    text_add(text, "stack,layer,original,heads,cross_heads,units,shares,exit\n");
    for (int s = 0; s < outline->count; s++)
        for (int i = 0; i < outline->stacks[s].count; i++) {
            const OutlineLayer *layer = &outline->stacks[s].layers[i];
            markup_field(text, outline->stacks[s].name);
            text_add(text, ",%d,%d,%.0f,%.0f,%.0f,", i, layer->original, layer->heads,
                     layer->cross_heads, layer->units);
            if (layer->shares >= 0) text_add(text, "%d", layer->shares);
            text_add(text, ",%d\n", layer->exit);
        }
}

void figure_csv(Text *text, const Figure *figure) {
    if (figure->chart)
        chart_csv(text, figure->chart);
    else if (figure->heat)
        heat_csv(text, figure->heat);
    else
        outline_csv(text, figure->outline);
}
