/* Faults of steps: a model or data set that does not fit, reported at its place in the
 * recipe. */
#ifndef COMPRESS_PASSES_FAULT_H
#define COMPRESS_PASSES_FAULT_H

#include "passes/pass.h"

/* Reports that the model does not fit this pass, at the step's place. */
Status step_fail(PassContext *ctx, Diag *diag, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same at an option's place, or that of the last given of several joined by '|': see
 * option_fail. */
Status step_fail_option(PassContext *ctx, const char *options, Diag *diag,
                        const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Reports a gate that does not hold at the option's place, and leaves a copy of it in
 * ctx->gate. Returns STATUS_GATE. */
Status step_fail_gate(PassContext *ctx, const GateFault *fault, Diag *diag);

/* Reports a label of a data set that is not one of the model's classes. */
Status step_fail_label(PassContext *ctx, Diag *diag, const Batches *data, int64_t sample,
                       int64_t classes, int32_t label);

/* Warns at an option about each of its name patterns (name_matches) that matches no
 * weights of the graph. */
void step_warn_unmatched(const PassContext *ctx, const Graph *graph, const char *option,
                         const StringList *patterns, Diag *diag);

#endif
