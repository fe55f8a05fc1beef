/* How often words occur in a data set. */
#ifndef COMPRESS_PASSES_EMBEDDING_WORD_COUNTS_H
#define COMPRESS_PASSES_EMBEDDING_WORD_COUNTS_H

#include "passes/context.h"

/* Adds to counts[words] how often each word occurs in the column `ids` of all samples,
 * without padding, as given by the mask column or else by the lengths of samples. Ids
 * outside the table are not counted. Fails as fetching does, and with
 * STATUS_INTERRUPTED. */
Status word_counts_add(double *counts, int64_t words, const Batches *data,
                       const char *ids, const Watch *watch, Diag *diag);

#endif
