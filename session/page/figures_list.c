/* The list of a page's pictures: see figures.h. */
#include "session/page/figures.h"

#include <string.h>

#define SLUG_RUN 40 /* characters of a run's name in a slug */

int figures_in(const Figures *figures, FigureGroup group) {
    int count = 0;
    for (int i = 0; i < figures->count; i++) count += figures->items[i].group == group;
    return count;
}

/* A name as part of a file's name: small letters, digits and single '-'. */
static const char *slug_of(Arena *arena, const char *name) {
    char slug[SLUG_RUN + 1];
    int length = 0;
    for (; *name && length < SLUG_RUN; name++) {
        const char c = *name >= 'A' && *name <= 'Z' ? (char)(*name - 'A' + 'a') : *name;
        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
            slug[length++] = c;
        else if (length > 0 && slug[length - 1] != '-')
            slug[length++] = '-';
    }
    while (length > 0 && slug[length - 1] == '-') length--;
    return length ? arena_strndup(arena, slug, (size_t)length) : "run";
}

static bool slug_is_taken(const Figures *figures, const char *slug) {
    for (int i = 0; i < figures->count; i++)
        if (strcmp(figures->items[i].slug, slug) == 0) return true;
    return false;
}

void figures_add(Figures *figures, const Run *run, const Figure *figure) {
    Arena *arena = figures->arena;
    if (figures->count == FIGURES_MAX) {
        figures->more = true;
        return;
    }
    const char *base = slug_of(arena, figure->slug);
    if (run) base = arena_printf(arena, "%s-%s", slug_of(arena, run->name), base);
    const char *slug = base;
    for (int i = 2; slug_is_taken(figures, slug); i++)
        slug = arena_printf(arena, "%s-%d", base, i);
    Figure *own = &figures->items[figures->count++];
    *own = *figure;
    own->slug = slug;
    if (!run || figures->run_count == 1) return;
    own->run = run->name;
    own->run_color = (int)(run - figures->runs);
}

void figures_add_chart(Figures *figures, FigureGroup group, const Run *run,
                       const char *slug, const Chart *chart, const char *note) {
    if (!chart_has_values(chart)) return;
    Arena *arena = figures->arena;
    Chart *own = ARENA_NEW(arena, Chart);
    ChartSeries *series = ARENA_ARRAY(arena, ChartSeries, (size_t)chart->count + 1);
    memcpy(series, chart->series, (size_t)chart->count * sizeof *series);
    *own = *chart;
    own->series = series;
    figures_add(figures, run,
                &(Figure){.group = group,
                          .slug = slug,
                          .title = chart->title,
                          .note = note,
                          .chart = own});
}

void figures_add_heat(Figures *figures, FigureGroup group, const Run *run,
                      const char *slug, const Heat *heat, const char *note) {
    if (!heat_has_values(heat)) return;
    Heat *own = ARENA_NEW(figures->arena, Heat);
    *own = *heat;
    figures_add(figures, run,
                &(Figure){.group = group,
                          .slug = slug,
                          .title = heat->title,
                          .note = note,
                          .heat = own});
}
