/* Passes that another pass runs within its step: how a plug-in changes a graph. */
#ifndef COMPRESS_PASSES_PIPELINE_INNER_STEP_H
#define COMPRESS_PASSES_PIPELINE_INNER_STEP_H

#include "passes/pass.h"

/* Where a step's record lists them. */
#define INNER_STEPS_KEY "applied"

/* Runs the pass called `name` on the model of a step, with options as in a recipe (a
 * map, null or NULL), as a step would: bound, checked, verified. What it notes is
 * appended, with its options, to the list "applied" in the record of the step. Data sets
 * are those of the recipe. When planning, it is planned.
 *
 * Refused (STATUS_MODEL): passes that train or measure, whose state, snapshots and gates
 * belong to steps of their own, and passes of plug-ins. Other failures are those of the
 * options and of the pass, at the places in `options`. */
Status inner_step_run(PassContext *step, Model *model, const char *name,
                      const Tree *options, Diag *diag);

/* Adds to the latest error, of another pass or its options, a note which step applies
 * that pass. Returns `status`. */
Status inner_step_fail(const PassContext *step, Status status, Diag *diag);

#endif
