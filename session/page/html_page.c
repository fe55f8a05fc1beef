/* The page of runs: see html.h. */
#include "session/page/html.h"

#include "session/page/html_style.h"
#include "session/page/markup.h"
#include "session/page/palette.h"
#include "session/page/summary.h"
#include "session/page/svg.h"

#include <math.h>
#include <string.h>

#define TILED_RUNS    2  /* of more runs the table is enough */
#define WARNINGS_MOST 20 /* of a run */
#define TILES_MOST    12

/* A page being written. */
typedef struct Page {
    Text *text;
    Arena *arena;
    const Figures *figures;
    int ids; /* of pictures, so far */
} Page;

/* Headings of the groups of pictures. */
static const struct Group {
    const char *id, *title, *lead;
} groups[FIGURE_GROUPS] = {
    {"structure", "Structure",
     "The layers after every step that changed them, from the input on."},
    {"trade", "Worth and cost", "What the models are worth against what they cost."},
    {"training", "Training",
     "All training steps of a run, one behind the other; a gap stands between them."},
    {"importance", "Importance",
     "What heads and feed-forward units are worth to the loss: the fuller the colour, the "
     "more."},
    {"diagnosis", "Diagnosis", "What the weights and layers are like inside."},
};

/* ---- small parts ---- */

static const char *runs_noun(const Figures *figures) {
    return summary_noun(figures->runs, figures->run_count);
}

static const char *summary_title(const Figures *figures) {
    if (figures->run_count <= TILED_RUNS) return "Before and after";
    return *runs_noun(figures) == 'm' ? "Models" : "Runs";
}

static void add_dot(const Page *page, const Run *run) {
    const int color = (int)(run - page->figures->runs) % PALETTE_COLORS;
    if (page->figures->run_count > 1)
        text_add(page->text, "<span class=\"dot b%d\"></span>", color);
}

static void add_badge(const Page *page, const Run *run) {
    const char *status = summary_status(run);
    const bool done = strcmp(run->status, "done") == 0;
    if (!*status) return;
    text_add(page->text, "<span class=\"badge%s\">%s</span>",
             done           ? " good"
             : *run->status ? " bad"
                            : "",
             status);
}

/* A run's name with its colour and what became of it. */
static void add_run_name(const Page *page, const Run *run, const char *element) {
    text_add(page->text, "<div class=\"run\">");
    add_dot(page, run);
    text_add(page->text, "<%s>", element);
    markup_clip(page->text, run->name, 80);
    text_add(page->text, "</%s>", element);
    add_badge(page, run);
    text_add(page->text, "</div>");
}

static void add_section(const Page *page, const char *id, const char *title,
                        const char *lead) {
    text_add(page->text, "\n<section id=\"%s\"><h2>%s</h2>", id, title);
    if (lead) text_add(page->text, "<p>%s</p>", lead);
    text_add(page->text, "\n");
}

/* How a run failed. */
static void add_failure(const Page *page, const Run *run) {
    const char *failure = summary_failure(run, page->arena);
    if (!*failure) return;
    text_add(page->text, "<p class=\"call\">");
    markup_clip(page->text, failure, 1200);
    text_add(page->text, "</p>\n");
}

/* What it warned of. */
static void add_warnings(const Page *page, const Run *run) {
    Text *text = page->text;
    const Tree *warnings = run_list(run->document, "warnings");
    if (!warnings || !warnings->first) return;
    text_add(text, "<div class=\"call warn\"><ul>");
    int count = 0;
    for (const Tree *line = warnings->first; line; line = line->next) {
        if (line->kind != TREE_STRING) continue;
        if (count++ == WARNINGS_MOST) break;
        text_add(text, "<li>");
        markup_clip(text, line->string, 400);
        text_add(text, "</li>");
    }
    if (warnings->count > WARNINGS_MOST)
        text_add(text, "<li>and %d more</li>", warnings->count - WARNINGS_MOST);
    text_add(text, "</ul></div>\n");
}

/* ---- before and after ---- */

/* A bar whose full length is the number before. */
static void add_share(Text *text, double share) {
    const double width = fmax(0.5, fmin(100, 100 * share));
    text_add(text, "<svg viewBox=\"0 0 100 6\" preserveAspectRatio=\"none\" "
                   "aria-hidden=\"true\"><rect class=\"k\" width=\"100\" height=\"6\" "
                   "rx=\"1\"/><rect class=\"f0\" height=\"6\" rx=\"1\"");
    svg_attribute(text, "width", width);
    text_add(text, "/></svg>");
}

static void add_change(Text *text, const SummaryRow *row) {
    if (!*row->change) return;
    text_add(text, "<span class=\"%s\">",
             row->verdict == VERDICT_BETTER  ? "up"
             : row->verdict == VERDICT_WORSE ? "down"
                                             : "same");
    markup_text(text, row->change);
    text_add(text, "</span>");
}

static void add_tile(Text *text, const SummaryRow *row) {
    text_add(text, "<div class=\"tile\"><div class=\"k\">");
    markup_text(text, row->label);
    if (row->data) {
        text_add(text, " on ");
        markup_clip(text, row->data, 30);
    }
    if (row->step) text_add(text, ", step %d", row->step);
    text_add(text, "</div><div class=\"v\">");
    markup_text(text, *row->after    ? row->after
                      : *row->before ? row->before
                                     : "\xe2\x80\x93");
    text_add(text, "</div><div class=\"d\">");
    add_change(text, row);
    text_add(text, "</div><div class=\"d\">");
    if (*row->before && *row->after) {
        text_add(text, "from ");
        markup_text(text, row->before);
    } else if (*row->before) {
        text_add(text, "of the input");
    }
    text_add(text, "</div>");
    if (!isnan(row->share)) {
        text_add(text, "<div class=\"gap\"></div>");
        add_share(text, row->share);
    }
    text_add(text, "</div>\n");
}

static void add_tiles(const Page *page, const Run *run) {
    int count;
    const SummaryRow *rows = summary_rows(run, page->arena, &count);
    text_add(page->text, "<div class=\"tiles\">\n");
    for (int i = 0; i < count && i < TILES_MOST; i++) add_tile(page->text, &rows[i]);
    text_add(page->text, "</div>\n");
}

/* A cell of a size after the run, and how it compares. */
static void add_size_cell(const Page *page, const char *after, double before, double now,
                          const char *classes) {
    const char *ratio = summary_ratio(page->arena, before, now, "\xc3\x97");
    text_add(page->text, "<td class=\"num%s\">%s", classes, after);
    if (*ratio) text_add(page->text, "<small>%s</small>", ratio);
    text_add(page->text, "</td>");
}

/* The metric that a table of runs compares; NULL = none. */
static const RunMetricKind *table_kind(const Figures *figures) {
    for (int r = 0; r < figures->run_count; r++)
        if (run_main_metric(&figures->runs[r])) return run_main_metric(&figures->runs[r]);
    return NULL;
}

static void add_metric_cell(const Page *page, const Run *run, const RunMetricKind *kind) {
    int count;
    const RunMetric *metrics = run_metrics(run, page->arena, &count), *found = NULL;
    for (int i = 0; i < count; i++)
        if (metrics[i].kind == kind) found = &metrics[i];
    text_add(page->text, "<td class=\"num\">");
    if (found) {
        const MetricChange *change = &found->change;
        const double now = isnan(change->after) ? change->before : change->after;
        text_add(page->text, "%s", summary_metric(page->arena, kind, now));
        const char *delta = summary_delta(page->arena, kind, change);
        if (*delta) text_add(page->text, "<small>%s</small>", delta);
    }
    text_add(page->text, "</td>");
}

/* All runs in one table. */
static void add_runs(const Page *page) {
    Text *text = page->text;
    const Figures *figures = page->figures;
    const RunMetricKind *kind = table_kind(figures);
    text_add(text, "<div class=\"card table\"><table><thead><tr><th>run</th><th "
                   "class=\"num\">parameters</th><th class=\"num wide\">weights</th><th "
                   "class=\"num wide\">FLOPs</th>");
    if (kind) text_add(text, "<th class=\"num\">%s</th>", kind->title);
    text_add(text, "<th class=\"num wide\">time</th></tr></thead><tbody>\n");
    for (int r = 0; r < figures->run_count; r++) {
        const Run *run = &figures->runs[r];
        text_add(text, "<tr><td>");
        add_run_name(page, run, "b");
        text_add(text, "</td>");
        add_size_cell(page, summary_count(page->arena, run->after.parameters),
                      run->before.parameters, run->after.parameters, "");
        add_size_cell(page, summary_bytes(page->arena, run->after.bytes),
                      run->before.bytes, run->after.bytes, " wide");
        add_size_cell(page, summary_flops(page->arena, run->after.flops),
                      run->before.flops, run->after.flops, " wide");
        if (kind) add_metric_cell(page, run, kind);
        text_add(text, "<td class=\"num wide\">%s</td></tr>\n",
                 summary_seconds(page->arena, run->seconds));
    }
    text_add(text, "</tbody></table></div>\n");
}

static void add_summary(const Page *page) {
    const Figures *figures = page->figures;
    const bool tiles = figures->run_count <= TILED_RUNS;
    add_section(page, "summary", summary_title(figures), NULL);
    if (!tiles) add_runs(page);
    for (int r = 0; r < figures->run_count; r++) {
        const Run *run = &figures->runs[r];
        const Tree *warnings = run_list(run->document, "warnings");
        const bool speaks =
            *summary_failure(run, page->arena) || (warnings && warnings->first);
        if (!tiles && !speaks) continue;
        text_add(page->text, "<div>");
        if (figures->run_count > 1) add_run_name(page, run, "h3");
        add_failure(page, run);
        if (tiles) add_tiles(page, run);
        add_warnings(page, run);
        text_add(page->text, "</div>\n");
    }
    text_add(page->text, "</section>\n");
}

/* ---- pictures ---- */

static void add_figure(Page *page, const Figure *figure, bool card) {
    Text *text = page->text;
    text_add(text, "<figure%s><figcaption>", card ? " class=\"card\"" : "");
    markup_clip(text, figure->title, 90);
    if (figure->outline && figure->note) {
        text_add(text, "<small>");
        markup_text(text, figure->note);
        text_add(text, " parameters</small>");
    }
    if (figure->run && card) {
        text_add(text, "<small><span class=\"dot b%d\"></span> ",
                 figure->run_color % PALETTE_COLORS);
        markup_clip(text, figure->run, 60);
        text_add(text, "</small>");
    }
    text_add(text, "</figcaption>");
    figure_inline(text, figure, ++page->ids);
    if (!figure->outline && figure->note) {
        text_add(text, "<p class=\"note\">");
        markup_text(text, figure->note);
        text_add(text, "</p>");
    }
    text_add(text, "</figure>\n");
}

/* What the boxes of outlines stand for, as far as some outline has them. */
static void add_key(const Page *page) {
    bool cross = false, shared = false, exits = false;
    for (int i = 0; i < page->figures->count; i++) {
        const Outline *outline = page->figures->items[i].outline;
        for (int s = 0; outline && s < outline->count; s++)
            for (int l = 0; l < outline->stacks[s].count; l++) {
                cross |= outline->stacks[s].layers[l].cross_heads > 0;
                shared |= outline->stacks[s].layers[l].shares >= 0;
                exits |= outline->stacks[s].layers[l].exit;
            }
    }
    text_add(
        page->text,
        "<p class=\"key\"><span><i class=\"b0\"></i>attention heads</span>%s<span><i "
        "class=\"b1\"></i>feed-forward units</span><span><i "
        "class=\"empty\"></i>taken out, or narrower</span>%s%s</p>\n",
        cross ? "<span><i class=\"b3\"></i>heads of cross-attention</span>" : "",
        shared ? "<span><i class=\"hollow\"></i>shares the weights of a layer "
                 "above</span>"
               : "",
        exits ? "<span><i class=\"b2 round\"></i>early exit</span>" : "");
}

static void add_structures(Page *page) {
    const Figures *figures = page->figures;
    bool open = false;
    text_add(page->text, "<div class=\"card stack\">");
    add_key(page);
    text_add(page->text, "<div class=\"models\">");
    for (int i = 0; i < figures->count; i++) {
        if (figures->items[i].group != FIGURES_STRUCTURE) continue;
        const Figure *figure = &figures->items[i];
        if (!open || figure[-1].scale != figure->scale) { /* of another run */
            text_add(page->text, "%s<div>", open ? "</div></div>\n" : "");
            if (figure->run) add_run_name(page, &figures->runs[figure->run_color], "h3");
            text_add(page->text, "<div class=\"states\">\n");
            open = true;
        }
        add_figure(page, figure, false);
    }
    text_add(page->text, "</div></div></div></div>\n");
}

static void add_group(Page *page, FigureGroup group) {
    const Figures *figures = page->figures;
    if (figures_in(figures, group) == 0) return;
    add_section(page, groups[group].id, groups[group].title, groups[group].lead);
    if (group == FIGURES_STRUCTURE) {
        add_structures(page);
    } else {
        text_add(page->text, "<div class=\"grid\">\n");
        for (int i = 0; i < figures->count; i++)
            if (figures->items[i].group == group)
                add_figure(page, &figures->items[i], true);
        text_add(page->text, "</div>\n");
    }
    text_add(page->text, "</section>\n");
}

/* ---- the page ---- */

static bool any_steps(const Figures *figures) {
    int steps = 0;
    for (int r = 0; r < figures->run_count; r++) steps += figures->runs[r].count;
    return steps > 0;
}

static void add_steps(const Page *page) {
    const Figures *figures = page->figures;
    if (!any_steps(figures)) return;
    add_section(page, "steps", "Step by step", NULL);
    for (int r = 0; r < figures->run_count; r++) {
        if (figures->runs[r].count == 0) continue;
        const bool folded = figures->run_count > TILED_RUNS;
        text_add(page->text, "<div class=\"card table\">");
        if (folded) text_add(page->text, "<details><summary>");
        if (figures->run_count > 1) add_run_name(page, &figures->runs[r], "h3");
        if (folded) text_add(page->text, "</summary>");
        html_steps(page->text, page->arena, &figures->runs[r]);
        text_add(page->text, "%s</div>\n", folded ? "</details>" : "");
    }
    text_add(page->text, "</section>\n");
}

static void add_provenance(const Page *page) {
    const Figures *figures = page->figures;
    add_section(page, "provenance", "Provenance", NULL);
    for (int r = 0; r < figures->run_count; r++) {
        text_add(page->text, "<div class=\"card stack\">");
        if (figures->run_count > 1) add_run_name(page, &figures->runs[r], "h3");
        html_provenance(page->text, page->arena, &figures->runs[r]);
        text_add(page->text, "</div>\n");
    }
    text_add(page->text, "</section>\n");
}

static void add_head(const Page *page) {
    Text *text = page->text;
    const Figures *figures = page->figures;
    text_add(text,
             "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
             "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
             "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action "
             "'none'\">\n"
             "<meta name=\"referrer\" content=\"no-referrer\">\n"
             "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
             "<meta name=\"color-scheme\" content=\"light dark\">\n"
             "<link rel=\"icon\" href=\"data:,\">\n<title>");
    if (figures->run_count == 1)
        markup_clip(text, figures->runs[0].name, 80);
    else
        text_add(text, "%d %s", figures->run_count, runs_noun(figures));
    text_add(text, " \xc2\xb7 compress</title>\n<style>\n");
    html_style(text);
    text_add(text, "\n</style>\n</head>\n<body>\n");
}

/* One sentence under the title: what the model is for, and on what it was measured. */
static void add_lead(const Page *page) {
    Text *text = page->text;
    const Figures *figures = page->figures;
    const Run *run = &figures->runs[0];
    const Tree *input = tree_get(run->document, "input");
    const char *task = tree_string(input, "task"), *sample = tree_string(input, "sample");
    text_add(text, "<p class=\"lead\">");
    if (figures->run_count > 1) {
        text_add(text, "Colours and marks stand for the same %s on the whole page.",
                 runs_noun(figures));
    } else if (task || sample) {
        text_add(text, "%s", task ? "Task: " : "");
        markup_clip(text, task ? task : "", 60);
        text_add(text, "%s", task && sample ? ". " : "");
        text_add(text, "%s", sample ? "One sample: " : "");
        markup_clip(text, sample ? sample : "", 160);
        text_add(text, ".");
    } else {
        text_add(text, "%s",
                 run->is_model ? "A model file and what it says of itself."
                               : "The report of one run.");
    }
    text_add(text, "</p>\n");
}

static void add_nav(const Page *page) {
    Text *text = page->text;
    text_add(text, "<nav aria-label=\"Sections\"><a href=\"#summary\">%s</a>",
             summary_title(page->figures));
    for (int g = 0; g < FIGURE_GROUPS; g++)
        if (figures_in(page->figures, (FigureGroup)g) > 0)
            text_add(text, "<a href=\"#%s\">%s</a>", groups[g].id, groups[g].title);
    if (any_steps(page->figures)) text_add(text, "<a href=\"#steps\">Step by step</a>");
    text_add(text, "<a href=\"#provenance\">Provenance</a></nav>\n");
}

static void add_header(const Page *page) {
    Text *text = page->text;
    text_add(text,
             "<header><div class=\"bar\"><div class=\"mark\"><svg viewBox=\"0 0 22 22\" "
             "aria-hidden=\"true\"><rect class=\"k\" x=\"1\" y=\"2\" width=\"20\" "
             "height=\"4\" rx=\"1.2\"/><rect class=\"k\" x=\"1\" y=\"9\" width=\"20\" "
             "height=\"4\" rx=\"1.2\"/><rect class=\"k\" x=\"1\" y=\"16\" width=\"20\" "
             "height=\"4\" rx=\"1.2\"/><rect class=\"f0\" x=\"1\" y=\"2\" width=\"15\" "
             "height=\"4\" rx=\"1.2\"/><rect class=\"f0\" x=\"1\" y=\"9\" width=\"10\" "
             "height=\"4\" rx=\"1.2\"/><rect class=\"f1\" x=\"1\" y=\"16\" width=\"6\" "
             "height=\"4\" rx=\"1.2\"/></svg>compress</div>"
             "<fieldset class=\"theme\"><legend class=\"sr\">Colours of the page</legend>"
             "<label><input type=\"radio\" name=\"theme\" id=\"theme-auto\" checked>"
             "<span>Auto</span></label>"
             "<label><input type=\"radio\" name=\"theme\" id=\"theme-light\">"
             "<span>Light</span></label>"
             "<label><input type=\"radio\" name=\"theme\" id=\"theme-dark\">"
             "<span>Dark</span></label></fieldset></div>\n<h1>");
    if (page->figures->run_count == 1)
        markup_clip(text, page->figures->runs[0].name, 80);
    else
        text_add(text, "%d %s", page->figures->run_count, runs_noun(page->figures));
    if (page->figures->run_count == 1) add_badge(page, &page->figures->runs[0]);
    text_add(text, "</h1>\n");
    add_lead(page);
    add_nav(page);
    text_add(text, "</header>\n<main>");
}

void html_page(Text *text, const Figures *figures) {
    Page page = {.text = text, .arena = figures->arena, .figures = figures};
    add_head(&page);
    add_header(&page);
    add_summary(&page);
    for (int g = 0; g < FIGURE_GROUPS; g++) add_group(&page, (FigureGroup)g);
    if (figures->more)
        text_add(text, "<p class=\"muted\">Further pictures are left out.</p>\n");
    add_steps(&page);
    add_provenance(&page);
    text_add(text,
             "</main>\n<footer>Made by <code>compress report</code>. This page needs "
             "nothing but itself.</footer>\n</body>\n</html>\n");
}
