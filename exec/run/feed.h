/* Feed: from the columns of a data set to the inputs of a plan. */
#ifndef COMPRESS_EXEC_RUN_FEED_H
#define COMPRESS_EXEC_RUN_FEED_H

#include "exec/run/run.h"
#include "ir/batches.h"

/* Checks that every input that `roots` depend on has a column of its name and shape, and
 * finds the sizes of the symbols other than N in the columns; those that no column names
 * stay as they are. Where samples have lengths, T (and S, of a source) is the longest
 * there can be; where positions are masked, M is their largest number. Fails with
 * STATUS_MODEL. */
Status feed_check(Graph *graph, Node *const *roots, int count, const Batches *data,
                  int64_t sizes[DIM_SYMBOLS], Diag *diag);

/* Checks all samples before anything is run: the longest sequence fits what `roots`
 * depend on, and ids lie within its tables, as feed_fetch checks them. Nothing is known,
 * and nothing said, where an input has no column yet. Fails with STATUS_MODEL. */
Status feed_check_samples(Graph *graph, Node *const *roots, int count,
                          const Batches *data, Diag *diag);

/* Checks that the labels of all samples are below `classes`; samples are fetched only
 * where the data set has more classes. Fails with STATUS_MODEL, naming the first sample.
 */
Status feed_check_labels(const Batches *data, int64_t classes, Diag *diag);

/* One worker's way to fetch samples. */
typedef struct Feed {
    const Batches *data;
    void **column; /* by column: the samples fetched last; NULL = not wanted */
    void **spare;  /* by column: memory for those that no input takes, else NULL */
    int64_t samples;
} Feed;

/* Room for up to `samples` samples at a time. Fails with STATUS_MEMORY. */
Status feed_open(Feed *feed, const Batches *data, int64_t samples, Diag *diag);
void feed_close(Feed *feed);

/* Fetches samples into the inputs of the plan that the workspace is bound to, planned for
 * as many samples and tokens, and checks indices. Fails with the data set's complaint, or
 * STATUS_MODEL for a label that the model has no class for or an id without a row. */
Status feed_fetch(Feed *feed, Workspace *workspace, const Fetch *what, Diag *diag);

/* As feed_fetch, for what reads integer inputs only: other columns are left out where the
 * data set can do that, and nothing is fetched when the plan has no integer input. */
Status feed_fetch_integers(Feed *feed, Workspace *workspace, const Fetch *what,
                           Diag *diag);

/* Checks the indices of an input that was filled by other means, for n samples: row r
 * belongs to sample index[rows[r]]. Fails as feed_fetch does. */
Status feed_check_rows(const Feed *feed, Workspace *workspace, const char *name,
                       const int64_t *index, const int64_t *rows, int64_t n, Diag *diag);

#endif
