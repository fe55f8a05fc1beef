/* Runs in short: see markdown.h. */
#include "session/page/markdown.h"

#include "session/page/markup.h"
#include "session/page/summary.h"

#include <math.h>
#include <string.h>

#define STEPS_MOST    60
#define WARNINGS_MOST 5

/* A cell's text that is ours, or a dash. */
static void add_cell(Text *text, const char *value) {
    text_add(text, " %s |", *value ? value : "\xe2\x80\x93");
}

/* How a run ended, when it is worth a line. */
static void add_ending(Text *text, Arena *arena, const Run *run) {
    const char *failure = summary_failure(run, arena), *status = summary_status(run);
    const Tree *warnings = run_list(run->document, "warnings");
    int count = 0;
    if (*run->status && strcmp(run->status, "done") != 0) {
        text_add(text, "> **%s**", *status ? status : "unknown status");
        if (*failure) text_add(text, ": ");
        markup_code(text, failure, 600);
        text_add(text, "\n\n");
    }
    for (const Tree *line = warnings ? warnings->first : NULL; line; line = line->next) {
        if (line->kind != TREE_STRING || count++ >= WARNINGS_MOST) continue;
        text_add(text, "> warning: ");
        markup_code(text, line->string, 300);
        text_add(text, "\n");
    }
    if (count > WARNINGS_MOST)
        text_add(text, "> and %d more warnings\n", count - WARNINGS_MOST);
    if (count) text_add(text, "\n");
}

static void add_numbers(Text *text, Arena *arena, const Run *run) {
    int count;
    const SummaryRow *rows = summary_rows(run, arena, &count);
    text_add(text, "| | before | after | change |\n|---|--:|--:|--:|\n");
    for (int i = 0; i < count; i++) {
        text_add(text, "| %s", rows[i].label);
        if (rows[i].data) {
            text_add(text, " on ");
            markup_code(text, rows[i].data, 30);
        }
        if (rows[i].step) text_add(text, ", step %d", rows[i].step);
        text_add(text, " |");
        add_cell(text, rows[i].before);
        add_cell(text, rows[i].after);
        add_cell(text, rows[i].change);
        text_add(text, "\n");
    }
    text_add(text, "\n");
}

/* The metric of a run after its steps, and its change. */
static void add_metric(Text *text, Arena *arena, const Run *run,
                       const RunMetricKind *kind) {
    int count;
    const RunMetric *metrics = run_metrics(run, arena, &count), *found = NULL;
    for (int i = 0; i < count; i++)
        if (metrics[i].kind == kind) found = &metrics[i];
    if (!found) {
        add_cell(text, "");
        return;
    }
    const MetricChange *change = &found->change;
    const double now = isnan(change->after) ? change->before : change->after;
    const char *delta = summary_delta(arena, kind, change);
    text_add(text, " %s%s%s%s |", summary_metric(arena, kind, now), *delta ? " (" : "",
             delta, *delta ? ")" : "");
}

/* "316,362 (1.91x smaller)". */
static void add_size(Text *text, Arena *arena, const char *after, double before,
                     double now) {
    const char *ratio = summary_ratio(arena, before, now, "\xc3\x97");
    if (!*ratio)
        add_cell(text, after);
    else
        text_add(text, " %s (%s) |", after, ratio);
}

static void add_runs(Text *text, Arena *arena, const Run *runs, int count) {
    const RunMetricKind *kind = NULL;
    for (int r = 0; r < count && !kind; r++) kind = run_main_metric(&runs[r]);
    text_add(text, "| run | status | parameters | weights | FLOPs |%s%s%s time |\n",
             kind ? " " : "", kind ? kind->title : "", kind ? " |" : "");
    text_add(text, "|---|---|--:|--:|--:|%s--:|\n", kind ? "--:|" : "");
    for (int r = 0; r < count; r++) {
        const Run *run = &runs[r];
        text_add(text, "| ");
        markup_code(text, run->name, 60);
        text_add(text, " |");
        add_cell(text, summary_status(run));
        add_size(text, arena, summary_count(arena, run->after.parameters),
                 run->before.parameters, run->after.parameters);
        add_size(text, arena, summary_bytes(arena, run->after.bytes), run->before.bytes,
                 run->after.bytes);
        add_size(text, arena, summary_flops(arena, run->after.flops), run->before.flops,
                 run->after.flops);
        if (kind) add_metric(text, arena, run, kind);
        add_cell(text, summary_seconds(arena, run->seconds));
        text_add(text, "\n");
    }
    text_add(text, "\n");
}

/* What a step measured, and on which data set where there are several. */
static void add_measured(Text *text, Arena *arena, const Run *run, const RunStep *step,
                         const RunMetricKind *kind) {
    const char *data = NULL;
    const double value = kind ? run_step_metric(step, kind, &data) : (double)NAN;
    if (isnan(value) || !run_measures_several(run)) {
        add_cell(text, isnan(value) ? "" : summary_metric(arena, kind, value));
        return;
    }
    text_add(text, " %s ", summary_metric(arena, kind, value));
    markup_code(text, data, 60);
    text_add(text, " |");
}

static void add_steps(Text *text, Arena *arena, const Run *run) {
    const RunMetricKind *kind = run_main_metric(run);
    if (run->count == 0) return;
    text_add(text, "<details><summary>%d steps</summary>\n\n", run->count);
    text_add(text,
             "| | step | parameters | FLOPs | %s | time |\n|--:|---|--:|--:|--:|"
             "--:|\n",
             kind ? kind->title : "");
    for (int i = 0; i < run->count && i < STEPS_MOST; i++) {
        const RunStep *step = &run->steps[i];
        text_add(text, "| %d | ", i + 1);
        markup_code(text, step->title, 60);
        text_add(text, "%s |", step->failed ? " did not hold" : "");
        add_cell(text, summary_count(arena, step->size.parameters));
        add_cell(text, summary_flops(arena, step->size.flops));
        add_measured(text, arena, run, step, kind);
        add_cell(text, step->reused ? "reused" : summary_seconds(arena, step->seconds));
        text_add(text, "\n");
    }
    if (run->count > STEPS_MOST)
        text_add(text, "\nand %d more\n", run->count - STEPS_MOST);
    text_add(text, "\n</details>\n\n");
}

/* Hashes in one line. */
static void add_hashes(Text *text, const Run *run) {
    const char *hash = tree_string(tree_get(run->document, "output"), "hash");
    const char *input = tree_string(tree_get(run->document, "input"), "hash");
    if (!input) input = tree_string(run->document, "input_hash");
    if (!hash && !input) return;
    text_add(text, "<sub>");
    if (input) text_add(text, "input ");
    if (input) markup_code(text, input, 64);
    if (input && hash) text_add(text, ", ");
    if (hash) text_add(text, "model ");
    if (hash) markup_code(text, hash, 64);
    text_add(text, "</sub>\n\n");
}

void markdown_page(Text *text, Arena *arena, const Run *runs, int count) {
    text_add(text, "### compress: ");
    if (count == 1)
        markup_code(text, runs[0].name, 80);
    else
        text_add(text, "%d %s", count, summary_noun(runs, count));
    text_add(text, "\n\n");
    if (count > 1) add_runs(text, arena, runs, count);
    for (int r = 0; r < count; r++) {
        const Tree *warnings = run_list(runs[r].document, "warnings");
        const bool speaks = *summary_failure(&runs[r], arena) ||
                            (warnings && warnings->first) || runs[r].count > 0;
        if (count > 1 && speaks) {
            text_add(text, "**");
            markup_code(text, runs[r].name, 80);
            text_add(text, "**\n\n");
        }
        add_ending(text, arena, &runs[r]);
        if (count == 1) add_numbers(text, arena, &runs[r]);
        add_steps(text, arena, &runs[r]);
        if (count == 1) add_hashes(text, &runs[r]);
    }
}
