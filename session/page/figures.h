/* Figures: all pictures of runs, in the order in which a page shows them. */
#ifndef COMPRESS_SESSION_PAGE_FIGURES_H
#define COMPRESS_SESSION_PAGE_FIGURES_H

#include "session/page/figure.h"
#include "session/page/runs.h"

#define FIGURES_MAX 240

typedef struct Figures {
    Arena *arena;
    const Run *runs;
    int run_count;
    Figure items[FIGURES_MAX];
    int count;
    bool more; /* some were left out */
} Figures;

/* Makes the pictures; they borrow from the runs. */
void figures_make(Figures *figures, Arena *arena, const Run *runs, int count);

/* Number of pictures in a group. */
int figures_in(const Figures *figures, FigureGroup group);

/* ---- for the functions that make them ---- */

/* Adds a picture if it shows any value; copies the chart and its list of series. `run`
 * NULL = all runs; otherwise its name goes into the slug, and the figure names it if
 * there are several. */
void figures_add_chart(Figures *figures, FigureGroup group, const Run *run,
                       const char *slug, const Chart *chart, const char *note);
void figures_add_heat(Figures *figures, FigureGroup group, const Run *run,
                      const char *slug, const Heat *heat, const char *note);
void figures_add(Figures *figures, const Run *run, const Figure *figure);

/* The pictures of one group. */
void figures_of_structure(Figures *figures);
void figures_of_trade(Figures *figures);
void figures_of_training(Figures *figures);
void figures_of_importance(Figures *figures);
void figures_of_diagnosis(Figures *figures);

#endif
