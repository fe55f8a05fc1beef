/* What models are worth against what they cost: see figures.h. */
#include "session/page/figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What every picture here shows on its y axis: the kind of metric that says most about
 * the first run that measured any. */
static const RunMetricKind *main_kind(const Figures *figures) {
    for (int r = 0; r < figures->run_count; r++) {
        const RunMetricKind *kind = run_main_metric(&figures->runs[r]);
        if (kind) return kind;
    }
    return NULL;
}

static const char *kind_unit(Arena *arena, const RunMetricKind *kind) {
    return kind->percent ? arena_printf(arena, "%s, %%", kind->title) : kind->title;
}

/* Data set of the last step that measured a kind; NULL = none did. */
static const char *last_data(const Run *run, const RunMetricKind *kind) {
    const char *data = NULL, *last = NULL;
    for (int i = 0; i < run->count; i++)
        if (!isnan(run_step_metric(&run->steps[i], kind, &data))) last = data;
    return last;
}

/* A growing series. */
typedef struct Points {
    double *x, *y;
    const char **notes;
    int count;
} Points;

static Points points_create(Arena *arena, int most) {
    return (Points){.x = ARENA_ARRAY(arena, double, (size_t)most + 1),
                    .y = ARENA_ARRAY(arena, double, (size_t)most + 1),
                    .notes = ARENA_ARRAY(arena, const char *, (size_t)most + 1)};
}

static void points_add(Points *points, double x, double y, const char *note) {
    if (isnan(x) || isnan(y)) return;
    points->x[points->count] = x;
    points->y[points->count] = y;
    points->notes[points->count++] = note;
}

static ChartSeries points_series(const Points *points, const char *name, int color,
                                 int marks) {
    return (ChartSeries){.name = name,
                         .x = points->x,
                         .y = points->y,
                         .notes = points->notes,
                         .count = points->count,
                         .color = color,
                         .marks = marks};
}

/* What a run's models are worth at every step that measured them. `flops`: over FLOPs,
 * else over the steps. */
static Points measured(const Run *run, Arena *arena, const RunMetricKind *kind,
                       bool flops) {
    const char *data = NULL, *wanted = last_data(run, kind);
    Points points = points_create(arena, run->count);
    for (int i = 0; i < run->count; i++) {
        const RunStep *step = &run->steps[i];
        const double value = run_step_metric(step, kind, &data);
        if (isnan(value) || strcmp(data, wanted) != 0) continue;
        points_add(&points, flops ? run_step_flops(step) : i + 1, value,
                   arena_printf(arena, "step %d", i + 1));
    }
    return points;
}

/* Every exit of the last step that looked at each: accuracy of the model cut off there.
 * FLOPs of exits are of the samples' own lengths: they are scaled to those of the model.
 */
static Points each_exit(const Run *run, Arena *arena, const RunMetricKind *kind) {
    Points points = {0};
    for (int i = 0; i < run->count; i++) {
        const RunStep *step = &run->steps[i];
        const Tree *exits = run_list(step->record, "exits");
        if (!exits || !exits->last || strcmp(step->pass, "evaluate") != 0) continue;
        if (isnan(run_number(exits->first, kind->key))) continue;
        const double whole = run_number(exits->last, "flops");
        points = points_create(arena, exits->count);
        for (const Tree *row = exits->first; row && whole > 0; row = row->next)
            points_add(&points, step->size.flops * run_number(row, "flops") / whole,
                       run_number(row, kind->key), tree_string(row, "exit"));
    }
    return points;
}

/* The curve of the last calibration: accuracy at every threshold. */
static Points calibration(const Run *run, Arena *arena) {
    Points points = {0};
    for (int i = 0; i < run->count; i++) {
        const RunStep *step = &run->steps[i];
        const Tree *curve = run_list(step->record, "curve");
        if (!curve || strcmp(step->pass, "calibrate_exits") != 0) continue;
        points = points_create(arena, curve->count);
        for (const Tree *row = curve->first; row; row = row->next)
            points_add(&points, step->size.flops * run_number(row, "flops"),
                       run_number(row, "accuracy"), NULL);
    }
    return points;
}

static void add_exits(Figures *figures, const Run *run, const RunMetricKind *kind,
                      int color) {
    Arena *arena = figures->arena;
    ChartSeries series[2];
    int count = 0;
    const Points each = each_exit(run, arena, kind);
    if (each.count > 0)
        series[count++] = points_series(&each, "every sample leaves at this exit", color,
                                        CHART_LINE | CHART_POINTS);
    const Points rule = calibration(run, arena);
    if (rule.count > 0 && strcmp(kind->key, "accuracy") == 0)
        series[count++] = points_series(&rule, "samples leave by the rule", color,
                                        CHART_LINE | CHART_SOLID);
    const Chart chart = {.title = "early exits",
                         .x_title = "FLOPs of a sample",
                         .y_title = kind_unit(arena, kind),
                         .x_zero = true,
                         .series = series,
                         .count = count};
    figures_add_chart(figures, FIGURES_TRADE, run, "exits", &chart,
                      rule.count > 0 ? "The rule's curve is of the set that it was "
                                       "calibrated on."
                                     : NULL);
}

/* Share of the samples that left at each exit in the last step that let them. */
static void add_leaving(Figures *figures) {
    Arena *arena = figures->arena;
    ChartSeries *series = ARENA_ARRAY(arena, ChartSeries, (size_t)figures->run_count);
    int count = 0;
    for (int r = 0; r < figures->run_count; r++) {
        const Run *run = &figures->runs[r];
        Points points = {0};
        for (int i = 0; i < run->count; i++) {
            const Tree *exits = run_list(run->steps[i].record, "exits");
            if (!exits || isnan(run_number(exits->first, "share"))) continue;
            points = points_create(arena, exits->count);
            for (const Tree *row = exits->first; row; row = row->next)
                points_add(&points, run_number(row, "layer"),
                           100 * run_number(row, "share"), tree_string(row, "exit"));
        }
        if (points.count > 0)
            series[count++] =
                points_series(&points, run->name, r, CHART_LINE | CHART_POINTS);
    }
    const Chart chart = {.title = "Where samples leave",
                         .x_title = "layers",
                         .x_whole = true,
                         .y_title = "share of the samples, %",
                         .series = series,
                         .count = count};
    figures_add_chart(figures, FIGURES_TRADE, NULL, "leaving", &chart, NULL);
}

/* Parameters after every step in percent of the input's. */
static Points shrinking(const Run *run, Arena *arena) {
    Points points = points_create(arena, run->count + 1);
    points_add(&points, 0, run->before.parameters > 0 ? 100 : (double)NAN, "input");
    for (int i = 0; i < run->count; i++)
        points_add(&points, i + 1,
                   100 * run->steps[i].size.parameters / run->before.parameters,
                   run->steps[i].title);
    return points;
}

static void add_shrinking(Figures *figures) {
    ChartSeries *series =
        ARENA_ARRAY(figures->arena, ChartSeries, (size_t)figures->run_count);
    int count = 0;
    for (int r = 0; r < figures->run_count; r++) {
        const Points points = shrinking(&figures->runs[r], figures->arena);
        if (points.count > 2)
            series[count++] = points_series(&points, figures->runs[r].name, r,
                                            CHART_LINE | CHART_POINTS);
    }
    const Chart chart = {.title = "Parameters, step by step",
                         .x_title = "steps of the recipe",
                         .x_whole = true,
                         .y_title = "share of the input's, %",
                         .series = series,
                         .count = count};
    figures_add_chart(figures, FIGURES_TRADE, NULL, "parameters", &chart, NULL);
}

void figures_of_trade(Figures *figures) {
    Arena *arena = figures->arena;
    const RunMetricKind *kind = main_kind(figures);
    add_shrinking(figures);
    if (!kind) return;
    const size_t most = (size_t)figures->run_count;
    ChartSeries *by_flops = ARENA_ARRAY(arena, ChartSeries, most);
    ChartSeries *by_step = ARENA_ARRAY(arena, ChartSeries, most);
    int count = 0, points = 0;
    for (int r = 0; r < figures->run_count; r++) {
        const Run *run = &figures->runs[r];
        if (!last_data(run, kind)) continue;
        const Points flops = measured(run, arena, kind, true);
        const Points steps = measured(run, arena, kind, false);
        by_flops[count] =
            points_series(&flops, run->name, r, CHART_DOTTED | CHART_POINTS);
        points += steps.count;
        by_step[count++] = points_series(&steps, run->name, r, CHART_LINE | CHART_POINTS);
    }
    if (points < 2) count = 0; /* one alone is in the table */
    Chart chart = {.title = arena_printf(arena, "%s against FLOPs", kind->title),
                   .x_title = "FLOPs of a sample",
                   .y_title = kind_unit(arena, kind),
                   .x_zero = true,
                   .series = by_flops,
                   .count = count};
    figures_add_chart(
        figures, FIGURES_TRADE, NULL, "trade", &chart,
        "The dotted line leads from evaluation to evaluation in the order "
        "of the recipe; FLOPs are those that samples took, exits included.");
    chart.title = arena_printf(arena, "%s, step by step", kind->title);
    chart.x_title = "steps of the recipe";
    chart.x_zero = false;
    chart.x_whole = true;
    chart.series = by_step;
    figures_add_chart(figures, FIGURES_TRADE, NULL, "metric", &chart, NULL);
    for (int r = 0; r < figures->run_count; r++)
        add_exits(figures, &figures->runs[r], kind, r);
    add_leaving(figures);
}
