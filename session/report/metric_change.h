/* How a metric changed over a run: which of its steps' measurements are before and after.
 */
#ifndef COMPRESS_SESSION_REPORT_METRIC_CHANGE_H
#define COMPRESS_SESSION_REPORT_METRIC_CHANGE_H

#include "ir/tree.h"

#include <stdbool.h>

/* One step of a run, as far as one metric on one data set is concerned. */
typedef struct MetricPoint {
    double value;   /* that the step measured; NAN = it did not */
    double samples; /* number of samples on which it was measured; NAN = not known */
    const char
        *how; /* how it was measured, if that affects the number; NULL = no difference */
    bool input_size; /* its model is as large as the input: the input itself, or only
                        trained */
    bool changes;    /* it may change the model */
} MetricPoint;

typedef struct MetricChange {
    double before, after; /* NAN = there is none */
    double change;        /* NAN = not known, or the two are not comparable: */
    const char *unlike;   /* why, in words, if there are both; NULL = they are */
    int step; /* from 1, of `after` if a later one may change the model; else 0 */
} MetricChange;

/* How a step with these options measured a metric, for MetricPoint; in the arena. */
const char *metric_how(Arena *arena, const char *key, const Tree *options);

/* How the metric `key` changed: `before` is the first measurement of a model of the
 * input's size, `after` the last one; a single one is `before` if a later step may change
 * the model, else `after`. */
MetricChange metric_change(const char *key, const MetricPoint *points, int count);

#endif
