/* Chart: lines and points over two axes, as SVG and as CSV. */
#ifndef COMPRESS_SESSION_PAGE_CHART_H
#define COMPRESS_SESSION_PAGE_CHART_H

#include "ir/text.h"

#define CHART_WIDTH 380 /* width of every picture's view box; text in it is 11 high */

/* How values are shown: by a line from one to the next, which has the dashes of its
 * colour unless it is dotted or solid, and by a mark at each. */
typedef enum ChartMarks {
    CHART_LINE = 1,
    CHART_POINTS = 2,
    CHART_DOTTED = 4,
    CHART_SOLID = 8
} ChartMarks;

/* One row of the legend. A value that is not finite leaves a gap in the line, and so does
 * one that is not above 0 on a log axis. */
typedef struct ChartSeries {
    const char *name;
    const double *x, *y;
    const char *const *notes; /* by value, a note on each point; NULL = none */
    int count;
    int color;   /* of the palette, dash and mark as well; any number from 0 */
    int marks;   /* OR of ChartMarks */
    double tint; /* from 0 to 1: the shade of one of a family of lines; 0 = not in a
                    family */
} ChartSeries;

typedef struct Chart {
    const char *title, *x_title, *y_title;
    const char *legend_note; /* for families: what the shades mean; NULL = none */
    bool x_log, y_log;       /* if all values allow it */
    bool x_zero;             /* the x axis begins at 0 */
    bool x_whole;            /* x are integers: steps, layers */
    const ChartSeries *series;
    int count;
} Chart;

/* Whether there is any value to show. */
bool chart_has_values(const Chart *chart);

/* Appends a description of the chart, one sentence per series, for readers who cannot
 * see it, escaped. */
void chart_describe(Text *text, const Chart *chart);

/* Appends the elements of the chart from y = 0 on and returns the height that they take.
 * They are styled by the classes of session/page/palette.h. */
double chart_draw(Text *text, const Chart *chart);

/* Appends the values: series,x,y,note. */
void chart_csv(Text *text, const Chart *chart);

#endif
