/* Forward: a graph run over the samples of a data set. */
#ifndef COMPRESS_EXEC_RUN_FORWARD_H
#define COMPRESS_EXEC_RUN_FORWARD_H

#include "exec/run/ticker.h"
#include "ir/batches.h"
#include "ir/graph.h"

/* Receives results of forward_batches for the samples of `what`: values[i] is result i
 * (float *), columns[j] the samples' data as fetched. Where shapes have them, T is
 * what->tokens, S what->source and M batches_masked of the data set and what->tokens. One
 * call at a time; in the data set's order, or by length where samples have lengths. */
typedef Status (*ForwardSink)(void *self, const Fetch *what, const float *const *values,
                              const void *const *columns, Diag *diag);

/* Runs the graph forward over the first `limit` samples (0 = all), without augmentation,
 * and hands the results to `sink`. A result that is a loss is the mean over what counts
 * in each chunk of at most `batch_size` samples. The sink has had all samples before the
 * chunk whose failure is returned, at any number of threads. Collective: ranks share the
 * samples (lanes_sweep), and each sink gets all of them. */
Status forward_batches(Graph *graph, Node *const *results, int result_count,
                       const Batches *data, int64_t limit, int64_t batch_size,
                       int threads, const Watch *watch, ForwardSink sink, void *self,
                       Diag *diag);

#endif
