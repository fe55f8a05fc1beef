/* Heat maps as SVG and CSV: see heat.h. From the top: the rows, the x axis's title, the
 * shades with the numbers that they stand for. */
#include "session/page/heat.h"

#include "session/page/axis.h"
#include "session/page/chart.h"
#include "session/page/markup.h"
#include "session/page/palette.h"
#include "session/page/svg.h"

#include <math.h>

#define ROWS_HEIGHT  190.0
#define CELL_MOST    26.0
#define CELL_LEAST   4.0
#define LOG_RATIO    100.0
#define NAME_MOST    14
#define SWATCH_WIDTH 14.0

/* What is drawn, and how values become shades. */
typedef struct Grid {
    Text *text;
    const Heat *heat;
    double least, most;
    bool log;
    int rows, longest;              /* rows drawn; most values in one of them */
    double left, cell, row, height; /* width and height of a cell, height in all */
} Grid;

static bool find_range(const Heat *heat, double *least, double *most, int *longest) {
    bool any = false;
    *least = *most = 0;
    *longest = 0;
    for (int r = 0; r < heat->count; r++) {
        if (heat->rows[r].count > *longest) *longest = heat->rows[r].count;
        for (int i = 0; i < heat->rows[r].count; i++) {
            const double value = heat->rows[r].values[i];
            if (!(fabs(value) < 1e300)) continue;
            if (!any || value < *least) *least = value;
            if (!any || value > *most) *most = value;
            any = true;
        }
    }
    return any;
}

bool heat_has_values(const Heat *heat) {
    double least, most;
    int longest;
    return find_range(heat, &least, &most, &longest);
}

/* Shade of a value, 0 to HEAT_SHADES - 1. */
static int shade_of(const Grid *grid, double value) {
    double share = 1;
    if (grid->log)
        share = log(value / grid->least) / log(grid->most / grid->least);
    else if (grid->most > grid->least)
        share = (value - grid->least) / (grid->most - grid->least);
    const int shade = (int)(share * HEAT_SHADES);
    return shade < 0 ? 0 : shade >= HEAT_SHADES ? HEAT_SHADES - 1 : shade;
}

/* Mean of a row's values from `first` up to `end`; NAN = there is none. */
static double mean_of(const HeatRow *row, int first, int end) {
    double sum = 0;
    int count = 0;
    for (int i = first; i < end; i++) {
        if (!(fabs(row->values[i]) < 1e300)) continue;
        sum += row->values[i];
        count++;
    }
    return count ? sum / count : (double)NAN;
}

static void draw_cells(const Grid *grid, const HeatRow *row, double y) {
    Text *text = grid->text;
    const int cells = row->count < HEAT_COLUMNS ? row->count : HEAT_COLUMNS;
    const double gap = grid->cell > 6 ? 1 : 0, lower = grid->row > 6 ? 1 : 0;
    for (int c = 0; c < cells; c++) {
        const int first = (int)((long)row->count * c / cells);
        const int end = (int)((long)row->count * (c + 1) / cells);
        const double value = mean_of(row, first, end);
        char label[LABEL_BYTES];
        if (isnan(value)) continue;
        char shade[] = "h0";
        shade[1] = (char)('0' + shade_of(grid, value));
        svg_rect(text, shade, grid->left + c * grid->cell, y, grid->cell - gap,
                 grid->row - lower);
        axis_label(label, value);
        text_add(text, "><title>");
        markup_clip(text, row->name, 40);
        if (end > first + 1)
            text_add(text, ", %d to %d: mean %s</title></rect>", first, end - 1, label);
        else
            text_add(text, ", %d: %s</title></rect>", first, label);
    }
    text_add(text, "\n");
}

/* Appends the shades with the least and the largest value beside them. */
static double draw_shades(const Grid *grid, double y) {
    char label[LABEL_BYTES];
    double x = 0;
    axis_label(label, grid->least);
    svg_text(grid->text, "t m", x, y + 9, label, LABEL_BYTES);
    x += svg_text_width(markup_length(label)) + 4;
    for (int shade = 0; shade < HEAT_SHADES; shade++, x += SWATCH_WIDTH) {
        char class[] = "h0";
        class[1] = (char)('0' + shade);
        svg_rect(grid->text, class, x, y, SWATCH_WIDTH - 1, 10);
        text_add(grid->text, "/>");
    }
    axis_label(label, grid->most);
    svg_text(grid->text, "t m", x + 4, y + 9, label, LABEL_BYTES);
    x += svg_text_width(markup_length(label)) + 12;
    if (grid->log) svg_text(grid->text, "t m", x, y + 9, "logarithmic", 20);
    text_add(grid->text, "\n");
    return y + 14;
}

double heat_draw(Text *text, const Heat *heat) {
    Grid grid = {.text = text, .heat = heat};
    int name = 1;
    find_range(heat, &grid.least, &grid.most, &grid.longest);
    grid.log = grid.least > 0 && grid.most / grid.least >= LOG_RATIO;
    grid.rows = heat->count < HEAT_ROWS ? heat->count : HEAT_ROWS;
    for (int r = 0; r < grid.rows; r++)
        if (markup_length(heat->rows[r].name) > name)
            name = markup_length(heat->rows[r].name);
    if (name > NAME_MOST) name = NAME_MOST;
    grid.left = svg_text_width(name) + 6;
    const int columns = grid.longest < HEAT_COLUMNS ? grid.longest : HEAT_COLUMNS;
    grid.cell = fmin(CELL_MOST, (CHART_WIDTH - grid.left) / columns);
    grid.row = fmin(CELL_MOST - 4, fmax(CELL_LEAST, ROWS_HEIGHT / grid.rows));
    double named = -100, y = 2; /* where the last name stands */
    for (int r = 0; r < grid.rows; r++, y += grid.row) {
        if (y - named >= 11)
            svg_text(text, "t m e", grid.left - 6, (named = y) + grid.row / 2 + 3.5,
                     heat->rows[r].name, NAME_MOST);
        draw_cells(&grid, &heat->rows[r], y);
    }
    if (grid.rows < heat->count) {
        svg_text(text, "t m", grid.left, y + 13, "and more, which are not drawn", 40);
        y += 16;
    }
    svg_text(text, "t m", grid.left, y + 13, heat->x_title, 50);
    return draw_shades(&grid, y + 24);
}

void heat_describe(Text *text, const Heat *heat) {
    double least, most;
    int longest;
    char label[LABEL_BYTES];
    find_range(heat, &least, &most, &longest);
    text_add(text, "%d rows of at most %d ", heat->count, longest);
    markup_text(text, heat->x_title);
    axis_label(label, least);
    text_add(text, ", from %s", label);
    axis_label(label, most);
    text_add(text, " to %s.", label);
}

void heat_csv(Text *text, const Heat *heat) {
    text_add(text, "row,index,value\n");
    for (int r = 0; r < heat->count; r++)
        for (int i = 0; i < heat->rows[r].count; i++) {
            if (!isfinite(heat->rows[r].values[i])) continue;
            markup_field(text, heat->rows[r].name);
            text_add(text, ",%d,", i);
            text_real(text, heat->rows[r].values[i]);
            text_add(text, "\n");
        }
}
