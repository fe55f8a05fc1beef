/* A run's numbers before and after: see summary.h. */
#include "session/page/summary.h"

#include "session/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MINUS "\xe2\x88\x92"

/* A size as an integer; sizes of reports may be any number. */
static int64_t whole(double value) {
    if (value < 0) return 0;
    return value < 9e18 ? (int64_t)value : INT64_MAX;
}

const char *summary_count(Arena *arena, double value) {
    return isnan(value) ? "" : text_grouped(arena, whole(value));
}

const char *summary_bytes(Arena *arena, double value) {
    return isnan(value) ? "" : text_size(arena, whole(value));
}

const char *summary_flops(Arena *arena, double value) {
    return isnan(value) ? "" : text_flops(arena, value);
}

const char *summary_seconds(Arena *arena, double value) {
    if (!(value >= 0) || value > 1e9) return "";
    return text_seconds(arena, value);
}

const char *summary_metric(Arena *arena, const RunMetricKind *kind, double value) {
    if (isnan(value)) return "";
    if (fabs(value) >= 1e6) return arena_printf(arena, "%.4g", value);
    return kind->percent ? arena_printf(arena, "%.2f %%", value)
                         : arena_printf(arena, "%.4f", value);
}

const char *summary_delta(Arena *arena, const RunMetricKind *kind,
                          const MetricChange *change) {
    const double delta = change->change;
    if (change->unlike) return change->unlike;
    if (isnan(delta)) return "";
    const char *sign = delta < 0 ? MINUS : "+";
    if (fabs(delta) >= 1e6) return arena_printf(arena, "%s%.4g", sign, fabs(delta));
    return arena_printf(arena, kind->percent ? "%s%.2f" : "%s%.4f", sign, fabs(delta));
}

const char *summary_ratio(Arena *arena, double before, double after, const char *times) {
    if (!(before > 0) || !(after > 0)) return "";
    const double ratio = before / after;
    if (before == after) return "same";
    if (ratio > 0.995 && ratio < 1.005)
        return arena_printf(arena, "%.2g %% %s", 100 * fabs(after / before - 1),
                            ratio > 1 ? "smaller" : "larger");
    const double size = ratio > 1 ? ratio : 1 / ratio;
    if (size > 1e6) return "";
    return arena_printf(arena, size >= 100 ? "%.0f%s %s" : "%.2f%s %s", size, times,
                        ratio > 1 ? "smaller" : "larger");
}

/* Adds a row of a size, if anything is known of it. */
static void add_size(SummaryRow *rows, int *count, Arena *arena, const char *label,
                     double before, double after,
                     const char *(*print)(Arena *arena, double value)) {
    if (isnan(before) && isnan(after)) return;
    const double share = before > 0 ? after / before : (double)NAN;
    rows[(*count)++] =
        (SummaryRow){.label = label,
                     .before = print(arena, before),
                     .after = print(arena, after),
                     .change = summary_ratio(arena, before, after, "\xc3\x97"),
                     .share = share,
                     .verdict = share < 0.995   ? VERDICT_BETTER
                                : share > 1.005 ? VERDICT_WORSE
                                                : VERDICT_NONE};
}

static void add_metric(SummaryRow *rows, int *count, Arena *arena,
                       const RunMetric *metric) {
    const MetricChange *change = &metric->change;
    const double better = metric->kind->lower ? -change->change : change->change;
    rows[(*count)++] =
        (SummaryRow){.label = metric->kind->title,
                     .data = metric->data,
                     .step = change->step,
                     .before = summary_metric(arena, metric->kind, change->before),
                     .after = summary_metric(arena, metric->kind, change->after),
                     .change = summary_delta(arena, metric->kind, change),
                     .share = NAN,
                     .verdict = better > 0   ? VERDICT_BETTER
                                : better < 0 ? VERDICT_WORSE
                                             : VERDICT_NONE};
}

/* FLOPs that the last evaluation took where samples left early; NAN = none did. */
static double early_flops(const Run *run) {
    double flops = NAN;
    for (int i = 0; i < run->count; i++)
        if (strcmp(run->steps[i].pass, "evaluate") == 0 &&
            !isnan(run_number(run->steps[i].record, "flops_share")))
            flops = run_step_flops(&run->steps[i]);
    return flops;
}

SummaryRow *summary_rows(const Run *run, Arena *arena, int *count) {
    int metrics;
    const RunMetric *measured = run_metrics(run, arena, &metrics);
    SummaryRow *rows = ARENA_ARRAY(arena, SummaryRow, (size_t)metrics + 6);
    *count = 0;
    add_size(rows, count, arena, "parameters", run->before.parameters,
             run->after.parameters, summary_count);
    add_size(rows, count, arena, "weights", run->before.bytes, run->after.bytes,
             summary_bytes);
    add_size(rows, count, arena, "on disk", run->file_before, run->file_after,
             summary_bytes);
    add_size(rows, count, arena, "FLOPs of a sample", run->before.flops, run->after.flops,
             summary_flops);
    if (!isnan(early_flops(run)))
        add_size(rows, count, arena, "FLOPs, leaving early", run->before.flops,
                 early_flops(run), summary_flops);
    for (int i = 0; i < metrics; i++) add_metric(rows, count, arena, &measured[i]);
    if (!isnan(run->seconds))
        rows[(*count)++] = (SummaryRow){.label = "time of the run",
                                        .before = "",
                                        .after = summary_seconds(arena, run->seconds),
                                        .change = "",
                                        .share = NAN};
    return rows;
}

const char *summary_noun(const Run *runs, int count) {
    bool models = true;
    for (int i = 0; i < count; i++) models &= runs[i].is_model;
    if (models) return count == 1 ? "model" : "models";
    return count == 1 ? "run" : "runs";
}

const char *summary_status(const Run *run) {
    if (strcmp(run->status, "done") == 0) return "done";
    if (strcmp(run->status, "gate") == 0) return "stopped by a gate";
    if (strcmp(run->status, "error") == 0) return "failed";
    if (strcmp(run->status, "interrupted") == 0) return "interrupted";
    return run->is_model ? "model" : "";
}

/* "gate of step 3: accuracy must be at least 80, it is 78.2". */
static const char *gate_text(Arena *arena, const Tree *gate) {
    const char *metric = tree_string(gate, "metric"), *bound = tree_string(gate, "bound");
    const double step = run_number(gate, "step");
    const double expected = run_number(gate, "expected");
    const double found = run_number(gate, "found");
    if (isnan(expected) || isnan(found)) return "";
    const bool least = bound && strncmp(bound, "min", 3) == 0;
    const bool most = bound && strncmp(bound, "max", 3) == 0;
    return arena_printf(
        arena, "Gate%s: %.100s must be %s%s %.6g, it is %.6g.",
        step > 0 ? arena_printf(arena, " of step %.6g", step) : "",
        metric ? metric : "it",
        least  ? "at least"
        : most ? "at most"
               : "within",
        least || most ? ""
                      : arena_printf(arena, " %.40s", bound ? bound : "its bound of"),
        expected, found);
}

const char *summary_failure(const Run *run, Arena *arena) {
    const Tree *error = tree_get(run->document, "error");
    const char *gate = gate_text(arena, tree_get(run->document, "gate"));
    const char *message = tree_string(error, "message"),
               *hint = tree_string(error, "hint");
    const char *file = tree_string(error, "file"), *key = tree_string(error, "key");
    const double line = run_number(error, "line");
    if (*gate) return gate;
    if (!message) return "";
    return arena_printf(arena, "%s%s%s%.600s%s%.300s",
                        file ? arena_printf(arena, "%.200s", file) : "",
                        !file      ? ""
                        : line > 0 ? arena_printf(arena, ":%.9g: ", line)
                                   : ": ",
                        key ? arena_printf(arena, "%.100s: ", key) : "", message,
                        hint ? ". " : "", hint ? hint : "");
}
