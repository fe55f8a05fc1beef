/* Metrics of labels, from counts: precision, recall and F1 of one, and of many.
 *
 * All are from 0 to 1, and 0 if nothing was predicted, or nothing was labelled. */
#ifndef COMPRESS_PASSES_EVALUATE_LABEL_METRICS_H
#define COMPRESS_PASSES_EVALUATE_LABEL_METRICS_H

#include <stdbool.h>
#include <stdint.h>

/* For one label (class, type of entity): how often it was right, predicted, labelled.
 * Start with zeros. */
typedef struct LabelCounts {
    int64_t hits, predicted, labelled;
} LabelCounts;

/* hits / predicted; hits / labelled; and their harmonic mean, 2 hits / (predicted +
 * labelled). */
double label_precision(LabelCounts counts);
double label_recall(LabelCounts counts);
double label_f1(LabelCounts counts);

/* The counts of all labels together, for the micro averages. */
LabelCounts label_counts_sum(const LabelCounts *counts, int64_t labels);

/* Mean F1 of labels: the macro average. With `occurring` those that were neither
 * labelled nor predicted are left out; without it they count as 0, as scikit-learn
 * counts the columns of several labels. */
double label_f1_macro(const LabelCounts *counts, int64_t labels, bool occurring);

/* The threshold that gives a label its best F1 on n samples: it is predicted where its
 * score is at least the threshold. Among equal F1 the highest threshold. It lies midway
 * between two scores, or between the lowest and 0; if no sample has the label there is
 * nothing to choose: returns `otherwise`. Scores are at least 0, labels 1 or 0. Fills
 * *f1, unless it is NULL. */
double label_best_threshold(const float *scores, const float *labels, int64_t n,
                            double otherwise, double *f1);

#endif
