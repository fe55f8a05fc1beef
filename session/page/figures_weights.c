/* What the weights are like: structure, importance, diagnoses. See figures.h. */
#include "session/page/figures.h"
#include "session/units.h"

#include <math.h>
#include <string.h>

#define STATES_MAX   24 /* structures of a run that are shown; then the last */
#define ROWS_MAX     512
#define SPECTRA_MAX  64   /* lines in one picture */
#define FAMILIES_MAX 16   /* roles whose spectra are shown */
#define PALE         0.25 /* tint of the first line of a family */

/* ---- structure ---- */

/* Adds the state after step `index`, from 0; -1 = the input. */
static void add_state(Figures *figures, const Run *run, const Outline *outline,
                      const OutlineScale *scale, int index) {
    Arena *arena = figures->arena;
    const RunStep *step = index < 0 ? NULL : &run->steps[index];
    const double parameters = run->is_model ? run->after.parameters
                              : step        ? step->size.parameters
                                            : run->before.parameters;
    Figure figure = {.group = FIGURES_STRUCTURE, .outline = outline, .scale = scale};
    figure.slug = arena_printf(arena, "structure-%02d", index + 1);
    figure.title = run->is_model ? "model"
                   : step        ? arena_printf(arena, "%d %s", index + 1, step->title)
                                 : "input";
    if (!isnan(parameters))
        figure.note = arena_printf(arena, "%s",
                                   text_grouped(arena, (int64_t)fmin(parameters, 9e18)));
    figures_add(figures, run, &figure);
}

/* The states of a run in which its structure differs from the one before. */
static void add_states(Figures *figures, const Run *run) {
    Arena *arena = figures->arena;
    Outline *states = ARENA_ARRAY(arena, Outline, (size_t)run->count + 1);
    int *steps = ARENA_ARRAY(arena, int, (size_t)run->count + 1);
    OutlineScale *scale = ARENA_NEW(arena, OutlineScale);
    int count = 0;
    for (int i = -1; i < run->count; i++) {
        const Tree *tree = i < 0 ? run->structure : run->steps[i].structure;
        if (!tree || !outline_read(&states[count], arena, tree)) continue;
        if (count > 0 && outline_equal(&states[count - 1], &states[count])) continue;
        outline_widen(scale, &states[count]);
        steps[count++] = i;
    }
    for (int i = 0; i < count; i++)
        if (i < STATES_MAX || i == count - 1)
            add_state(figures, run, &states[i], scale, steps[i]);
}

void figures_of_structure(Figures *figures) {
    for (int r = 0; r < figures->run_count; r++) add_states(figures, &figures->runs[r]);
}

/* ---- importance ---- */

/* Numbers of a list; those that are none are NAN. */
static const double *read_numbers(Arena *arena, const Tree *list, int *count) {
    double *values = ARENA_ARRAY(arena, double, (size_t)(list ? list->count : 0) + 1);
    *count = 0;
    for (const Tree *item = list ? list->first : NULL; item; item = item->next) {
        double value;
        values[(*count)++] = tree_number(item, &value) ? value : (double)NAN;
    }
    return values;
}

/* Where a block of an importance record stands: "encoder.3". */
static const char *block_name(Arena *arena, const Tree *row) {
    const char *block = tree_string(row, "block"), *stack = tree_string(row, "stack");
    const double layer = run_number(row, "layer");
    if (block) return block;
    if (!stack) return "?";
    return isnan(layer) ? stack : arena_printf(arena, "%.60s.%.0f", stack, layer);
}

/* Adds the scores under `key` of a list's rows. */
static void add_scores(Figures *figures, const Run *run, const Tree *list,
                       const char *key, const char *slug, const char *title,
                       const char *x_title, const char *note) {
    Arena *arena = figures->arena;
    if (!list) return;
    HeatRow *rows = ARENA_ARRAY(arena, HeatRow, ROWS_MAX);
    int count = 0;
    for (const Tree *row = list->first; row && count < ROWS_MAX; row = row->next) {
        HeatRow *own = &rows[count++];
        own->name = block_name(arena, row);
        own->values = read_numbers(arena, run_list(row, key), &own->count);
    }
    const Heat heat = {.title = title, .x_title = x_title, .rows = rows, .count = count};
    figures_add_heat(figures, FIGURES_IMPORTANCE, run, slug, &heat, note);
}

void figures_of_importance(Figures *figures) {
    Arena *arena = figures->arena;
    for (int r = 0; r < figures->run_count; r++) {
        const Run *run = &figures->runs[r];
        int step = 0;
        while (step < run->count && strcmp(run->steps[step].pass, "importance") != 0)
            step++;
        if (step == run->count) continue;
        const Tree *record = run->steps[step].record;
        const char *note =
            arena_printf(arena, "As step %d found it, before pruning.", step + 1);
        add_scores(figures, run, run_list(record, "heads"), "scores", "heads",
                   "importance of heads", "heads", note);
        add_scores(figures, run, run_list(record, "ffn"), "profile", "units",
                   "importance of feed-forward units", "units, the most important first",
                   note);
    }
}

/* ---- diagnoses ---- */

/* The last record of a run that has a list under `key`; NULL = none. */
static const Tree *last_record(const Run *run, const char *key) {
    const Tree *found = NULL;
    for (int i = 0; i < run->count; i++)
        if (strcmp(run->steps[i].pass, "diagnose") == 0 &&
            run_list(run->steps[i].record, key))
            found = run->steps[i].record;
    return found;
}

/* Adds a list by layer of all runs. */
static void add_by_layer(Figures *figures, const char *key, const char *title,
                         const char *unit) {
    Arena *arena = figures->arena;
    ChartSeries *series = ARENA_ARRAY(arena, ChartSeries, (size_t)figures->run_count);
    int count = 0;
    for (int r = 0; r < figures->run_count; r++) {
        const Run *run = &figures->runs[r];
        const Tree *list = run_list(last_record(run, key), key);
        if (!list || list->count == 0) continue;
        ChartSeries *own = &series[count++];
        *own = (ChartSeries){
            .name = run->name, .color = r, .marks = CHART_LINE | CHART_POINTS};
        own->y = read_numbers(arena, list, &own->count);
        double *layers = ARENA_ARRAY(arena, double, (size_t)own->count + 1);
        for (int i = 0; i < own->count; i++) layers[i] = i;
        own->x = layers;
    }
    const Chart chart = {.title = title,
                         .x_title = "layer",
                         .x_whole = true,
                         .y_title = unit,
                         .series = series,
                         .count = count};
    figures_add_chart(figures, FIGURES_DIAGNOSIS, NULL, key, &chart, NULL);
}

/* A matrix's singular values relative to the largest, over their places from 0 to 100 %.
 */
static bool spectrum_series(ChartSeries *series, Arena *arena, const Tree *row) {
    int count;
    const double *sigma = read_numbers(arena, run_list(row, "sigma"), &count);
    if (count < 2 || !(sigma[0] > 0)) return false;
    double *x = ARENA_ARRAY(arena, double, (size_t)count);
    double *y = ARENA_ARRAY(arena, double, (size_t)count);
    for (int i = 0; i < count; i++) {
        x[i] = 100.0 * i / (count - 1);
        y[i] = sigma[i] / sigma[0];
        if (!(y[i] > 0)) y[i] = NAN; /* has no place on a logarithmic axis */
    }
    const char *place = tree_string(row, "place");
    *series = (ChartSeries){.name = place ? place : "matrix",
                            .x = x,
                            .y = y,
                            .count = count,
                            .marks = CHART_LINE};
    return true;
}

/* Adds the spectra of the matrices of one role, the first one the palest. */
static void add_family(Figures *figures, const Run *run, const Tree *list,
                       const char *role, int color) {
    Arena *arena = figures->arena;
    ChartSeries *series = ARENA_ARRAY(arena, ChartSeries, SPECTRA_MAX);
    int count = 0;
    for (const Tree *row = list->first; row && count < SPECTRA_MAX; row = row->next) {
        const char *own = tree_string(row, "role");
        if (own && strcmp(own, role) == 0)
            count += spectrum_series(&series[count], arena, row);
    }
    for (int i = 0; i < count; i++) {
        series[i].color = color;
        series[i].tint = count > 1 ? PALE + (1 - PALE) * i / (count - 1) : 1;
    }
    const Chart chart = {
        .title = arena_printf(arena, "singular values of %.40s", role),
        .x_title = "singular values, % of them",
        .y_title = "relative to the largest",
        .legend_note = count > 1 ? arena_printf(arena, "pale: %.30s; full: %.30s",
                                                series[0].name, series[count - 1].name)
                                 : NULL,
        .y_log = true,
        .series = series,
        .count = count};
    figures_add_chart(figures, FIGURES_DIAGNOSIS, run,
                      arena_printf(arena, "spectra-%.40s", role), &chart, NULL);
}

/* The share of each matrix's rank that holds 99 % of its squares: a row for each role, a
 * cell for each matrix of it. */
static void add_ranks(Figures *figures, const Run *run, const Tree *list,
                      const char *const *roles, int role_count) {
    Arena *arena = figures->arena;
    HeatRow *rows = ARENA_ARRAY(arena, HeatRow, (size_t)role_count + 1);
    for (int i = 0; i < role_count; i++) {
        double *shares = ARENA_ARRAY(arena, double, (size_t)list->count + 1);
        rows[i] = (HeatRow){.name = roles[i], .values = shares};
        for (const Tree *row = list->first; row; row = row->next) {
            const char *role = tree_string(row, "role");
            const double full = fmin(run_number(row, "rows"), run_number(row, "columns"));
            if (role && strcmp(role, roles[i]) == 0)
                shares[rows[i].count++] = 100 * run_number(row, "rank99") / full;
        }
    }
    const Heat heat = {.title = "rank that holds 99 % of a matrix, % of the full one",
                       .x_title = "matrices, in the order of layers",
                       .rows = rows,
                       .count = role_count};
    figures_add_heat(figures, FIGURES_DIAGNOSIS, run, "ranks", &heat, NULL);
}

static void add_spectra(Figures *figures, const Run *run) {
    const Tree *list = run_list(last_record(run, "spectra"), "spectra");
    const char *roles[FAMILIES_MAX];
    int count = 0;
    for (const Tree *row = list ? list->first : NULL; row; row = row->next) {
        const char *role = tree_string(row, "role");
        bool known = !role || count == FAMILIES_MAX;
        for (int i = 0; i < count && !known; i++) known = strcmp(roles[i], role) == 0;
        if (!known) roles[count++] = role;
    }
    if (count > 0) add_ranks(figures, run, list, roles, count);
    for (int i = 0; i < count; i++) add_family(figures, run, list, roles[i], i);
}

void figures_of_diagnosis(Figures *figures) {
    add_by_layer(figures, "gradient_norms", "Gradient norm by layer", "L2 norm");
    add_by_layer(figures, "cka", "Similarity to the other model by layer", "linear CKA");
    for (int r = 0; r < figures->run_count; r++) add_spectra(figures, &figures->runs[r]);
}
