/* All pictures of a page, group by group. */
#include "session/page/figures.h"

void figures_make(Figures *figures, Arena *arena, const Run *runs, int count) {
    *figures = (Figures){.arena = arena, .runs = runs, .run_count = count};
    figures_of_structure(figures);
    figures_of_trade(figures);
    figures_of_training(figures);
    figures_of_importance(figures);
    figures_of_diagnosis(figures);
}
