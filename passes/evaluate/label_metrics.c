/* Metrics of labels: see label_metrics.h. */
#include "passes/evaluate/label_metrics.h"

#include "ir/arena.h"

#include <stdlib.h>

static double share(int64_t part, int64_t whole) {
    return whole > 0 ? (double)part / (double)whole : 0;
}

double label_precision(LabelCounts counts) {
    return share(counts.hits, counts.predicted);
}

double label_recall(LabelCounts counts) {
    return share(counts.hits, counts.labelled);
}

double label_f1(LabelCounts counts) {
    return share(2 * counts.hits, counts.predicted + counts.labelled);
}

LabelCounts label_counts_sum(const LabelCounts *counts, int64_t labels) {
    LabelCounts sum = {0};
    for (int64_t l = 0; l < labels; l++) {
        sum.hits += counts[l].hits;
        sum.predicted += counts[l].predicted;
        sum.labelled += counts[l].labelled;
    }
    return sum;
}

double label_f1_macro(const LabelCounts *counts, int64_t labels, bool occurring) {
    double sum = 0;
    int64_t known = 0;
    for (int64_t l = 0; l < labels; l++) {
        sum += label_f1(counts[l]);
        known += !occurring || counts[l].predicted + counts[l].labelled > 0;
    }
    return known > 0 ? sum / (double)known : 0;
}

typedef struct Scored {
    float score, label;
} Scored;

static int highest_first(const void *a, const void *b) {
    const float x = ((const Scored *)a)->score, y = ((const Scored *)b)->score;
    return (x < y) - (x > y);
}

double label_best_threshold(const float *scores, const float *labels, int64_t n,
                            double otherwise, double *f1) {
    Scored *sorted = memory_alloc((size_t)n, sizeof *sorted);
    LabelCounts counts = {0};
    double best = 0, threshold = otherwise;
    for (int64_t i = 0; i < n; i++) {
        sorted[i] = (Scored){scores[i], labels[i]};
        counts.labelled += labels[i] > 0;
    }
    qsort(sorted, (size_t)n, sizeof *sorted, highest_first);
    /* the first samples are predicted, up to one with a lower score than the last */
    for (int64_t i = 0; i < n; i++) {
        const double next = i + 1 < n ? (double)sorted[i + 1].score : 0;
        counts.hits += sorted[i].label > 0;
        counts.predicted++;
        if ((i + 1 < n && next == (double)sorted[i].score) || label_f1(counts) <= best)
            continue;
        best = label_f1(counts);
        threshold = ((double)sorted[i].score + next) / 2;
    }
    free(sorted);
    if (f1) *f1 = best;
    return threshold;
}
