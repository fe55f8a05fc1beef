/* Curves of training, those of several runs laid over each other: see figures.h.
 *
 * The trainings of a run stand one behind the other, with a gap between them: they may
 * have different losses. */
#include "session/page/figures.h"

#include <math.h>
#include <string.h>

#define KEYS_MAX 24 /* different terms of a loss, or metrics */

/* A value of each row of a step's curve: `key`, or `group` and in it `key`. */
typedef struct CurveValue {
    const char *group, *key;
} CurveValue;

/* Rows of training of a step; NULL = it did not train. The rows of calibrate_exits have
 * no loss. */
static const Tree *training_curve(const RunStep *step) {
    const Tree *curve = run_list(step->record, "curve");
    return curve && curve->first && tree_get(curve->first, "loss") ? curve : NULL;
}

static double row_value(const Tree *row, CurveValue value) {
    return run_number(value.group ? tree_get(row, value.group) : row, value.key);
}

/* Number of values that a run's curves have room for, gaps included. */
static int count_rows(const Run *run) {
    int rows = 0;
    for (int i = 0; i < run->count; i++) {
        const Tree *curve = training_curve(&run->steps[i]);
        if (curve) rows += curve->count + 1;
    }
    return rows;
}

/* A run's values over all its training steps; gaps between steps. A row without the value
 * is passed over, so that metrics that are measured now and then make a line. */
static ChartSeries run_curve(const Run *run, CurveValue value, Arena *arena) {
    const int rows = count_rows(run);
    double *x = ARENA_ARRAY(arena, double, (size_t)rows + 1);
    double *y = ARENA_ARRAY(arena, double, (size_t)rows + 1);
    double base = 0;
    int count = 0;
    for (int i = 0; i < run->count; i++) {
        const Tree *curve = training_curve(&run->steps[i]);
        double last = 0;
        for (const Tree *row = curve ? curve->first : NULL; row; row = row->next) {
            const double step = run_number(row, "step"), found = row_value(row, value);
            if (step > last) last = step;
            if (isnan(step) || isnan(found)) continue;
            x[count] = base + step;
            y[count++] = found;
        }
        if (curve && count > 0) x[count] = y[count] = NAN, count++;
        base += last;
    }
    return (ChartSeries){.name = run->name, .x = x, .y = y, .count = count};
}

/* Whether the values differ much enough for a logarithmic axis. */
static bool spreads(const ChartSeries *series, int count) {
    double least = INFINITY, most = 0;
    for (int s = 0; s < count; s++)
        for (int i = 0; i < series[s].count; i++) {
            if (isnan(series[s].y[i])) continue;
            least = fmin(least, series[s].y[i]);
            most = fmax(most, series[s].y[i]);
        }
    return least > 0 && most / least >= 30;
}

/* Marks that show a curve whose values are few as points. */
static int curve_marks(const ChartSeries *series) {
    return series->count <= 24 ? CHART_LINE | CHART_POINTS : CHART_LINE;
}

/* One picture of a value of all runs. */
static void add_value(Figures *figures, const char *slug, const char *title,
                      const char *unit, CurveValue value, bool log) {
    ChartSeries *series =
        ARENA_ARRAY(figures->arena, ChartSeries, (size_t)figures->run_count);
    int count = 0;
    for (int r = 0; r < figures->run_count; r++) {
        series[count] = run_curve(&figures->runs[r], value, figures->arena);
        series[count].color = r;
        series[count].marks = curve_marks(&series[count]);
        count += series[count].count > 0;
    }
    const Chart chart = {.title = title,
                         .x_title = "training steps",
                         .x_whole = true,
                         .y_title = unit,
                         .y_log = log && spreads(series, count),
                         .series = series,
                         .count = count};
    figures_add_chart(figures, FIGURES_TRAINING, NULL, slug, &chart, NULL);
}

/* Keys of the maps under `group` in a run's curves, joined to those found before. */
static int find_keys(const char **keys, int count, const Run *run, const char *group) {
    for (int i = 0; i < run->count; i++) {
        const Tree *curve = training_curve(&run->steps[i]);
        for (const Tree *row = curve ? curve->first : NULL; row; row = row->next) {
            const Tree *map = tree_get(row, group);
            if (!map || map->kind != TREE_MAP) continue;
            for (const Tree *value = map->first; value; value = value->next) {
                bool known = count == KEYS_MAX;
                for (int k = 0; k < count && !known; k++)
                    known = strcmp(keys[k], value->key) == 0;
                if (!known) keys[count++] = value->key;
            }
        }
    }
    return count;
}

/* The terms of a run's losses, if there are several. */
static void add_terms(Figures *figures, const Run *run) {
    const char *keys[KEYS_MAX];
    ChartSeries series[KEYS_MAX];
    const int count = find_keys(keys, 0, run, "parts");
    if (count < 2) return;
    for (int k = 0; k < count; k++) {
        series[k] = run_curve(run, (CurveValue){"parts", keys[k]}, figures->arena);
        series[k].name = keys[k];
        series[k].color = k;
        series[k].marks = curve_marks(&series[k]);
    }
    const Chart chart = {.title = "terms of the loss",
                         .x_title = "training steps",
                         .x_whole = true,
                         .y_title = "before their weights",
                         .y_log = spreads(series, count),
                         .series = series,
                         .count = count};
    figures_add_chart(figures, FIGURES_TRAINING, run, "terms", &chart, NULL);
}

void figures_of_training(Figures *figures) {
    const char *keys[KEYS_MAX];
    int count = 0;
    add_value(figures, "loss", "Training loss", "loss", (CurveValue){NULL, "loss"}, true);
    for (int r = 0; r < figures->run_count; r++)
        count = find_keys(keys, count, &figures->runs[r], "dev");
    for (int k = 0; k < count; k++)
        add_value(figures, arena_printf(figures->arena, "dev-%.40s", keys[k]),
                  arena_printf(figures->arena, "Development set: %.80s", keys[k]),
                  keys[k], (CurveValue){"dev", keys[k]}, false);
    for (int r = 0; r < figures->run_count; r++) add_terms(figures, &figures->runs[r]);
    add_value(figures, "learning-rate", "Learning rate", "learning rate",
              (CurveValue){NULL, "learning_rate"}, false);
    add_value(figures, "gradient-norm", "Gradient norm", "before clipping",
              (CurveValue){NULL, "gradient_norm"}, true);
}
