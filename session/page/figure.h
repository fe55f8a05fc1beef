/* Figure: a picture on a page, of any kind, and the table that it shows. */
#ifndef COMPRESS_SESSION_PAGE_FIGURE_H
#define COMPRESS_SESSION_PAGE_FIGURE_H

#include "session/page/chart.h"
#include "session/page/heat.h"
#include "session/page/outline.h"

typedef enum FigureGroup {
    FIGURES_STRUCTURE, /* layers after each step that changed them */
    FIGURES_TRADE,     /* what a model is worth versus what it costs */
    FIGURES_TRAINING,
    FIGURES_IMPORTANCE,
    FIGURES_DIAGNOSIS,
    FIGURE_GROUPS
} FigureGroup;

typedef struct Figure {
    FigureGroup group;
    const char *slug;  /* for its files: letters, digits and '-', unique on the page */
    const char *title; /* without mark-up, from any source */
    const char *run;   /* name of its run; NULL = all runs, or the only one */
    int run_color;
    const char *note;   /* a sentence, or NULL */
    const Chart *chart; /* one of these three */
    const Heat *heat;
    const Outline *outline;
    const OutlineScale *scale; /* of the outlines that it is shown beside */
} Figure;

/* Appends the picture as an <svg> element for a page: `id` makes its names unique there.
 */
void figure_inline(Text *text, const Figure *figure, int id);

/* Appends the picture as a separate file: colours for light and dark, title inside. */
void figure_file(Text *text, const Figure *figure);

/* Appends the numbers of the picture as CSV. */
void figure_csv(Text *text, const Figure *figure);

#endif
