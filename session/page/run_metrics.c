/* What a run measured: see session/page/runs.h. */
#include "session/page/runs.h"

#include <math.h>
#include <string.h>

#define METRIC_MOST 1e12 /* a larger number is nonsense */
#define ROWS_MOST   200  /* metrics of a run on all of its data sets */

const RunMetricKind run_metric_kinds[] = {
    {"accuracy", "accuracy", false, true},
    {"exact_match", "exact match", false, true},
    {"choice_accuracy", "choice accuracy", false, true},
    {"choice_accuracy_normalized", "choice accuracy, by length", false, true},
    {"f1", "F1", false, true},
    {"f1_micro", "F1, micro", false, true},
    {"f1_macro", "F1, macro", false, true},
    {"precision", "precision", false, true},
    {"recall", "recall", false, true},
    {"mcc", "Matthews correlation", false, false},
    {"pearson", "Pearson correlation", false, false},
    {"spearman", "Spearman correlation", false, false},
    {"average_precision", "average precision", false, true},
    {"recall_at_1", "recall at 1", false, true},
    {"recall_at_10", "recall at 10", false, true},
    {"mrr", "mean reciprocal rank", false, false},
    {"cosine", "cosine", false, false},
    {"nearest_accuracy", "nearest-neighbour accuracy", false, true},
    {"bleu", "BLEU", false, false},
    {"mse", "mean squared error", true, false},
    {"loss", "loss", true, false},
    {"perplexity", "perplexity", true, false},
    {"ending_perplexity", "perplexity of endings", true, false},
    {"bits_per_character", "bits per character", true, false},
    {NULL},
};

double run_step_metric(const RunStep *step, const RunMetricKind *kind,
                       const char **data) {
    const char *set = tree_string(step->record, "data");
    if (!set || strcmp(step->pass, "evaluate") != 0) return NAN;
    if (data) *data = set;
    const double value = run_number(step->record, kind->key);
    return fabs(value) <= METRIC_MOST ? value : (double)NAN;
}

bool run_measures_several(const Run *run) {
    const char *first = NULL;
    for (int i = 0; i < run->count; i++) {
        const RunStep *step = &run->steps[i];
        const char *set = tree_string(step->record, "data");
        if (!set || strcmp(step->pass, "evaluate") != 0) continue;
        if (first && strcmp(first, set) != 0) return true;
        first = set;
    }
    return false;
}

/* What a step has to do with a kind on a data set. */
static MetricPoint metric_point(const Run *run, const RunStep *step, Arena *arena,
                                const RunMetricKind *kind, const char *data) {
    const RunSize *a = &run->before, *b = &step->size;
    const char *own = NULL;
    const double value = run_step_metric(step, kind, &own);
    const bool measured = !isnan(value) && strcmp(own, data) == 0;
    return (MetricPoint){.value = measured ? value : (double)NAN,
                         .samples = run_number(step->record, "samples"),
                         .how = measured ? metric_how(arena, kind->key, step->options)
                                         : NULL,
                         .input_size = a->parameters == b->parameters &&
                                       a->bytes == b->bytes && a->flops == b->flops,
                         .changes = !step->measures};
}

static MetricChange find_change(const Run *run, Arena *arena, const RunMetricKind *kind,
                                const char *data) {
    MetricPoint *points = ARENA_ARRAY(arena, MetricPoint, (size_t)run->count);
    for (int i = 0; i < run->count; i++)
        points[i] = metric_point(run, &run->steps[i], arena, kind, data);
    return metric_change(kind->key, points, run->count);
}

RunMetric *run_metrics(const Run *run, Arena *arena, int *count) {
    RunMetric *rows = ARENA_ARRAY(arena, RunMetric, ROWS_MOST);
    *count = 0;
    for (const RunMetricKind *kind = run_metric_kinds; kind->key; kind++)
        for (int i = 0; i < run->count; i++) {
            const char *data = NULL;
            const double value = run_step_metric(&run->steps[i], kind, &data);
            bool known = isnan(value) || *count == ROWS_MOST;
            for (int r = 0; r < *count && !known; r++)
                known = rows[r].kind == kind && strcmp(rows[r].data, data) == 0;
            if (known) continue;
            rows[(*count)++] =
                (RunMetric){kind, data, find_change(run, arena, kind, data)};
        }
    return rows;
}

const RunMetricKind *run_metric_kind(const char *key) {
    for (const RunMetricKind *kind = run_metric_kinds; key && kind->key; kind++)
        if (strcmp(kind->key, key) == 0) return kind;
    return NULL;
}

/* Whether some step measured a kind. */
static bool is_measured(const Run *run, const RunMetricKind *kind) {
    for (int i = 0; i < run->count; i++)
        if (!isnan(run_step_metric(&run->steps[i], kind, NULL))) return true;
    return false;
}

const RunMetricKind *run_main_metric(const Run *run) {
    const Tree *gate = tree_get(run->document, "gate");
    const RunMetricKind *kind = run_metric_kind(tree_string(gate, "metric"));
    if (kind && is_measured(run, kind)) return kind;
    for (int i = run->count - 1; i >= 0; i--) {
        if (strcmp(run->steps[i].pass, "evaluate") != 0) continue;
        kind = run_metric_kind(tree_string(run->steps[i].options, "metric"));
        if (kind && is_measured(run, kind)) return kind;
    }
    for (kind = run_metric_kinds; kind->key; kind++)
        if (is_measured(run, kind)) return kind;
    return NULL;
}

double run_step_flops(const RunStep *step) {
    const double share = run_number(step->record, "flops_share");
    return share >= 0 && share <= 1 ? step->size.flops * share : step->size.flops;
}
