/* Support for tests against reference tensors: building, running and comparing. */
#ifndef COMPRESS_TESTS_SUPPORT_REFERENCE_H
#define COMPRESS_TESTS_SUPPORT_REFERENCE_H

#include "exec/run/run.h"
#include "io/families/build.h"
#include "io/formats/safetensors.h"
#include "tests/support/rounding.h"

/* Binds every storage of the graph to the checkpoint's tensor of the same name. */
void reference_bind(Graph *graph, const Checkpoint *weights);

/* Copies the reference's tensor `name` into the workspace's input `input`. */
void reference_feed(Workspace *workspace, const Checkpoint *reference, const char *name,
                    const char *input);

/* Fails the test unless `got`, of chains of `terms` terms in a precision, is the tensor
 * `name` within their rounding (tests/support/rounding.h), whose magnitude is the largest
 * value of the tensor, or `least` when that is larger. References are computed in float64
 * and stored as float32, which is one more rounding. */
void reference_compare(const Checkpoint *reference, const char *name, const void *got,
                       Precision precision, double terms, double least);

/* Largest absolute value of all tensors of a file. */
double reference_largest(const Checkpoint *reference);

/* Adds the cross-entropy of output `logits` against an input `labels` of its shape. */
Node *reference_loss(Graph *graph);

/* One plan with its weights and workspace, for single-threaded tests. */
typedef struct Runner {
    Graph *graph;
    Node *loss;
    Params *params;
    Plan *plan;
    Workspace *workspace;
    void *gradients;
    Precision precision;
    int64_t sizes[DIM_SYMBOLS];
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

/* Terms of the chain that ends in a node, in this runner's sizes. */
double runner_terms(const Runner *runner, const Node *node);

/* Compares the value of a node with a tensor, within the rounding of its chain. */
void runner_compare(const Runner *runner, const Checkpoint *reference, const char *name,
                    const Node *node);

/* Compares the gradients of all trainable storages with `prefix` + storage name, within
 * the rounding of the chain to the loss and back. */
void runner_compare_gradients(const Runner *runner, const Checkpoint *gradients,
                              const char *prefix);

/* The loss of an image classifier, which is added to its graph, and its gradients,
 * against those of the reference and of the file `gradients`. */
void reference_image_gradients(Graph *graph, const Checkpoint *reference,
                               const char *gradients);

#endif
