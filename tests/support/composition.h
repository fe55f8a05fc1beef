/* Passes compose: every ordered pair of passes, and chains of more, work on small models
 * or are refused with a reason. docs/composition.md has the outcomes as tables, which
 * COMPRESS_REWRITE=1 writes anew (one test at a time: they share the page).
 *
 * What works: the plan on shapes alone leaves the graph that the run leaves (lineages
 * aside), the model verifies, runs forward to finite numbers, is the same after it was
 * written and read, and can then be trained. What is refused does not fit the model or
 * the recipe, and the plan says the same. */
#ifndef COMPRESS_TESTS_SUPPORT_COMPOSITION_H
#define COMPRESS_TESTS_SUPPORT_COMPOSITION_H

#include "ir/batches.h"
#include "ir/model.h"
#include "passes/pass.h"
#include "tests/support/composition_data.h"

/* A model of one kind, with data for it. */
typedef struct Bench {
    KindName kind;
    Model *base;
    Batches *data;
    const char *path; /* where models are written */
    int faults;       /* what was found wrong, and printed; the test goes on */
} Bench;

/* Makes a model and its data. Everything but the two lives in the arena. */
Bench bench_open(Arena *arena, KindName kind);

void bench_close(Bench *bench);

/* What a plan may say of steps: what the run says and leaves; that they are fine,
 * whatever the run says; or, where a choice over all layers depends on weights, other
 * numbers than the run, but no refusal of what runs. */
typedef enum PlanTrust { PLAN_EXACT, PLAN_FINE, PLAN_OTHER_NUMBERS } PlanTrust;

/* NULL when steps, one a line, work on the bench's model, else why they are refused, as
 * "`pass`: message". `left` (may be NULL)
 * gets the properties of the model that they leave. */
const char *bench_outcome(Arena *arena, Bench *bench, const char *steps, PlanTrust trust,
                          unsigned *left);

/* Runs steps; the properties of the model that they leave, 0 when they are refused. */
unsigned bench_properties(Arena *arena, Bench *bench, const char *steps);

/* What a step, as it stands in a recipe, declares to need and to leave. */
PassEffects step_effects(Arena *arena, const char *step);

/* Steps that run a pass on a kind of model, with what it needs in front of it. `pass`
 * counts through all passes that there are, 0 .. composition_passes() - 1, which fails
 * where one has no row in composition_data.h. */
const char *composition_steps(Arena *arena, KindName kind, int pass);
const char *composition_pass(int pass);
int composition_passes(void);

/* Runs all pairs of passes on a kind of model, or all chains, and compares the outcomes
 * with the table on the page, and who refuses which model with what the passes declare;
 * fails the test where anything is wrong. */
void composition_pairs(KindName kind);
void composition_chains(void);

/* The same for pairs of structural passes with further options. */
void composition_variants(KindName kind);

/* Compares the page's table of what passes declare. */
void composition_effects(void);

#endif
