/* Forward: a graph run over the samples of a data set. */
#ifndef COMPRESS_EXEC_RUN_FORWARD_H
#define COMPRESS_EXEC_RUN_FORWARD_H

#include "exec/run/ticker.h"
#include "ir/batches.h"
#include "ir/graph.h"

/* Receives results of a run for the samples of `what`: values[i] is result i (float *),
 * columns[j] the samples' data as fetched. In shapes, T is what->tokens, S what->source
 * and M batches_masked of the data set and what->tokens. One call at a time; in the data
 * set's order, or by length if samples have lengths. */
typedef Status (*ForwardSink)(void *self, const Fetch *what, const float *const *values,
                              const void *const *columns, Diag *diag);

/* Runs the graph forward over the first `limit` samples (0 = all), without augmentation,
 * and hands the results to `sink`. A result that is a loss is the mean over what counts
 * in each chunk of at most `batch_size` samples. Chunks are distributed among the
 * threads; if there are fewer chunks than threads, threads share the calls of a chunk.
 * When a chunk fails, the sink has received all samples before it, for any number of
 * threads. Collective: ranks share the samples (lanes_sweep), and each sink gets all of
 * them. */
Status forward_batches(Graph *graph, Node *const *results, int result_count,
                       const Batches *data, int64_t limit, int64_t batch_size,
                       int threads, const Watch *watch, ForwardSink sink, void *self,
                       Diag *diag);

/* A graph with everything its runs need, kept from one run to the next: weights as
 * products read them, plans and their memory. */
typedef struct Forward Forward;

/* Prepares a graph for about `runs` runs (params_create_packed). Graph and results are
 * borrowed; weights must not change meanwhile. Fails as params_create_packed does. */
Status forward_open(Forward **out, Graph *graph, Node *const *results, int result_count,
                    int64_t runs, Diag *diag);

/* Another one for the same graph and weights, with its own plans and memory: the two may
 * run at the same time, in two threads. To be closed as well, in any order. */
Forward *forward_beside(const Forward *f);

/* NULL is allowed. */
void forward_close(Forward *f);

/* As forward_batches. One call of each at a time. */
Status forward_over(Forward *f, const Batches *data, int64_t limit, int64_t batch_size,
                    int threads, const Watch *watch, ForwardSink sink, void *self,
                    Diag *diag);

#endif
