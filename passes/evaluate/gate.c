/* gate: bounds on what a model takes; the run ends where one does not hold. */
#include "passes/evaluate/latency.h"
#include "passes/fault.h"
#include "passes/guess.h"
#include "passes/measure.h"

#include <math.h>

typedef struct GateOptions {
    double max[MEASURE_KINDS]; /* by MeasureKind; 0 = not given */
    double max_milliseconds;   /* likewise */
    int64_t runs;
} GateOptions;

#define G          GateOptions
#define SHARE_HELP "; up to 1: a share of the recipe's input model"
static const Field fields[] = {
    F_BOUND(G, max_parameters, max[MEASURE_PARAMETERS], FIELD_COUNTS,
            "most parameters, shared ones counted once" SHARE_HELP),
    F_BOUND(G, max_bytes, max[MEASURE_BYTES], FIELD_BYTES,
            "most bytes of the weights, as the model has them" SHARE_HELP),
    F_BOUND(G, max_flops, max[MEASURE_FLOPS], FIELD_COUNTS,
            "most FLOPs of one sample, a multiply-add being two" SHARE_HELP),
    F_BOUND(G, max_peak_bytes, max[MEASURE_PEAK_BYTES], FIELD_BYTES,
            "most memory of one sample's inference, its weights included" SHARE_HELP),
    F_REAL(G, max_milliseconds, 1e-6, 1e9,
           "most milliseconds of one sample on one thread, not asked when planning"),
    F_INT(G, runs, 1, 100000, "max_milliseconds: the median of so many runs counts"),
    F_END,
};

static const G defaults = {.runs = 25};

static Status gate_check(const void *opaque, const StepSource *source, Diag *diag) {
    const G *options = opaque;
    bool any = options->max_milliseconds > 0;
    for (int kind = 0; kind < MEASURE_KINDS; kind++) any |= options->max[kind] > 0;
    if (any) return STATUS_OK;
    return option_fail(source, NULL, STATUS_RECIPE, diag,
                       "expected at least one of max_parameters, max_bytes, max_flops, "
                       "max_peak_bytes and max_milliseconds, found none");
}

/* Measures the recipe's input model, when a bound is a share of it. */
static Status measure_input(Measure *out, PassContext *ctx, const G *options,
                            Diag *diag) {
    bool wanted = false;
    Model *input = NULL;
    for (int kind = 0; kind < MEASURE_KINDS; kind++)
        wanted |= options->max[kind] > 0 && measure_is_share(options->max[kind]);
    if (!wanted) return STATUS_OK;
    TRY(step_teacher(ctx, NULL, &input, diag));
    return model_measure(out, input, diag);
}

/* Whether the plan's sizes are guesses that a run may keep below the bound. */
static bool warn_guessed(PassContext *ctx, MeasureKind kind, const GateFault *fault,
                         Diag *diag) {
    /* memory is that of the widest layer */
    if (!ctx->guessed && (kind != MEASURE_PEAK_BYTES || !guess_any(ctx))) return false;
    const int digits = fault->whole ? 0 : 4;
    option_warn(&ctx->source, fault->bound, diag,
                "the plan guesses sizes, and by them %s is %.*f, above %.*f: the gate is "
                "asked again when the steps have run",
                fault->metric, digits, fault->found, digits, fault->expected);
    return true;
}

static Status check_size(PassContext *ctx, const G *options, MeasureKind kind,
                         const Measure *measure, const Measure *input, Diag *diag) {
    const double bound = options->max[kind], found = measure_get(measure, kind);
    const double whole = measure_get(input, kind);
    const char *name = measure_name(kind);
    if (bound <= 0) return STATUS_OK;
    GateFault fault = {.metric = name,
                       .bound = arena_printf(ctx->arena, "max_%s", name),
                       .expected = bound,
                       .found = found,
                       .whole = true};
    if (measure_is_share(bound)) {
        fault.metric = arena_printf(ctx->arena, "%s_share", name);
        fault.found = found / whole;
        fault.whole = false;
        fault.detail = arena_printf(ctx->arena, " (%.0f of %.0f)", found, whole);
        tree_put_real(ctx->arena, ctx->record, fault.metric, fault.found);
    }
    if (found <= measure_bound(bound, whole)) return STATUS_OK;
    return warn_guessed(ctx, kind, &fault, diag) ? STATUS_OK
                                                 : step_fail_gate(ctx, &fault, diag);
}

static Status check_time(PassContext *ctx, Model *model, const G *options, Diag *diag) {
    if (options->max_milliseconds <= 0) return STATUS_OK;
    step_uses_clock(ctx);
    if (ctx->plan) return STATUS_OK;
    GateFault fault = {.metric = "milliseconds",
                       .bound = "max_milliseconds",
                       .expected = options->max_milliseconds};
    TRY(model_latency(&fault.found, model, options->runs, ctx->watch, diag));
    tree_put_real(ctx->arena, ctx->times, "milliseconds_per_sample", fault.found);
    if (fault.found <= fault.expected) return STATUS_OK;
    return step_fail_gate(ctx, &fault, diag);
}

static Status gate_run(PassContext *ctx, Model *model, const void *opaque, Diag *diag) {
    const G *options = opaque;
    Measure measure, input = {0};
    TRY(measure_input(&input, ctx, options, diag));
    TRY(model_measure(&measure, model, diag));
    for (int kind = 0; kind < MEASURE_KINDS; kind++)
        TRY(check_size(ctx, options, (MeasureKind)kind, &measure, &input, diag));
    return check_time(ctx, model, options, diag);
}

const Pass pass_gate = {
    .name = "gate",
    .summary = "hold the model against bounds on size, FLOPs, memory and time",
    .fields = fields,
    .options_size = sizeof(GateOptions),
    .defaults = &defaults,
    .flags = PASS_MEASURES,
    .exactness = PASS_EXACT,
    .check = gate_check,
    .run = gate_run,
};
