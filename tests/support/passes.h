/* Support for tests of passes: running one, toy data, toy models. */
#ifndef COMPRESS_TESTS_SUPPORT_PASSES_H
#define COMPRESS_TESTS_SUPPORT_PASSES_H

#include "passes/pipeline/pipeline.h"

/* What a pipeline may ask for, whatever it is called there, and whom it tells. */
typedef struct RecipeInputs {
    Batches *data;
    Model *model;
    PipelineHooks hooks;
    const TrainKeeper *train_keeper; /* NULL = none */
    const Watch *watch;              /* likewise */
    Resources resources;             /* set by inputs_resources */
} RecipeInputs;

/* Fails the test where a storage's hash is not that of its bytes: one that was kept and
 * is stale. Pipelines run by this file are checked when they succeed. */
void check_hashes(const Model *model);

/* The same as resources of a pipeline or a pass, valid as long as the inputs. */
Resources *inputs_resources(RecipeInputs *inputs);

/* Runs a recipe document, "test", with these inputs. */
Status run_with_inputs(RecipeInputs *inputs, Model *model, const char *yaml, bool plan,
                       int threads, Diag *diag);

/* Runs a recipe of one step on the model through the real pipeline. `options` is the
 * step's YAML ("{group: 2}"); data set "toy" is toy_batches. The input model that passes
 * may ask for is a copy taken before. */
Status test_run_pass(Model *model, const char *pass, const char *options, bool plan,
                     Diag *diag);

/* Runs a whole recipe document (YAML text with version, passes, ...) the same way, with
 * `threads` threads. */
Status test_run_recipe(Model *model, const char *file, const char *yaml, bool plan,
                       int threads, Diag *diag);

/* Runs a pass, which must succeed and leave a sound graph. */
void run_pass(Model *model, const char *pass, const char *options);

/* Runs a pass, which must fail with `status` and say `part`. */
void expect_pass_fails(Model *model, const char *pass, const char *options, Status status,
                       const char *part);

/* What the step that ran last recorded. */
const Tree *last_record(const Model *model);

/* A number of a record, which must be there. */
double number(const Tree *record, const char *key);

/* 60 samples of 1 x 8 x 8 pixels in 3 classes that a small model can learn: a bright row
 * band whose position is the label, with seeded noise. Destroy with batches_destroy. */
Batches *toy_batches(void);

/* A ViT of 4 layers, width 16, 2 heads, 1 x 8 x 8 pixels, patch 4, 3 classes, as a
 * configuration; weights drawn by seed. */
Model *toy_vit(uint64_t seed);

#endif
