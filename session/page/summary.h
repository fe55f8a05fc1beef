/* Summary: a run's numbers before and after, ready to be shown. */
#ifndef COMPRESS_SESSION_PAGE_SUMMARY_H
#define COMPRESS_SESSION_PAGE_SUMMARY_H

#include "session/page/runs.h"

typedef enum Verdict { VERDICT_WORSE = -1, VERDICT_NONE, VERDICT_BETTER } Verdict;

/* One number; texts are "" where nothing is known. */
typedef struct SummaryRow {
    const char *label;
    const char *data; /* set that it was measured on; NULL = none */
    int step;         /* that measured `after`, where the model changed later; else 0 */
    const char *before, *after, *change;
    double share; /* after over before, of what is to be small; NAN = no size */
    Verdict verdict;
} SummaryRow;

/* Rows of a run: sizes, then what it measured, then its time; in the arena. */
SummaryRow *summary_rows(const Run *run, Arena *arena, int *count);

/* "1.91x smaller", "1.10x larger", "0.3 % larger" where that is next to nothing, "same"
 * where it is nothing; "" when one is not known. `times` is the sign for "x". */
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

/* "run", "runs", "model" or "models": what so many are called. */
const char *summary_noun(const Run *runs, int count);

/* What became of a run: "done", "stopped by a gate", ...; "" when it is not told. */
const char *summary_status(const Run *run);

/* What a run says of how it failed, as a sentence without mark-up; "" when it did not.
 */
const char *summary_failure(const Run *run, Arena *arena);

#endif
