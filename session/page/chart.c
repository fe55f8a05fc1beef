/* Charts as SVG and CSV: see chart.h.
 *
 * From the top: the y axis's title, the plot, the x axis's labels and title, the legend.
 * Colour is never all that tells series from each other: lines differ in their dashes,
 * points in their marks. */
#include "session/page/chart.h"

#include "session/page/axis.h"
#include "session/page/markup.h"
#include "session/page/palette.h"
#include "session/page/svg.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>

#define PLOT_TOP      24.0
#define PLOT_HEIGHT   170.0
#define PLOT_RIGHT    10.0
#define LINE_HEIGHT   16.0
#define NAME_MOST     44  /* characters of a legend's name */
#define LINE_POINTS   400 /* of a line; of more the least and largest of each part */
#define MARK_RADIUS   3.2
#define LEGEND_SWATCH 24.0

/* What is drawn, and where. */
typedef struct Plot {
    Text *text;
    const Chart *chart;
    Axis x, y;
    double left, width;
} Plot;

/* Least and largest of all values that can be shown. */
typedef struct Range {
    double least, most;
    int count;
} Range;

static void range_add(Range *range, double value) {
    if (range->count == 0 || value < range->least) range->least = value;
    if (range->count == 0 || value > range->most) range->most = value;
    range->count++;
}

/* Whether a value has a place on an axis; those near the largest double have none, so
 * that ranges stay finite. */
static bool is_shown(double value) {
    return fabs(value) < 1e300;
}

static void find_ranges(const Chart *chart, Range *x, Range *y) {
    *x = *y = (Range){0};
    for (int s = 0; s < chart->count; s++) {
        const ChartSeries *series = &chart->series[s];
        for (int i = 0; i < series->count; i++) {
            if (!is_shown(series->x[i]) || !is_shown(series->y[i])) continue;
            range_add(x, series->x[i]);
            range_add(y, series->y[i]);
        }
    }
}

bool chart_has_values(const Chart *chart) {
    Range x, y;
    find_ranges(chart, &x, &y);
    return x.count > 0;
}

/* ---- axes ---- */

static double plot_x(const Plot *plot, double value) {
    return plot->left + plot->width * axis_place(&plot->x, value);
}

static double plot_y(const Plot *plot, double value) {
    return PLOT_TOP + PLOT_HEIGHT * (1 - axis_place(&plot->y, value));
}

static void draw_axes(const Plot *plot) {
    Text *text = plot->text;
    const double bottom = PLOT_TOP + PLOT_HEIGHT, right = plot->left + plot->width;
    svg_text(text, "t m", 0, 11, plot->chart->y_title, 50);
    for (int i = 0; i < plot->y.ticks; i++) {
        const double y = plot_y(plot, plot->y.tick[i]);
        svg_line(text, "g", plot->left, y, right, y);
        svg_text(text, "t m e", plot->left - 6, y + 3.8, plot->y.label[i], LABEL_BYTES);
    }
    svg_line(text, "a", plot->left, bottom, right, bottom);
    double taken = -1e9; /* right end of the last label */
    for (int i = 0; i < plot->x.ticks; i++) {
        const double x = plot_x(plot, plot->x.tick[i]);
        const double half = svg_text_width(markup_length(plot->x.label[i])) / 2;
        svg_line(text, "a", x, bottom, x, bottom + 4);
        const double end = fmin(x + half, CHART_WIDTH);
        if (end - 2 * half < taken + 4) continue;
        svg_text(text, "t m c", end - half, bottom + 15, plot->x.label[i], LABEL_BYTES);
        taken = end;
    }
    svg_text(text, "t m e", right, bottom + 29, plot->chart->x_title, 50);
    text_add(text, "\n");
}

/* ---- series ---- */

/* Of colours that come again, marks and dashes are others. */
static int form_of(const ChartSeries *series) {
    return series->color + series->color / PALETTE_COLORS;
}

/* Appends a mark of one of six shapes around a point, as a path's data. */
static void add_mark(Text *text, int shape, double x, double y) {
    static const char *const shapes[PALETTE_COLORS] = {
        "m-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0-6.4 0", /* circle */
        "m-3-3h6v6h-6z",                                   /* square */
        "m0-4l3.8 6.6h-7.6z",                              /* triangle */
        "m0-4.2l4.2 4.2l-4.2 4.2l-4.2-4.2z",               /* diamond */
        "m0 4l3.8-6.6h-7.6z",                              /* triangle, turned */
        "m-1.3-4h2.6v2.7h2.7v2.6h-2.7v2.7h-2.6v-2.7h-2.7v-2.6h2.7z", /* cross */
    };
    text_add(text, "M");
    svg_number(text, x);
    text_add(text, " ");
    svg_number(text, y);
    text_add(text, "%s", shapes[shape % PALETTE_COLORS]);
}

/* Appends a point of a line; `pen` is whether the line goes on. */
static void line_to(const Plot *plot, bool *pen, double x, double y) {
    text_add(plot->text, *pen ? "L" : "M");
    svg_number(plot->text, plot_x(plot, x));
    text_add(plot->text, " ");
    svg_number(plot->text, plot_y(plot, y));
    *pen = true;
}

static bool has_place(const Plot *plot, const ChartSeries *series, int i) {
    return is_shown(series->x[i]) && is_shown(series->y[i]) &&
           !(plot->x.log && !(series->x[i] > 0)) && !(plot->y.log && !(series->y[i] > 0));
}

/* Appends the line of the values from `first` up to `end`, among which all have a place:
 * all, or of many the least and the largest of each of equal parts. */
static void draw_part(const Plot *plot, const ChartSeries *series, int first, int end) {
    const int count = end - first, parts = LINE_POINTS / 2;
    bool pen = false;
    for (int i = first; i < end && count <= LINE_POINTS; i++)
        line_to(plot, &pen, series->x[i], series->y[i]);
    if (count <= LINE_POINTS) return;
    for (int part = 0; part < parts; part++) {
        const int from = first + (int)((int64_t)count * part / parts);
        const int to = first + (int)((int64_t)count * (part + 1) / parts);
        int least = from, most = from;
        for (int i = from; i < to; i++) {
            if (series->y[i] < series->y[least]) least = i;
            if (series->y[i] > series->y[most]) most = i;
        }
        const int a = least < most ? least : most, b = least < most ? most : least;
        line_to(plot, &pen, series->x[a], series->y[a]);
        if (b > a) line_to(plot, &pen, series->x[b], series->y[b]);
    }
}

/* Class of the dashes: only a line that nothing else tells from others has its colour's.
 */
static const char *line_class(const ChartSeries *series) {
    if (series->marks & CHART_DOTTED) return "dt";
    if (series->marks & CHART_POINTS) return "th";
    return series->marks & CHART_SOLID ? "d0" : palette_dash(form_of(series));
}

static void draw_line(const Plot *plot, const ChartSeries *series) {
    Text *text = plot->text;
    text_add(text, "<path class=\"l s%d %s\"", series->color % PALETTE_COLORS,
             series->tint > 0 ? "" : line_class(series));
    if (series->tint > 0) svg_attribute(text, "stroke-opacity", series->tint);
    text_add(text, " d=\"");
    for (int i = 0; i < series->count;) {
        int end = i;
        while (end < series->count && has_place(plot, series, end)) end++;
        if (end > i) draw_part(plot, series, i, end);
        i = end > i ? end : i + 1;
    }
    text_add(text, "\"><title>");
    markup_text(text, series->name);
    text_add(text, "</title></path>\n");
}

static void draw_points(const Plot *plot, const ChartSeries *series) {
    Text *text = plot->text;
    char label[LABEL_BYTES];
    for (int i = 0; i < series->count; i++) {
        if (!has_place(plot, series, i)) continue;
        text_add(text, "<path class=\"p f%d\" d=\"", series->color % PALETTE_COLORS);
        add_mark(text, form_of(series), plot_x(plot, series->x[i]),
                 plot_y(plot, series->y[i]));
        text_add(text, "\"><title>");
        markup_text(text, series->name);
        if (series->notes && series->notes[i]) {
            text_add(text, ": ");
            markup_text(text, series->notes[i]);
        }
        axis_label(label, series->x[i]);
        text_add(text, " (%s, ", label);
        axis_label(label, series->y[i]);
        text_add(text, "%s)</title></path>\n", label);
    }
}

/* ---- legend ---- */

static void draw_swatch(Text *text, const ChartSeries *series, double x, double y) {
    text_add(text, "<path class=\"l s%d %s\" d=\"M%.0f %.0fh18\"/>",
             series->color % PALETTE_COLORS, line_class(series), x, y);
    if (!(series->marks & CHART_POINTS)) return;
    text_add(text, "<path class=\"p f%d\" d=\"", series->color % PALETTE_COLORS);
    add_mark(text, form_of(series), x + 9, y);
    text_add(text, "\"/>");
}

/* Appends the legend from `top` on, names in rows, and returns where it ends. A family's
 * lines are told by its note. */
static double draw_legend(const Plot *plot, double top) {
    const Chart *chart = plot->chart;
    double x = 0, y = top + 12;
    if (chart->legend_note) {
        svg_text(plot->text, "t m", 0, y, chart->legend_note, 62);
        return y + 4;
    }
    if (chart->count < 2) return top;
    for (int s = 0; s < chart->count; s++) {
        const ChartSeries *series = &chart->series[s];
        int length = markup_length(series->name);
        if (length > NAME_MOST) length = NAME_MOST;
        const double width = LEGEND_SWATCH + svg_text_width(length) + 14;
        if (x > 0 && x + width > CHART_WIDTH) {
            x = 0;
            y += LINE_HEIGHT;
        }
        draw_swatch(plot->text, series, x, y - 4);
        svg_text(plot->text, "t", x + LEGEND_SWATCH, y, series->name, NAME_MOST);
        x += width;
    }
    text_add(plot->text, "\n");
    return y + 4;
}

double chart_draw(Text *text, const Chart *chart) {
    Plot plot = {.text = text, .chart = chart};
    Range x, y;
    int longest = 1;
    find_ranges(chart, &x, &y);
    axis_make(&plot.y, y.least, y.most, (AxisWish){.log = chart->y_log, .ticks = 4});
    axis_make(&plot.x, x.least, x.most,
              (AxisWish){.log = chart->x_log,
                         .tight = !chart->x_zero,
                         .whole = chart->x_whole,
                         .zero = chart->x_zero,
                         .ticks = 5});
    for (int i = 0; i < plot.y.ticks; i++)
        if (markup_length(plot.y.label[i]) > longest)
            longest = markup_length(plot.y.label[i]);
    plot.left = svg_text_width(longest) + 8;
    plot.width = CHART_WIDTH - PLOT_RIGHT - plot.left;
    draw_axes(&plot);
    for (int s = 0; s < chart->count; s++)
        if (chart->series[s].marks & (CHART_LINE | CHART_DOTTED))
            draw_line(&plot, &chart->series[s]);
    for (int s = 0; s < chart->count; s++)
        if (chart->series[s].marks & CHART_POINTS) draw_points(&plot, &chart->series[s]);
    return draw_legend(&plot, PLOT_TOP + PLOT_HEIGHT + 34);
}

/* ---- in words and numbers ---- */

void chart_describe(Text *text, const Chart *chart) {
    char label[LABEL_BYTES];
    markup_text(text, chart->y_title);
    text_add(text, " over ");
    markup_text(text, chart->x_title);
    text_add(text, ".");
    for (int s = 0; s < chart->count; s++) {
        const ChartSeries *series = &chart->series[s];
        Range range = {0};
        double first = 0, last = 0;
        for (int i = 0; i < series->count; i++) {
            if (!is_shown(series->x[i]) || !is_shown(series->y[i])) continue;
            if (range.count == 0) first = series->y[i];
            range_add(&range, last = series->y[i]);
        }
        if (range.count == 0) continue;
        text_add(text, " ");
        markup_text(text, series->name);
        axis_label(label, first);
        text_add(text, ": %s", label);
        axis_label(label, last);
        if (range.count > 1) text_add(text, " to %s", label);
        axis_label(label, range.least);
        if (range.count > 2) text_add(text, ", least %s", label);
        axis_label(label, range.most);
        if (range.count > 2) text_add(text, ", largest %s", label);
        text_add(text, ".");
    }
}

/* A value in CSV; nothing where there is none. */
static void add_value(Text *text, double value) {
    text_add(text, ",");
    if (!isfinite(value)) return;
    if (value == rint(value) && fabs(value) < 1e15)
        text_add(text, "%.0f", value);
    else
        text_real(text, value);
}

void chart_csv(Text *text, const Chart *chart) {
    text_add(text, "series,");
    markup_field(text, chart->x_title);
    text_add(text, ",");
    markup_field(text, chart->y_title);
    text_add(text, ",note\n");
    for (int s = 0; s < chart->count; s++) {
        const ChartSeries *series = &chart->series[s];
        for (int i = 0; i < series->count; i++) {
            if (!isfinite(series->x[i]) || !isfinite(series->y[i])) continue;
            markup_field(text, series->name);
            add_value(text, series->x[i]);
            add_value(text, series->y[i]);
            text_add(text, ",");
            if (series->notes && series->notes[i]) markup_field(text, series->notes[i]);
            text_add(text, "\n");
        }
    }
}
