/* Recipe: an ordered list of passes with their options, bound and checked.
 *
 *     version: 1
 *     seed: 1
 *     model: models/vit_fashion.h5        # path, or a map with a configuration to build
 *     data:
 *       train: {format: idx, images: ..., labels: ...}
 *     passes:
 *       - weight_multiplex: {group: 2}
 *       - distill: {data: train, epochs: 3}
 *       - evaluate: {data: test, min: 80}
 *     output: minivit.h5
 *
 * Relative paths of inputs are relative to the recipe's folder; the output is relative to
 * the working directory. A step is a map from the pass's name to its options (or the bare
 * name), and two further keys of its own: `label` (a name for reports) and
 * `allow_unchanged`. A step may also be a block that is written out in rounds, in which
 * {from: a, to: b} in place of an option's number goes from a to b:
 *
 *       - repeat:
 *           times: 5
 *           passes:
 *             - prune_heads: {keep: {from: 12, to: 2}}
 *             - distill: {data: train, epochs: 1} */
#ifndef COMPRESS_PASSES_PIPELINE_RECIPE_H
#define COMPRESS_PASSES_PIPELINE_RECIPE_H

#include "exec/processor.h"
#include "passes/pass.h"

typedef struct Step {
    const Pass *pass;
    void *options;     /* bound, in the arena */
    const char *label; /* NULL = none; of a repeated step with its round: "slim 3/5" */
    bool allow_unchanged;
    StepSource source; /* key: "passes[2]", "passes[2].repeat[3].passes[1]" */
    int round, rounds; /* of its repeat, from 1; 0 = not repeated */
    int stride;        /* steps of a round */
} Step;

/* `checkpoint:`: when a run keeps what it needs to continue after being stopped. */
typedef struct CheckpointKeys {
    int64_t every;  /* after this many steps; 0 = never; -1 = not given: as often as costs
                       at most 1 % of the time */
    double minutes; /* inside training, likewise; 0 = not given */
    const char *folder; /* NULL = next to the output */
} CheckpointKeys;

/* What happens to the model when a gate fails. */
#define RECIPE_KEEP_NAMES "nothing|on_failure"
typedef enum RecipeKeep { KEEP_NOTHING, KEEP_ON_FAILURE } RecipeKeep;

typedef struct Recipe {
    const char *path, *folder;
    int64_t seed;
    int64_t threads;     /* 0 = number of processors */
    Processor processor; /* to be fixed before the model is read (processor_fix) */
    RecipeKeep keep;
    const Tree *model;  /* string or map; NULL = must come from --model */
    const Tree *data;   /* map of data sets, or NULL */
    const Tree *output; /* string, map or list of them; NULL = nothing is written */
    Step *steps;
    int step_count;
    const Tree *source; /* the whole document, after --set */
    CheckpointKeys checkpoint;
} Recipe;

/* Binds a document to a recipe: every step, option, data set name and snapshot name is
 * checked, repeats are written out (at most 10,000 steps in all), and ALL errors are
 * reported (STATUS_RECIPE) at their place. Data entries themselves are bound by the
 * caller (io), before this. */
Status recipe_bind(Recipe *recipe, Arena *arena, const Tree *document, const char *path,
                   const char *folder, Diag *diag);

/* Binds and checks the options of step->pass, a map, null or NULL, to step->options in
 * the arena, reporting all errors (STATUS_RECIPE); the data sets and snapshots of the
 * recipe that they name are not looked up. `step` has its pass and source. */
Status step_bind(Step *step, const Tree *options, Arena *arena, Diag *diag);

/* Whether a name in a list of steps means something other than a pass, such as a key of
 * a step: no recipe could use a pass of that name. */
bool recipe_reserves(const char *name);

/* Name of the snapshot that a step makes, NULL when it makes none. */
const char *recipe_snapshot_made(const Step *step);

/* Index of the last step before `end` that makes the snapshot, -1 = none does. */
int recipe_snapshot_find(const Recipe *recipe, const char *name, int end);

/* Whether a step from `first` on names the snapshot that step `made` makes, before it is
 * replaced. */
bool recipe_snapshot_needed(const Recipe *recipe, int made, int first);

/* Appends the JSON Schema of recipes, every pass included. */
void recipe_schema(Text *text);

/* Appends the manual of the recipe's own keys. */
void recipe_document(Text *text);

/* The next of a pass's options that name data sets (Pass.data_options), in the arena;
 * `rest` starts as that list and is advanced. NULL after the last one. */
const char *data_option_next(const char **rest, Arena *arena);

#endif
