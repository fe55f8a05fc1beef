/* Soft targets: the attributes of losses between the predictions of a student and of a
 * teacher. To be included only by the file of such an op. */
#ifndef COMPRESS_EXEC_OPS_SOFT_TARGETS_H
#define COMPRESS_EXEC_OPS_SOFT_TARGETS_H

#include "exec/ops.h"

static const Field SOFT_FIELDS[] = {
    F_REAL(SoftCrossEntropyAttrs, temperature, 1e-3, 1e6, "divides both logits"),
    F_BOOL(SoftCrossEntropyAttrs, kl, "subtract the teacher's entropy from the value"),
    F_END,
};

static const SoftCrossEntropyAttrs SOFT_DEFAULTS = {.temperature = 1};

/* Fails if a recipe or file gives a temperature that nothing can be divided by. */
static inline Status soft_infer_temperature(const Node *node, Diag *diag) {
    const double temperature = ((const SoftCrossEntropyAttrs *)node->attrs)->temperature;
    if (temperature > 0 && temperature < INFINITY) return STATUS_OK;
    return infer_fail_attr(node, "temperature", diag, "a number above 0, found %g",
                           temperature);
}

#endif
