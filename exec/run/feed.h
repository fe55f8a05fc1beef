/* Feed: from the columns of a data set to the inputs of a plan. */
#ifndef COMPRESS_EXEC_RUN_FEED_H
#define COMPRESS_EXEC_RUN_FEED_H

#include "exec/run/run.h"
#include "ir/batches.h"

/* Checks that every input that `roots` depend on has a column of its name and shape
 * (masks that samples of one length lack are all ones), and finds the sizes of the
 * symbols other than N in the columns; those that no column names are unchanged. If
 * samples have lengths, T (and S, of a source) is the longest possible; if positions are
 * masked, M is their largest number. Fails with STATUS_MODEL. */
Status feed_check(Graph *graph, Node *const *roots, int count, const Batches *data,
                  int64_t sizes[DIM_SYMBOLS], Diag *diag);

/* The range of the integers of a column, over all samples. */
typedef struct ColumnRange {
    bool known;
    int32_t least, most; /* without INDEX_SKIP; least > most if there is nothing else */
    bool skips;          /* INDEX_SKIP occurs */
} ColumnRange;

/* Checks all samples before anything is run: that feed_check succeeds, the longest
 * sequence fits what `roots` depend on, ids lie within its tables and labels below its
 * classes, as in feed_fetch. `ranges`, one for each column of `data` and initially zero,
 * keeps what was seen, so that samples are fetched only once for any number of checks.
 * Fails with STATUS_MODEL, naming the first sample at fault. */
Status feed_check_samples(Graph *graph, Node *const *roots, int count,
                          const Batches *data, ColumnRange *ranges, Diag *diag);

/* Checks likewise that the labels in column `column` of all samples are below `classes`;
 * labels of several rows may be INDEX_SKIP. */
Status feed_check_labels(const Batches *data, int column, int64_t classes,
                         ColumnRange *ranges, Diag *diag);

/* Fetches samples for one worker. */
typedef struct Feed {
    const Batches *data;
    void **column; /* by column: the samples fetched last; NULL = not needed */
    void **spare;  /* by column: memory for columns that no input takes, else NULL */
    int64_t samples;
} Feed;

/* Makes room for up to `samples` samples at a time. Fails with STATUS_MEMORY. */
Status feed_open(Feed *feed, const Batches *data, int64_t samples, Diag *diag);
void feed_close(Feed *feed);

/* Fetches samples into the inputs of the plan that the workspace is bound to, planned
 * for this number of samples and tokens, and checks indices. Fails with the data set's
 * error, or STATUS_MODEL for a label without a class in the model or an id without a
 * row. */
Status feed_fetch(Feed *feed, Workspace *workspace, const Fetch *what, Diag *diag);

/* As feed_fetch, for all columns and without a plan: nothing is checked. */
Status feed_fetch_columns(Feed *feed, const Fetch *what, Diag *diag);

/* As feed_fetch, for code that reads only integer inputs: other columns are left out if
 * the data set can do that, and nothing is fetched when the plan has no integer
 * input. */
Status feed_fetch_integers(Feed *feed, Workspace *workspace, const Fetch *what,
                           Diag *diag);

/* Checks the indices of an input filled by other means, for n samples: row r belongs to
 * sample index[rows[r]]. Fails as feed_fetch does. */
Status feed_check_rows(const Feed *feed, Workspace *workspace, const char *name,
                       const int64_t *index, const int64_t *rows, int64_t n, Diag *diag);

#endif
