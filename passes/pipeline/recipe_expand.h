/* Expansion: the list `passes` of a recipe as one flat list of steps, rounds of `repeat`
 * blocks written out. Private to the recipe. */
#ifndef COMPRESS_PASSES_PIPELINE_RECIPE_EXPAND_H
#define COMPRESS_PASSES_PIPELINE_RECIPE_EXPAND_H

#include "ir/field.h"

/* Recipes may come from anyone: bounds on what their rounds may grow to. */
#define RECIPE_STEPS_MAX 10000
#define RECIPE_BYTES_MAX ((int64_t)64 << 20)

/* One step to bind. */
typedef struct StepItem {
    const Tree *tree;  /* of a round: a copy with the round's numbers and its own path */
    int round, rounds; /* of its repeat, from 1; 0 = not repeated */
    int stride;  /* steps of a round: the distance back to the same step of the last round
                  */
    bool failed; /* reported already: not to be bound */
} StepItem;

typedef struct StepItems {
    StepItem *items;
    int count, capacity;
    int64_t bytes; /* taken by copies */
} StepItems;

/* Writes out all rounds; faults are only reported (STATUS_RECIPE), those of a repeated
 * step once. Ranges {from: a, to: b} among the options become the number of the
 * round. */
void recipe_expand(StepItems *out, Arena *arena, const Tree *passes, Diag *diag);

#endif
