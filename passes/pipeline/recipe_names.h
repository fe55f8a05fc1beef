/* Names: checks of what the steps of a recipe refer to. Private to the recipe. */
#ifndef COMPRESS_PASSES_PIPELINE_RECIPE_NAMES_H
#define COMPRESS_PASSES_PIPELINE_RECIPE_NAMES_H

#include "passes/pipeline/recipe.h"

/* Reports every option of a bound step that should name a data set of the recipe and does
 * not. `options` = as written. */
void recipe_check_data(const Recipe *recipe, const Step *step, const Tree *options,
                       Arena *arena, Diag *diag);

/* Reports "snapshot:NAME" among the options where no earlier step makes that snapshot,
 * and names that two steps give to snapshots. Rounds of a repeat are one step here: each
 * round's snapshot takes the place of the last one's. Steps that did not bind have no
 * options. */
void recipe_check_snapshots(const Recipe *recipe, Arena *arena, Diag *diag);

#endif
