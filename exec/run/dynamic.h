/* Dynamic: inference that leaves at an exit as soon as a rule is satisfied.
 *
 * The graph is cut into stages after every exit. A stage runs for the samples that are
 * still in it; those that leave are handed to the sink, the others are moved together
 * and continue. A sample's result does not depend on the samples it was run with. */
#ifndef COMPRESS_EXEC_RUN_DYNAMIC_H
#define COMPRESS_EXEC_RUN_DYNAMIC_H

#include "exec/run/exit_rule.h"
#include "exec/run/ticker.h"
#include "ir/batches.h"
#include "ir/graph.h"

/* The results of the samples of `what`: exit[i] is the exit that sample i left at, and
 * logits[i * classes ...] its logits there; columns as in ForwardSink. */
typedef Status (*DynamicSink)(void *self, const Fetch *what, const int *exit,
                              const float *logits, const void *const *columns,
                              Diag *diag);

/* What the run took. */
typedef struct DynamicReport {
    double flops;    /* of all stages that ran, including padding */
    double seconds;  /* of running the stages, excluding fetching; summed over threads
                      */
    int64_t samples; /* that went through */
} DynamicReport;

/* Runs the first `limit` samples (0 = all) of a data set; exits[] are the logits [N,
 * classes] of the exits by depth, the last one being where everything ends. Samples are
 * ordered and distributed as in forward_batches. Fails with STATUS_MODEL when the exits
 * do not lie one after another, and as forward_batches does. */
Status dynamic_batches(Graph *graph, Node *const *exits, int exit_count,
                       const ExitRule *rule, const Batches *data, int64_t limit,
                       int64_t batch_size, int threads, const Watch *watch,
                       DynamicSink sink, void *self, DynamicReport *report, Diag *diag);

/* A graph cut after its exits, with everything its runs need, kept from one run to the
 * next: weights as products read them, plans and their memory. */
typedef struct Dynamic Dynamic;

/* Prepares a graph for about `runs` runs (params_create_packed). Graph and exits are
 * borrowed; weights must not change meanwhile. Fails with STATUS_MODEL when the exits do
 * not lie one after another, and as params_create_packed does. */
Status dynamic_open(Dynamic **out, Graph *graph, Node *const *exits, int exit_count,
                    int64_t runs, Diag *diag);

/* As dynamic_batches. One call at a time. */
Status dynamic_over(Dynamic *d, const ExitRule *rule, const Batches *data, int64_t limit,
                    int64_t batch_size, int threads, const Watch *watch, DynamicSink sink,
                    void *self, DynamicReport *report, Diag *diag);

/* NULL is allowed. */
void dynamic_close(Dynamic *d);

/* flops[e]: FLOPs of one sample of `tokens` tokens that leaves at exit e; the early
 * exits it passes are counted. With 0 tokens: as the graph says, or if it leaves them
 * open, 128 or as many as it can take. Fails as dynamic_batches does. */
Status dynamic_flops(Graph *graph, Node *const *exits, int exit_count, int64_t tokens,
                     double *flops, Diag *diag);

#endif
