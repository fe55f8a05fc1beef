/* Judge of several labels: logits [N, labels] against labels f32 of the same shape, 0
 * or 1. A label is predicted where its probability reaches its threshold. */
#include "ir/class_name.h"
#include "passes/evaluate/evaluation.h"
#include "passes/evaluate/label_metrics.h"
#include "passes/evaluate/label_thresholds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Labels {
    int64_t labels, samples;
    float *probability, *truth; /* [samples, labels] */
    double *threshold;          /* [labels] */
    LabelCounts *counts;        /* by label */
    LabelCounts sum;
    double loss;   /* sum of binary cross-entropies */
    int64_t exact; /* samples with all labels right */
} Labels;

static Status labels_begin(void *self, Evaluation *e, Diag *diag) {
    Labels *l = self;
    Arena *arena = e->ctx->arena;
    const Node *logits = graph_output(e->model->graph, OUTPUT_LOGITS);
    const Type *type = evaluation_label_type(e->data);
    bool stored;
    l->labels = logits->type.dim[1];
    l->threshold = ARENA_ARRAY(arena, double, (size_t)l->labels);
    l->counts = ARENA_ARRAY(arena, LabelCounts, (size_t)l->labels);
    TRY(label_thresholds_read(l->threshold, l->labels, &stored, e->model, diag));
    if (type->dtype != DTYPE_F32 || type->rank != 1 || type->dim[0] != l->labels) {
        step_fail(
            e->ctx, diag,
            "data set \"%s\": expected labels of %lld real numbers a sample, 0 or 1",
            e->options->data, (long long)l->labels);
        diag_hint(diag, "format text reads them with targets: labels");
        return STATUS_MODEL;
    }
    if (e->options->thresholds != THRESHOLDS_STORED)
        for (int64_t i = 0; i < l->labels; i++) l->threshold[i] = LABEL_THRESHOLD;
    else if (stored && !e->ctx->plan && label_thresholds_are_stale(e->model))
        diag_warn(diag, e->ctx->source.at, e->ctx->source.key,
                  "the stored thresholds of labels were chosen before the model's last "
                  "change: choose them again (evaluate: thresholds: choose)");
    if (e->ctx->plan) return STATUS_OK;
    const size_t values = (size_t)evaluation_samples(e) * (size_t)l->labels;
    l->probability = ARENA_ARRAY(arena, float, values);
    l->truth = ARENA_ARRAY(arena, float, values);
    return STATUS_OK;
}

static Status labels_add(void *self, Evaluation *e, const Fetch *what,
                         const float *predictions, const void *const *columns,
                         Diag *diag) {
    Labels *l = self;
    const float *labels = columns[batches_column(e->data, DATA_LABELS)];
    for (int64_t i = 0; i < what->n; i++, l->samples++) {
        const float *z = predictions + i * l->labels, *y = labels + i * l->labels;
        TRY(evaluation_check_finite(e, what->index[i], z, l->labels, diag));
        for (int64_t k = 0; k < l->labels; k++) {
            const int64_t at = l->samples * l->labels + k;
            if (y[k] != 0 && y[k] != 1)
                return step_fail(e->ctx, diag,
                                 "data set \"%s\": expected labels 0 or 1, sample %lld "
                                 "has %g",
                                 e->options->data, (long long)what->index[i], y[k]);
            l->probability[at] = label_probability(z[k]);
            l->truth[at] = y[k];
            /* (1 - y) z + log(1 + exp(-z)) */
            l->loss += (1 - (double)y[k]) * (double)z[k] + fmax(-(double)z[k], 0) +
                       log1p(exp(-fabs((double)z[k])));
        }
    }
    return STATUS_OK;
}

/* The thresholds with the best F1 of each label, for the model to keep. */
static Status choose_thresholds(Labels *l, Evaluation *e, Diag *diag) {
    const size_t samples = (size_t)l->samples;
    float *score = memory_alloc(samples, sizeof *score);
    float *truth = memory_alloc(samples, sizeof *truth);
    for (int64_t k = 0; k < l->labels; k++) {
        for (int64_t i = 0; i < l->samples; i++) {
            score[i] = l->probability[i * l->labels + k];
            truth[i] = l->truth[i * l->labels + k];
        }
        l->threshold[k] =
            label_best_threshold(score, truth, l->samples, LABEL_THRESHOLD, NULL);
    }
    free(score);
    free(truth);
    return label_thresholds_store(l->threshold, l->labels, e->model, diag);
}

static void count_labels(Labels *l) {
    for (int64_t i = 0; i < l->samples; i++) {
        bool right = true;
        for (int64_t k = 0; k < l->labels; k++) {
            const int64_t at = i * l->labels + k;
            const bool is = l->truth[at] > 0;
            const bool found = (double)l->probability[at] >= l->threshold[k];
            l->counts[k].hits += is && found;
            l->counts[k].predicted += found;
            l->counts[k].labelled += is;
            right &= is == found;
        }
        l->exact += right;
    }
    l->sum = label_counts_sum(l->counts, l->labels);
}

static double labels_metric(const void *self, Metric metric) {
    const Labels *l = self;
    const double samples = (double)l->samples;
    switch (metric) {
    case METRIC_F1_MICRO: return 100 * label_f1(l->sum);
    case METRIC_F1_MACRO: return 100 * label_f1_macro(l->counts, l->labels, false);
    case METRIC_PRECISION: return 100 * label_precision(l->sum);
    case METRIC_RECALL: return 100 * label_recall(l->sum);
    case METRIC_ACCURACY: return 100 * (double)l->exact / samples;
    default: return l->loss / samples / (double)l->labels;
    }
}

/* Name of a label: the model's where somebody gave it one, else the data set's. */
static const char *name_of(const Evaluation *e, int64_t label) {
    const char *name = class_name(e->model->config, label, e->ctx->arena);
    const bool named = e->data->class_names && label < e->data->classes;
    return named && class_name_is_generic(name) ? e->data->class_names[label] : name;
}

static Status labels_end(void *self, Evaluation *e, Tree *record, Diag *diag) {
    Labels *l = self;
    Arena *arena = e->ctx->arena;
    if (e->options->thresholds == THRESHOLDS_CHOOSE) TRY(choose_thresholds(l, e, diag));
    count_labels(l);
    tree_put_real(arena, record, "f1_micro", labels_metric(l, METRIC_F1_MICRO));
    tree_put_real(arena, record, "f1_macro", labels_metric(l, METRIC_F1_MACRO));
    tree_put_real(arena, record, "precision", labels_metric(l, METRIC_PRECISION));
    tree_put_real(arena, record, "recall", labels_metric(l, METRIC_RECALL));
    tree_put_real(arena, record, "accuracy", labels_metric(l, METRIC_ACCURACY));
    tree_put_real(arena, record, "loss", labels_metric(l, METRIC_LOSS));
    Tree *list = tree_put_list(arena, record, "labels");
    for (int64_t k = 0; k < l->labels; k++) {
        Tree *row = tree_add_map(arena, list);
        tree_put_string(arena, row, "label", name_of(e, k));
        tree_put_real(arena, row, "f1", 100 * label_f1(l->counts[k]));
        tree_put_real(arena, row, "threshold", l->threshold[k]);
        tree_put_int(arena, row, "samples", l->counts[k].labelled);
    }
    return STATUS_OK;
}

const Judge judge_labels = {
    .task = TASK_MULTI_LABEL,
    .output = OUTPUT_LOGITS,
    .columns = {DATA_LABELS},
    .exits = true,
    .metrics = JUDGE_KNOWS(METRIC_F1_MICRO) | JUDGE_KNOWS(METRIC_F1_MACRO) |
               JUDGE_KNOWS(METRIC_PRECISION) | JUDGE_KNOWS(METRIC_RECALL) |
               JUDGE_KNOWS(METRIC_ACCURACY) | JUDGE_KNOWS(METRIC_LOSS),
    .usual = METRIC_F1_MICRO,
    .size = sizeof(Labels),
    .begin = labels_begin,
    .add = labels_add,
    .end = labels_end,
    .metric = labels_metric,
};
