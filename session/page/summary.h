/* Summary: a run's numbers before and after, ready to be shown. */
#ifndef COMPRESS_SESSION_PAGE_SUMMARY_H
#define COMPRESS_SESSION_PAGE_SUMMARY_H

#include "session/page/runs.h"

typedef enum Verdict { VERDICT_WORSE = -1, VERDICT_NONE, VERDICT_BETTER } Verdict;

/* One number; texts are "" if nothing is known. */
typedef struct SummaryRow {
    const char *label;
    const char *data; /* data set on which it was measured; NULL = none */
    int step;         /* step that measured `after`, if the model changed later; else 0 */
    const char *before, *after, *change;
    double share; /* after / before, for sizes; NAN = not a size */
    Verdict verdict;
} SummaryRow;

/* Rows of a run: sizes, then what it measured, then its time; in the arena. */
SummaryRow *summary_rows(const Run *run, Arena *arena, int *count);

/* "1.91x smaller", "1.10x larger", "0.3 % larger" for very small changes, "same" for
 * none; "" if one is not known. `times` is the sign for "x". */
const char *summary_ratio(Arena *arena, double before, double after, const char *times);

/* Sizes and metrics as texts; "" = not known. */
const char *summary_count(Arena *arena, double value);
const char *summary_bytes(Arena *arena, double value);
const char *summary_flops(Arena *arena, double value);
const char *summary_seconds(Arena *arena, double value);
const char *summary_metric(Arena *arena, const RunMetricKind *kind, double value);

/* A metric's change, with its sign; "" = not known. */
const char *summary_delta(Arena *arena, const RunMetricKind *kind,
                          const MetricChange *change);

/* "run", "runs", "model" or "models", whichever fits. */
const char *summary_noun(const Run *runs, int count);

/* How a run ended: "done", "stopped by a gate", ...; "" if not known. */
const char *summary_status(const Run *run);

/* A run's own description of its failure, as a sentence without mark-up; "" if it did
 * not fail.
 */
const char *summary_failure(const Run *run, Arena *arena);

#endif
