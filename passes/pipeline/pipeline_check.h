/* Checks that the pipeline makes before and after a step. Private to the pipeline. */
#ifndef COMPRESS_PASSES_PIPELINE_PIPELINE_CHECK_H
#define COMPRESS_PASSES_PIPELINE_PIPELINE_CHECK_H

#include "passes/pass.h"

/* Fails if the model lacks what the step's pass needs with these options, or has what it
 * refuses: before anything is done, from shapes only, with the pass's own message or
 * else one from its declaration. */
Status check_fits(const PassContext *ctx, Model *model, const void *options, Diag *diag);

/* Runs both models in double precision on the same seeded input and compares the outputs
 * that both have. Linear layers that round their inputs to 8 bits read real numbers
 * meanwhile: the promise is about the function without that rounding. Fails with
 * STATUS_INTERNAL, naming `pass` and the numbers, when an output differs by more than
 * 1e-5 of its largest value. */
Status check_exactness(Model *before, Model *after, const char *pass, uint64_t seed,
                       Diag *diag);

/* Checks graph and weights after a step; the weights only when `weights` is set. */
Status check_model(Model *model, const char *pass, bool weights, Diag *diag);

#endif
