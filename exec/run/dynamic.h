/* Dynamic: inference that leaves at an exit as soon as a rule is content.
 *
 * The graph is cut behind every exit into stages. A stage runs for the samples that are
 * still in it; those that leave are handed over, the others are moved together and go on.
 * What a sample gets does not depend on the samples it was run with. */
#ifndef COMPRESS_EXEC_RUN_DYNAMIC_H
#define COMPRESS_EXEC_RUN_DYNAMIC_H

#include "exec/run/exit_rule.h"
#include "exec/run/ticker.h"
#include "ir/batches.h"
#include "ir/graph.h"

/* What came of the samples of `what`: exit[i] is the exit that sample i left at, and
 * logits[i * classes ...] its logits there; columns as in ForwardSink. */
typedef Status (*DynamicSink)(void *self, const Fetch *what, const int *exit,
                              const float *logits, const void *const *columns,
                              Diag *diag);

/* What the run took. */
typedef struct DynamicReport {
    double flops;    /* of all stages that ran, padding included */
    double seconds;  /* of running the stages, fetching not included; summed over threads
                      */
    int64_t samples; /* that went through */
} DynamicReport;

/* Runs the first `limit` samples (0 = all) of a data set; exits[] are the logits [N,
 * classes] of the exits by depth, the last one being where everything ends. Samples are
 * ordered and shared as in forward_batches. Fails with STATUS_MODEL when the exits do not
 * lie one behind the other, and as forward_batches does. */
Status dynamic_batches(Graph *graph, Node *const *exits, int exit_count,
                       const ExitRule *rule, const Batches *data, int64_t limit,
                       int64_t batch_size, int threads, const Watch *watch,
                       DynamicSink sink, void *self, DynamicReport *report, Diag *diag);

/* A graph cut behind its exits, with what runs of it take, which stays from one to the
 * next: weights as products read them, plans and their memory. */
typedef struct Dynamic Dynamic;

/* Makes a graph ready for about `runs` of it (params_create_packed). Graph and exits are
 * borrowed; no weights change meanwhile. Fails with STATUS_MODEL when the exits do not
 * lie one behind the other, and as params_create_packed does. */
Status dynamic_open(Dynamic **out, Graph *graph, Node *const *exits, int exit_count,
                    int64_t runs, Diag *diag);

/* As dynamic_batches. One call at a time. */
Status dynamic_over(Dynamic *d, const ExitRule *rule, const Batches *data, int64_t limit,
                    int64_t batch_size, int threads, const Watch *watch, DynamicSink sink,
                    void *self, DynamicReport *report, Diag *diag);

/* NULL is allowed. */
void dynamic_close(Dynamic *d);

/* flops[e]: FLOPs of one sample of `tokens` tokens that leaves at exit e; the early exits
 * it passes are counted. With 0 tokens: as the graph says, or where it leaves them open,
 * 128 or as many as it takes. Fails as dynamic_batches does. */
Status dynamic_flops(Graph *graph, Node *const *exits, int exit_count, int64_t tokens,
                     double *flops, Diag *diag);

#endif
