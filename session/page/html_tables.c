/* Tables of pages: the steps of a run, and its provenance. See html.h. */
#include "session/page/html.h"

#include "session/page/markup.h"
#include "session/page/summary.h"

#include <math.h>
#include <string.h>

#define OPTIONS_MOST  60    /* of a step */
#define DOCUMENT_MOST 40000 /* bytes of a recipe that are shown */
#define SETS_MOST     20

/* ---- steps ---- */

/* A value as one line of JSON, of at most `most` characters. */
static void add_value(Text *text, const Tree *value, int most) {
    Text json = {0};
    tree_print_json(&json, value, 0);
    markup_clip(text, json.data ? json.data : "", most);
    text_free(&json);
}

/* What the step was asked for, folded; options that are null are left out. */
static void add_options(Text *text, const RunStep *step) {
    int count = 0;
    if (!step->options || !step->options->first) return;
    text_add(text, "<dl>");
    for (const Tree *option = step->options->first; option; option = option->next) {
        if (option->kind == TREE_NULL || count++ >= OPTIONS_MOST) continue;
        text_add(text, "<dt>");
        markup_clip(text, option->key, 60);
        text_add(text, "</dt><dd><code>");
        add_value(text, option, RUN_TEXT_MOST);
        text_add(text, "</code></dd>");
    }
    text_add(text, "</dl>");
}

/* The best value on a development set, of a step that kept its weights. */
static void add_best(Text *text, const Tree *best) {
    const char *metric = tree_string(best, "metric");
    const double value = run_number(best, "value"), step = run_number(best, "step");
    if (!metric || !(fabs(value) < 1e12) || !(step >= 0 && step < 1e12)) return;
    text_add(text, "<small>best ");
    markup_clip(text, metric, 40);
    text_add(text, " %.4g, step %.0f</small>", value, step);
}

/* The number by which a step tells its worth; none = an empty cell. */
static void add_worth(Text *text, Arena *arena, const Run *run, const RunStep *step,
                      const RunMetricKind *kind) {
    const char *data = NULL;
    const double value = kind ? run_step_metric(step, kind, &data) : (double)NAN;
    const double share = run_number(step->record, "flops_share");
    const double loss = run_number(step->record, "last_loss");
    text_add(text, "<td class=\"num\">");
    if (!isnan(value))
        text_add(text, "%s", summary_metric(arena, kind, value));
    else if (!isnan(loss) && fabs(loss) < 1e6)
        text_add(text, "<small>loss %.4f</small>", loss);
    if (!isnan(value) && run_measures_several(run)) {
        text_add(text, "<small>");
        markup_clip(text, data, 60);
        text_add(text, "</small>");
    }
    add_best(text, tree_get(step->record, "best"));
    if (share >= 0 && share < 1e3)
        text_add(text, "<small>at %.1f %% of the FLOPs</small>", 100 * share);
    text_add(text, "</td>");
}

/* A cell that is empty where the number is as it was. */
static void add_size(Text *text, const char *shown, double before, double after,
                     const char *classes) {
    text_add(text, "<td class=\"num%s\">%s</td>", classes, before == after ? "" : shown);
}

static void add_step(Text *text, Arena *arena, const Run *run, int index,
                     const RunMetricKind *kind) {
    const RunStep *step = &run->steps[index];
    const RunSize before = index > 0 ? run->steps[index - 1].size : run->before;
    text_add(text, "<tr><td class=\"num muted\">%d</td><td><details><summary>",
             index + 1);
    markup_clip(text, step->title, 90);
    if (step->failed) text_add(text, " <span class=\"badge bad\">did not hold</span>");
    text_add(text, "</summary>");
    add_options(text, step);
    text_add(text, "</details></td>");
    add_size(text, summary_count(arena, step->size.parameters), before.parameters,
             step->size.parameters, "");
    add_size(text, summary_bytes(arena, step->size.bytes), before.bytes, step->size.bytes,
             " wide");
    add_size(text, summary_flops(arena, step->size.flops), before.flops, step->size.flops,
             " wide");
    add_worth(text, arena, run, step, kind);
    text_add(text, "<td class=\"num wide\">%s</td></tr>\n",
             step->reused ? "reused" : summary_seconds(arena, step->seconds));
}

void html_steps(Text *text, Arena *arena, const Run *run) {
    const RunMetricKind *kind = run_main_metric(run);
    text_add(text,
             "<table><thead><tr><th></th><th>step</th><th class=\"num\">parameters"
             "</th><th class=\"num wide\">weights</th><th class=\"num wide\">FLOPs"
             "</th><th class=\"num\">%s</th><th class=\"num wide\">time</th></tr>"
             "</thead><tbody>\n",
             kind ? kind->title : "");
    if (!isnan(run->before.parameters))
        text_add(text,
                 "<tr><td class=\"num muted\">0</td><td>input</td><td class=\"num\">%s"
                 "</td><td class=\"num wide\">%s</td><td class=\"num wide\">%s</td><td>"
                 "</td><td class=\"wide\"></td></tr>\n",
                 summary_count(arena, run->before.parameters),
                 summary_bytes(arena, run->before.bytes),
                 summary_flops(arena, run->before.flops));
    for (int i = 0; i < run->count; i++) add_step(text, arena, run, i, kind);
    text_add(text, "</tbody></table>");
    const Tree *steps = run_list(run->document, "steps");
    if (steps && steps->count > run->count)
        text_add(text, "<p class=\"muted\">%d further steps are left out.</p>",
                 steps->count - run->count);
}

/* ---- provenance ---- */

/* Adds a row, if there is anything to say. */
static void add_row(Text *text, const char *title, const char *value, bool code) {
    if (!value || !*value) return;
    text_add(text, "<dt>%s</dt><dd>%s", title, code ? "<code>" : "");
    markup_clip(text, value, 400);
    text_add(text, "%s</dd>", code ? "</code>" : "");
}

static void add_number(Text *text, Arena *arena, const char *title, double value) {
    if (fabs(value) < 1e15) add_row(text, title, arena_printf(arena, "%.15g", value), 0);
}

/* "compress 0.1.0", of a map with name and version. */
static const char *tool_text(Arena *arena, const Tree *tool) {
    const char *name = tree_string(tool, "name"), *version = tree_string(tool, "version");
    if (!version) return name;
    return arena_printf(arena, "%.60s %.60s", name ? name : "", version);
}

/* "AMD EPYC, 2 cores, x86_64". */
static const char *host_text(Arena *arena, const Tree *host) {
    const char *model = tree_string(host, "model");
    const char *architecture = tree_string(host, "architecture");
    const double cores = run_number(host, "cores");
    if (!model && !architecture) return NULL;
    return arena_printf(
        arena, "%.100s%s%s%s%.40s", model ? model : "", model && cores > 0 ? ", " : "",
        cores > 0 && cores < 1e6 ? arena_printf(arena, "%.0f cores", cores) : "",
        (model || cores > 0) && architecture ? ", " : "",
        architecture ? architecture : "");
}

static void add_sets(Text *text, const Tree *sets) {
    int count = 0;
    for (const Tree *set = sets && sets->kind == TREE_MAP ? sets->first : NULL;
         set && count < SETS_MOST; set = set->next, count++) {
        const double samples = run_number(set, "samples");
        const char *format = tree_string(set, "format"), *hash = tree_string(set, "hash");
        text_add(text, "<dt>data: ");
        markup_clip(text, set->key, 40);
        text_add(text, "</dt><dd>");
        markup_clip(text, format ? format : "", 40);
        if (samples >= 0 && samples < 1e15)
            text_add(text, "%s%.0f samples", format ? ", " : "", samples);
        if (hash) {
            text_add(text, " <code>");
            markup_clip(text, hash, 80);
            text_add(text, "</code>");
        }
        text_add(text, "</dd>");
    }
}

static void add_files(Text *text, Arena *arena, const Tree *files) {
    int count = 0;
    for (const Tree *file = files ? files->first : NULL; file && count < SETS_MOST;
         file = file->next, count++) {
        const char *path = tree_string(file, "path"), *dtype = tree_string(file, "dtype");
        const char *format = tree_string(file, "format");
        if (!path) continue;
        text_add(text, "<dt>written</dt><dd><code>");
        markup_clip(text, path, 300);
        text_add(text, "</code> ");
        markup_clip(text, format ? format : "", 40);
        if (dtype && strcmp(dtype, "keep") != 0) {
            text_add(text, ", ");
            markup_clip(text, dtype, 40);
        }
        const double size = run_number(file, "bytes");
        const char *bytes = size >= 0 ? summary_bytes(arena, size) : "";
        text_add(text, "%s%s</dd>", *bytes ? ", " : "", bytes);
    }
}

/* The recipe as it ran, folded. */
static void add_recipe(Text *text, const Tree *recipe) {
    Text json = {0};
    if (!recipe || recipe->kind != TREE_MAP) return;
    tree_print_json(&json, recipe, 2);
    text_add(text, "<details><summary>The recipe as it ran</summary><pre>");
    markup_clip(text, json.data, DOCUMENT_MOST);
    text_add(text, "</pre></details>\n");
    text_free(&json);
}

void html_provenance(Text *text, Arena *arena, const Run *run) {
    const Tree *document = run->document;
    const Tree *recipe = tree_get(document, "recipe"),
               *input = tree_get(document, "input");
    const Tree *output = tree_get(document, "output");
    const Tree *resolved = tree_get(recipe, "resolved");
    text_add(text, "<dl>");
    add_row(text, run->is_model ? "model" : "report", run->file, true);
    if (!run->is_model) add_row(text, "recipe", tree_string(recipe, "path"), true);
    add_row(text, "name", tree_string(recipe, "name"), false);
    add_row(text, "tool", tool_text(arena, tree_get(document, "tool")), false);
    add_row(text, "input", tree_string(input, "path"), true);
    add_row(text, "input's hash", tree_string(input, "hash"), true);
    add_row(text, "input's hash", tree_string(document, "input_hash"), true);
    add_sets(text, tree_get(document, "data"));
    add_files(text, arena, run_list(output, "files"));
    add_row(text, "output's hash", tree_string(output, "hash"), true);
    add_number(text, arena, "seed", run_number(document, "seed"));
    add_number(text, arena, "threads", run_number(document, "threads"));
    add_number(text, arena, "ranks", run_number(document, "ranks"));
    add_row(text, "kernels", tree_string(document, "processor"), false);
    add_row(text, "machine", host_text(arena, tree_get(document, "host")), false);
    add_row(text, "peak memory",
            summary_bytes(arena, run_number(document, "peak_memory")), false);
    text_add(text, "</dl>\n");
    add_recipe(text, resolved ? resolved : run->is_model ? recipe : NULL);
}
