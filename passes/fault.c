/* Faults of steps: see fault.h. */
#include "passes/fault.h"

#include "exec/train/train_options.h"

#include <stdarg.h>
#include <string.h>

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

/* Keeps what is told of a gate; its texts may be the pass's. */
static void keep_gate(PassContext *ctx, const GateFault *fault) {
    GateFault *kept = ARENA_NEW(ctx->arena, GateFault);
    *kept = *fault;
    kept->metric = arena_strdup(ctx->arena, fault->metric);
    kept->bound = arena_strdup(ctx->arena, fault->bound);
    kept->detail = arena_strdup(ctx->arena, fault->detail);
    ctx->gate = kept;
}

Status step_fail_gate(PassContext *ctx, const GateFault *fault, Diag *diag) {
    const char *side = strncmp(fault->bound, "min", 3) == 0 ? "at least" : "at most";
    char expected[32], found[32];
    keep_gate(ctx, fault);
    snprintf(expected, sizeof expected, fault->whole ? "%.0f" : "%g", fault->expected);
    snprintf(found, sizeof found, fault->whole ? "%.0f" : "%.4f", fault->found);
    return option_fail(&ctx->source, fault->bound, STATUS_GATE, diag,
                       "gate: expected %s %s %s, found %s%s", fault->metric, side,
                       expected, found, fault->detail ? fault->detail : "");
}

Status step_fail_label(PassContext *ctx, Diag *diag, const Batches *data, int64_t sample,
                       int64_t classes, int32_t label) {
    step_fail(ctx, diag, "%s: %s: expected a label from 0 to %lld, found %d", data->name,
              batches_sample(ctx->arena, data, sample), (long long)classes - 1,
              (int)label);
    diag_hint(diag, "classes of the model: %lld", (long long)classes);
    return STATUS_MODEL;
}

void step_warn_unmatched(const PassContext *ctx, const Graph *graph, const char *option,
                         const StringList *patterns, Diag *diag) {
    for (int p = 0; p < patterns->count; p++) {
        bool found = false;
        for (int i = 0; i < graph->storage_count && !found; i++)
            found = name_matches(patterns->items[p], graph->storages[i]->name);
        if (!found)
            option_warn(&ctx->source, option, diag, "no weights are called \"%s\"",
                        patterns->items[p]);
    }
}
