/* Pass: one step of a recipe. It takes a valid model and leaves a valid model.
 *
 * A pass is one file that ends with its `const Pass pass_NAME`, one line in
 * passes/passes.def, one page docs/passes/NAME.md and its test cases under
 * tests/passes/. It never opens files: data, teacher and record come with the context.
 *
 * Planning runs the same code: with ctx->plan the model's storages have shapes but no
 * data, and a pass does everything except touch weights or go through data. It still
 * asks for its data set (step_data), which is checked then. What `compress plan` prints
 * is therefore what a run gives. */
#ifndef COMPRESS_PASSES_PASS_H
#define COMPRESS_PASSES_PASS_H

#include "passes/context.h"
#include "passes/properties.h"

/* What a pass promises about the function the model computes. */
typedef enum Exactness {
    PASS_EXACT,   /* equal up to rounding; checked on a seeded input after each run */
    PASS_BOUNDED, /* differs by an amount the pass reports */
    PASS_LOSSY    /* anything; training usually follows */
} Exactness;

typedef enum PassFlag {
    PASS_MEASURES = 1, /* may leave the model as it was */
    PASS_TRAINS = 2,   /* runs training */
    PASS_STREAMS =
        4 /* goes over data layer by layer, so that the model need not fit into memory
             (passes/oneshot/calibration.h); without data, all passes do */
} PassFlag;

typedef struct Pass {
    const char *name, *summary;
    const char *paper;  /* where the method is from, NULL = none */
    const char *origin; /* of a plug-in: what its results depend on (name, version and
                           hash), recorded in step keys and provenance; NULL = built in */
    const Field *fields;
    size_t options_size;
    const void *defaults;
    const char *data_options; /* options that name data sets, joined by '|'; or NULL */
    int flags;                /* OR of PassFlag */
    Exactness exactness;      /* the strongest that holds for every option */
    PassEffects effects; /* with default options; the pipeline refuses models that do not
                            fit, with run's message for it, if any */

    /* How options change the effects: if they choose layers or a stack, needs and
     * refusals of the whole model may be dropped. NULL = not at all. */
    void (*effects_of)(const void *options, PassEffects *effects);

    /* Checks options against each other, before any model is read. NULL = nothing to
     * check. Fails with STATUS_RECIPE, at an option if possible: see option_fail. */
    Status (*check)(const void *options, const StepSource *source, Diag *diag);

    /* Does the work. A model that does not fit gives STATUS_MODEL, at an option or the
     * step: step_fail_option, step_fail. */
    Status (*run)(PassContext *ctx, Model *model, const void *options, Diag *diag);
} Pass;

/* Pass by name, NULL when unknown. */
const Pass *pass_find(const char *name);

/* Reports with `status` that no pass is called `name`, with the nearest name as a
 * hint. */
Status pass_fail_unknown(const char *name, Status status, Loc at, const char *key,
                         Diag *diag);

/* All passes in the order of passes/passes.def, then the added ones, ended by NULL. */
const Pass *const *pass_list(void);

/* Adds a pass, which lives as long as the process, under a unique name. Not while
 * another thread looks at passes. */
void pass_add(const Pass *pass);

/* What a pass with these options needs and leaves. Every pass that trains refuses
 * quantised weights: training would silently turn them back into real numbers. */
PassEffects pass_effects(const Pass *pass, const void *options);

/* Printed name of an exactness: "exact", "bounded", "lossy". */
const char *exactness_name(Exactness exactness);

#endif
