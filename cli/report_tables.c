/* Report: tables of a recipe's steps. */
#include "cli/report_tables.h"

#include "cli/text_table.h"
#include "exec/run/ranks.h"
#include "exec/train/shards.h"
#include "session/report/metric_change.h"

#include <math.h>
#include <string.h>

#define TIMES_SHOWN 6

static void plan_row(TextTable *table, const char *name, const Measure *measure,
                     int64_t training) {
    Arena *arena = table->arena;
    table_add(table, "%s", name);
    table_add(table, "%s", text_grouped(arena, measure->parameters));
    table_add(table, "%s", text_size(arena, measure->bytes));
    table_add(table, "%s", text_flops(arena, measure->flops));
    table_add(table, "%s", text_size(arena, measure->peak_bytes));
    table_add(table, "%s", training > 0 ? text_size(arena, training) : "-");
}

/* Threads of all ranks at work on so many shards, where each rank has `threads`. */
static long long threads_used(long long threads, long long shards) {
    long long used = 0;
    for (int r = 0; r < ranks_count(); r++) used += shards_threads(threads, shards, r);
    return used;
}

/* How many threads training uses: every shard of a rank as many as all can have. Results
 * depend on the number of shards, so that does not follow the machine. Of ranks without a
 * shard the plan has warned (job_warn_idle). */
static void print_threads(const RunReport *report, FILE *out) {
    long long least = 0, most = 0, threads = 1;
    char shards[64];
    for (int i = 0; i < report->count; i++) {
        const long long step = (long long)report->steps[i].result.train_shards;
        if (step == 0) continue;
        if (least == 0 || step < least) least = step;
        if (step > most) most = step;
        threads = report->steps[i].result.threads;
    }
    if (most == 0) return;
    if (least == most)
        snprintf(shards, sizeof shards, "%lld", most);
    else
        snprintf(shards, sizeof shards, "%lld to %lld", least, most);
    const int ranks = ranks_count();
    const long long used = threads_used(threads, most), all = ranks * threads;
    fprintf(out, "threads used in training: %lld of %lld (shards: %s", used, all, shards);
    if (ranks > 1)
        fprintf(out, ", %d ranks of %lld", ranks, threads);
    else if (used > most)
        fprintf(out, ", %lld threads in each", used / most);
    fputs(")\n", out);
    if (least >= ranks && threads_used(threads, least) < all)
        fprintf(out,
                "    hint: `shards: %lld` would use all of them; the bytes of results "
                "depend on the number of shards\n",
                all);
}

/* How many heads or units each block keeps: ", heads 4 3 2"; nothing where a step has no
 * such list. */
static void print_counts(const char *name, const Tree *record, FILE *out) {
    const Tree *blocks = tree_get(record, "blocks");
    double count;
    if (!blocks || blocks->kind != TREE_LIST) return;
    fprintf(out, ", %s", name);
    for (const Tree *block = blocks->first; block; block = block->next)
        if (tree_number(tree_get(block, "after"), &count)) fprintf(out, " %.0f", count);
}

/* One line per step with a budget: what it reaches of it, and where. */
static void print_budgets(const RunReport *report, FILE *out) {
    static const char *const names[] = {"flops", "parameters", "bytes"};
    for (int i = 0; i < report->count; i++) {
        const ReportStep *step = &report->steps[i];
        const Tree *record = step->result.record;
        double budget, value;
        if (!tree_number(tree_get(record, "budget"), &budget)) continue;
        fprintf(out, "%d %s:", i + 1, step_title(report->arena, step->step));
        for (int k = 0; k < 3; k++)
            if (tree_number(tree_get(record, names[k]), &value))
                fprintf(out, " %s %s of at most %s", names[k],
                        text_grouped(report->arena, (int64_t)value),
                        text_grouped(report->arena, (int64_t)budget));
        print_counts("kept", record, out);
        print_counts("heads", tree_get(record, "heads"), out);
        print_counts("units", tree_get(record, "ffn"), out);
        fprintf(out, "\n");
    }
}

/* The most that the run is going to take, and where. */
static void print_memory(const RunReport *report, FILE *out) {
    const int most = report->memory_step;
    fprintf(out, "resident memory of the run: up to %s, ",
            text_size(report->arena, report->memory));
    if (most >= 0)
        fprintf(out, "in step %d %s\n", most + 1,
                step_title(report->arena, report->steps[most].step));
    else
        fprintf(out, "to read %s\n",
                most == MEMORY_OF_DATA ? "the data sets" : "and write the model");
}

void report_print_plan(const RunReport *report, FILE *out) {
    static const char *const heads[] = {"step",  "parameters",       "weights",
                                        "FLOPs", "inference memory", "training memory"};
    Arena *arena = report->arena;
    TextTable table = table_create(arena, "lrrrrr");
    for (int i = 0; i < 6; i++) table_add(&table, "%s", heads[i]);
    plan_row(&table, "0 input", &report->start, 0);
    for (int i = 0; i < report->count; i++) {
        const ReportStep *step = &report->steps[i];
        /* Of a training step: its weights in float32 and what it takes beside them. */
        int64_t training = (int64_t)step->result.train_bytes;
        if (training > 0)
            training += step->result.measure.parameters * (int64_t)sizeof(float);
        plan_row(&table,
                 arena_printf(arena, "%d %s", i + 1, step_title(arena, step->step)),
                 &step->result.measure, training);
    }
    fprintf(out, "one sample: %s\n", report->start.input);
    table_print(&table, 0, out);
    print_budgets(report, out);
    print_memory(report, out);
    print_threads(report, out);
}

static void result_row(TextTable *table, const char *name, const char *before,
                       const char *after, double ratio) {
    table_add(table, "%s", name);
    table_add(table, "%s", before);
    table_add(table, "%s", after);
    if (ratio <= 0)
        table_add(table, "-");
    else if (ratio == 1)
        table_add(table, "same");
    else if (ratio > 0.995 && ratio < 1.005)
        table_add(table, "%.1g %% %s", 100 * fabs(1 / ratio - 1),
                  ratio > 1 ? "smaller" : "larger");
    else if (ratio > 1)
        table_add(table, "%.2fx smaller", ratio);
    else
        table_add(table, "%.2fx larger", 1 / ratio);
}

static double ratio_of(double before, double after) {
    return after > 0 ? before / after : 0;
}

/* What a step's record has under a key, if it is a text. */
static const char *text_of(const ReportStep *step, const char *key) {
    return tree_string(step->result.record, key);
}

/* Whether some step's gate is about a metric on this data set. */
static bool is_gated(const RunReport *report, const char *data, const char *key) {
    for (int i = 0; i < report->count; i++) {
        const char *own = text_of(&report->steps[i], "data");
        const char *gated = text_of(&report->steps[i], "gated");
        if (own && gated && strcmp(own, data) == 0 && strcmp(gated, key) == 0)
            return true;
    }
    return false;
}

/* Number `key` of step `index`, if it is a record of evaluate on data set `data` (NULL:
 * any). */
static bool metric_of(const RunReport *report, int index, const char *data,
                      const char *key, double *value) {
    const ReportStep *step = &report->steps[index];
    const char *name = text_of(step, "data");
    const Tree *metric = tree_get(step->result.record, key);
    if (!name || !metric || metric->kind != TREE_FLOAT ||
        !(step->step->pass->flags & PASS_MEASURES))
        return false;
    if (data && strcmp(name, data) != 0) return false;
    /* of classes f1 stands beside accuracy in the record alone, unless it is gated */
    if (strcmp(key, "f1") == 0 && tree_get(step->result.record, "f1_average") &&
        !is_gated(report, name, key))
        return false;
    *value = metric->real;
    return true;
}

/* What a step has to do with a metric on a data set. */
static MetricPoint metric_point(const RunReport *report, int index, const char *data,
                                const char *key) {
    const StepResult *result = &report->steps[index].result;
    const Measure *a = &report->start, *b = &result->measure;
    MetricPoint point = {.value = NAN, .samples = NAN};
    metric_of(report, index, data, key, &point.value);
    tree_number(tree_get(result->record, "samples"), &point.samples);
    if (!isnan(point.value))
        point.how =
            metric_how(report->arena, key, report->steps[index].step->source.options);
    point.input_size =
        a->parameters == b->parameters && a->bytes == b->bytes && a->flops == b->flops;
    point.changes = !(report->steps[index].step->pass->flags & PASS_MEASURES);
    return point;
}

static void add_metric(TextTable *table, const char *format, double value) {
    if (isnan(value))
        table_add(table, "-");
    else
        table_add(table, format, value);
}

/* A metric on one data set; an after that is not of the model that came out says of which
 * step it is. */
static void metric_row(const RunReport *report, TextTable *table, int first,
                       const char *key) {
    const char *data = text_of(&report->steps[first], "data");
    MetricPoint *points = ARENA_ARRAY(report->arena, MetricPoint, (size_t)report->count);
    for (int i = 0; i < report->count; i++)
        points[i] = metric_point(report, i, data, key);
    const MetricChange change = metric_change(key, points, report->count);
    if (change.step)
        table_add(table, "%s (%s, step %d)", key, data, change.step);
    else
        table_add(table, "%s (%s)", key, data);
    add_metric(table, "%.4f", change.before);
    add_metric(table, "%.4f", change.after);
    if (change.unlike)
        table_add(table, "%s", change.unlike);
    else
        add_metric(table, "%+.4f", change.change);
}

/* One row of a metric for each data set that some step measured it on. */
static void metric_rows(const RunReport *report, TextTable *table, const char *key) {
    for (int i = 0; i < report->count; i++) {
        double value, earlier;
        if (!metric_of(report, i, NULL, key, &value)) continue;
        const char *data = text_of(&report->steps[i], "data");
        bool seen = false;
        for (int j = 0; j < i; j++) seen |= metric_of(report, j, data, key, &earlier);
        if (!seen) metric_row(report, table, i, key);
    }
}

/* The metrics that are always shown. */
static const char *const METRICS[] = {"accuracy",
                                      "exact_match",
                                      "choice_accuracy",
                                      "choice_accuracy_normalized",
                                      "f1",
                                      "f1_micro",
                                      "f1_macro",
                                      "mse",
                                      "pearson",
                                      "spearman",
                                      "average_precision",
                                      "recall_at_1",
                                      "recall_at_10",
                                      "mrr",
                                      "cosine",
                                      "nearest_accuracy",
                                      "loss",
                                      "perplexity",
                                      "ending_perplexity",
                                      "bits_per_character",
                                      "bleu",
                                      "mean_depth",
                                      "flops_share"};

/* All metrics: those, and what else gates are about. */
static void all_metrics(const RunReport *report, TextTable *table) {
    const int count = (int)(sizeof METRICS / sizeof *METRICS);
    for (int k = 0; k < count; k++) metric_rows(report, table, METRICS[k]);
    for (int i = 0; i < report->count; i++) {
        const char *gated = text_of(&report->steps[i], "gated");
        bool shown = !gated;
        for (int k = 0; k < count && !shown; k++) shown = strcmp(METRICS[k], gated) == 0;
        for (int j = 0; j < i && !shown; j++) {
            const char *other = text_of(&report->steps[j], "gated");
            shown = other && strcmp(other, gated) == 0;
        }
        if (!shown) metric_rows(report, table, gated);
    }
}

/* Whether a step timed few enough numbers for one line. */
static bool is_short(const Tree *times) {
    if (times->count == 0 || times->count > TIMES_SHOWN) return false;
    for (const Tree *value = times->first; value; value = value->next)
        if (value->kind != TREE_INT && value->kind != TREE_FLOAT) return false;
    return true;
}

/* Four digits, and all of those before the point. */
static const char *time_text(Arena *arena, const Tree *value) {
    const double number = value->kind == TREE_INT ? (double)value->integer : value->real;
    if (number >= 1e4 && number < 1e15)
        return text_grouped(arena, (int64_t)(number + 0.5));
    return arena_printf(arena, "%.4g", number);
}

/* One line per step: the numbers that it timed. */
static void print_times(const RunReport *report, FILE *out) {
    for (int i = 0; i < report->count; i++) {
        const ReportStep *step = &report->steps[i];
        if (!is_short(step->result.times)) continue;
        fprintf(out, "%d %s:", i + 1, step_title(report->arena, step->step));
        for (const Tree *value = step->result.times->first; value; value = value->next)
            fprintf(out, " %s %s%s", value->key, time_text(report->arena, value),
                    value->next ? "," : "\n");
    }
}

void print_written(Arena *arena, const ModelOutput *output, FILE *out) {
    const Written *written = &output->written;
    fprintf(out, "wrote %s, %s bytes", output->path, text_grouped(arena, written->bytes));
    if (written->files > 1) fprintf(out, " in %d files", written->files);
    fprintf(out, "\n");
}

void report_print_result(const Session *session, FILE *out) {
    const RunReport *report = &session->report;
    const int64_t read = session->input.bytes; /* 0: it was built */
    Arena *arena = report->arena;
    const Measure *a = &report->start;
    const Measure *b =
        report->count ? &report->steps[report->count - 1].result.measure : a;
    double seconds = 0;
    for (int i = 0; i < report->count; i++) seconds += report->steps[i].result.seconds;
    TextTable table = table_create(arena, "lrrr");
    table_add(&table, "%s", "");
    table_add(&table, "before");
    table_add(&table, "after");
    table_add(&table, "change");
    result_row(&table, "parameters", text_grouped(arena, a->parameters),
               text_grouped(arena, b->parameters),
               ratio_of((double)a->parameters, (double)b->parameters));
    result_row(&table, "weight bytes", text_grouped(arena, a->bytes),
               text_grouped(arena, b->bytes),
               ratio_of((double)a->bytes, (double)b->bytes));
    for (int i = 0; i < session->outputs.count; i++) {
        const ModelOutput *output = &session->outputs.items[i];
        const int64_t bytes = output->written.bytes;
        result_row(&table, arena_printf(arena, "on disk (%s)", output->path),
                   read ? text_grouped(arena, read) : "-", text_grouped(arena, bytes),
                   ratio_of((double)read, (double)bytes));
    }
    result_row(&table, "FLOPs", text_flops(arena, a->flops), text_flops(arena, b->flops),
               ratio_of(a->flops, b->flops));
    all_metrics(report, &table);
    table_add(&table, "time of steps");
    table_add(&table, "-");
    table_add(&table, "%s", text_seconds(arena, seconds));
    table_add(&table, "-");
    table_print(&table, 0, out);
    print_times(report, out);
    for (int i = 0; i < session->outputs.count; i++)
        print_written(arena, &session->outputs.items[i], out);
    if (session->outputs.count == 0)
        fprintf(out, "no output was named: nothing is written\n");
}
