/* Probes: what every value of a net is when the inputs have given sizes.
 *
 * Shapes of exported graphs are computed by their own nodes, in many ways. Rather than
 * with symbols, they are computed with numbers, for two choices of the number of samples
 * and tokens: what does not change is constant, and what a chain of reshapes and
 * transposes does to a value is seen by what it does to indices. Values that follow from
 * constants, sizes, positions and masks alone get their numbers, so that a mask or a
 * table of angles is known by what it says, not by the nodes that make it.
 *
 * PyTorch's own layers have tokens stand before samples, [T, N, D], or those two joined
 * in one dimension. Such values are marked (NetValue.tokens_first), and whoever follows
 * elements counts them as if samples stood first (io/onnx/net/trace.h).
 *
 * What is not the model's own is fixed: there are no earlier keys and values (past_...
 * has length 0), positions are 0, 1, 2, ..., and use_cache_branch is false. */
#ifndef COMPRESS_IO_ONNX_NET_PROBE_H
#define COMPRESS_IO_ONNX_NET_PROBE_H

#include "io/onnx/net/probe_input.h"

/* Sizes that the file leaves open but whoever reads it knows; 0 = not known. */
typedef struct ProbeSizes {
    int64_t channels, height, width; /* of images */
} ProbeSizes;

/* Evaluates all nodes for both probes: fills NetValue.probe. Where the file fixes how
 * many samples or tokens there are, they are opened (io/onnx/net/reopen.h): Net.fixed
 * says which, and net's nodes change. Fails as eval_node does, naming the node, and with
 * STATUS_MODEL for an input whose size is open and not known, or where what was fixed
 * cannot be opened. */
Status probe_run(Net *net, ArrayPool *pool, const ProbeSizes *sizes, Diag *diag);

#endif
