/* Faults of steps: see fault.h. */
#include "passes/fault.h"

#include <stdarg.h>

Status step_fail(PassContext *ctx, Diag *diag, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    option_fail_list(&ctx->source, NULL, STATUS_MODEL, diag, fmt, args);
    va_end(args);
    return STATUS_MODEL;
}

Status step_fail_option(PassContext *ctx, const char *options, Diag *diag,
                        const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    option_fail_list(&ctx->source, options, STATUS_MODEL, diag, fmt, args);
    va_end(args);
    return STATUS_MODEL;
}

Status step_fail_label(PassContext *ctx, Diag *diag, const Batches *data, int64_t sample,
                       int64_t classes, int32_t label) {
    step_fail(ctx, diag, "%s: sample %lld: expected a label from 0 to %lld, found %d",
              data->name, (long long)sample, (long long)classes - 1, (int)label);
    diag_hint(diag, "classes of the model: %lld", (long long)classes);
    return STATUS_MODEL;
}
