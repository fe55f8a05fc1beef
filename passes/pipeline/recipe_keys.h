/* The keys of a recipe and of a step, as typed fields: shared by the binder, the manual
 * and the schema. Private to the recipe. */
#ifndef COMPRESS_PASSES_PIPELINE_RECIPE_KEYS_H
#define COMPRESS_PASSES_PIPELINE_RECIPE_KEYS_H

#include "ir/field.h"
#include "passes/pipeline/recipe.h"

/* Keys at the top of a recipe. */
typedef struct RecipeKeys {
    int64_t version, seed, threads;
    int processor; /* Processor */
    int keep;      /* RecipeKeep */
    const char *name;
    const Tree *extends, *anchors; /* only for human readers of the document */
    const Tree *model, *data, *passes, *output, *checkpoint;
} RecipeKeys;

/* Keys of a step in addition to the name of its pass. */
typedef struct StepKeys {
    const char *label;
    bool allow_unchanged;
} StepKeys;

/* Keys of a block of steps that is repeated. */
typedef struct RepeatKeys {
    int64_t times;
    const Tree *passes;
} RepeatKeys;

/* Their rows and defaults. */
const Field *recipe_fields(void);
const RecipeKeys *recipe_key_defaults(void);
const Field *recipe_step_fields(void);
const StepKeys *recipe_step_defaults(void);
const Field *recipe_checkpoint_fields(void);
const CheckpointKeys *recipe_checkpoint_defaults(void);
const Field *recipe_repeat_fields(void);
const RepeatKeys *recipe_repeat_defaults(void);

#endif
