/* Heat: numbers in rows of cells, shaded by size, as SVG and as CSV. */
#ifndef COMPRESS_SESSION_PAGE_HEAT_H
#define COMPRESS_SESSION_PAGE_HEAT_H

#include "ir/text.h"

#define HEAT_COLUMNS                                                                     \
    64               /* that are drawn; if there are more, neighbours are averaged       \
                      */
#define HEAT_ROWS 64 /* that are drawn */

typedef struct HeatRow {
    const char *name;
    const double *values; /* not finite = none */
    int count;
} HeatRow;

typedef struct Heat {
    const char *title, *x_title;
    const HeatRow *rows;
    int count;
} Heat;

/* Whether there is any value to show. */
bool heat_has_values(const Heat *heat);

/* As chart_describe, chart_draw and chart_csv (session/page/chart.h). Shades are
 * logarithmic if all values are above 0 and the largest is at least a hundred times the
 * smallest. */
void heat_describe(Text *text, const Heat *heat);
double heat_draw(Text *text, const Heat *heat);
void heat_csv(Text *text, const Heat *heat);

#endif
