/* Tally: what logits and labels add up to. */
#ifndef COMPRESS_PASSES_EVALUATE_EVALUATE_TALLY_H
#define COMPRESS_PASSES_EVALUATE_EVALUATE_TALLY_H

#include "ir/tree.h"
#include "passes/evaluate/metric.h"

typedef struct Tally {
    int64_t classes;
    int64_t rows, correct;
    double loss;
    int32_t row_class;                    /* that the last row predicts */
    double characters;                    /* characters per label; 0 = not known */
    int64_t *hits, *predicted, *labelled; /* by class; NULL when they are words */
} Tally;

/* Empty tally. With `words` the classes are words of a vocabulary: nothing is counted by
 * class, and the metrics are accuracy, loss, perplexity and, if `characters` is set,
 * bits per character. */
void tally_open(Tally *tally, Arena *arena, int64_t classes, bool words);

/* The score of a row of logits against its label. */
typedef struct RowScore {
    double loss;    /* -log of the label's softmax */
    int32_t likely; /* class of the largest logit, the first one of equal ones */
    int64_t bad; /* first class whose logit is not finite; -1 = none, otherwise the other
                    members are meaningless */
} RowScore;

/* Scores rows [count, classes] of which labels[i] lies in [0, classes), the others are
 * skipped; in parallel, with the same numbers at any number of threads. */
void tally_score(RowScore *scores, const float *logits, const int32_t *labels,
                 int64_t count, int64_t classes, int threads);

/* Adds a row with finite logits and its label. */
void tally_add(Tally *tally, const RowScore *score, int32_t label);

/* One number, not METRIC_BLEU; there must be a row. An F1 without a positive and a
 * correlation where all labels or all predictions are equal are 0. F1 over more than two
 * classes leaves out those that are neither labelled nor predicted. Bits per character
 * need `characters`. */
double tally_metric(const Tally *tally, Metric metric);

/* Puts all metrics into a map. */
void tally_record(const Tally *tally, Arena *arena, Tree *map);

#endif
