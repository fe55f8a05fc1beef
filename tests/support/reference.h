/* Support for tests against reference tensors: building, running and comparing. */
#ifndef COMPRESS_TESTS_SUPPORT_REFERENCE_H
#define COMPRESS_TESTS_SUPPORT_REFERENCE_H

#include "exec/run/run.h"
#include "io/families/build.h"
#include "io/formats/safetensors.h"

/* Binds every storage of the graph to the checkpoint's tensor of the same name. */
void reference_bind(Graph *graph, const Checkpoint *weights);

/* Copies the reference's tensor `name` into the workspace's input `input`. */
void reference_feed(Workspace *workspace, const Checkpoint *reference, const char *name,
                    const char *input);

/* Fails the test unless |got - want| <= tolerance * largest |want| over the tensor, or
 * over `scale` when that is larger. `precision` says what `got` holds. */
void reference_compare(const Checkpoint *reference, const char *name, const void *got,
                       Precision precision, double tolerance, double scale);

/* Largest absolute value of all tensors of a file. */
double reference_largest(const Checkpoint *reference);

/* Adds the cross-entropy of output `logits` against an input `labels` of its shape. */
Node *reference_loss(Graph *graph);

/* One plan with its weights and workspace, for single-threaded tests. */
typedef struct Runner {
    Params *params;
    Plan *plan;
    Workspace *workspace;
    void *gradients;
    Precision precision;
} Runner;

/* Plans `graph` for n samples and binds everything; fails the test on error. */
void runner_open(Runner *runner, Graph *graph, int64_t n, Precision precision, Node *loss,
                 Node *const *results, int count);

/* The same with sizes for all symbols. */
void runner_open_sizes(Runner *runner, Graph *graph, const int64_t sizes[DIM_SYMBOLS],
                       Precision precision, Node *loss, Node *const *results, int count);

/* Forward, and with a loss also backward with seed 1 into zeroed gradients. */
void runner_run(Runner *runner);

void runner_close(Runner *runner);

/* Compares the gradients of all trainable storages with `prefix` + storage name. */
void runner_compare_gradients(const Runner *runner, const Graph *graph,
                              const Checkpoint *gradients, const char *prefix,
                              double tolerance);

/* The loss of an image classifier, which is added to its graph, and its gradients,
 * against those of the reference and of the file `gradients`. */
void reference_image_gradients(Graph *graph, const Checkpoint *reference,
                               const char *gradients);

#endif
