/* Probes: what every value of a net is when the inputs have given sizes.
 *
 * Exported graphs compute their shapes by their own nodes, in many ways. Instead of
 * symbols, numbers are used, for two choices of the number of samples and tokens: what
 * does not change is constant, and the effect of a chain of reshapes and transposes on a
 * value is seen from its effect on indices. Values that follow only from constants,
 * sizes, positions and masks get their numbers, so a mask or a table of angles is
 * recognised by its content, not by the nodes that make it.
 *
 * PyTorch's own layers put tokens before samples, [T, N, D], or join the two in one
 * dimension. Such values are marked (NetValue.tokens_first), and code that follows
 * elements counts them as if samples came first (io/onnx/net/trace.h).
 *
 * What does not belong to the model itself is fixed: there are no earlier keys and
 * values (past_... has length 0), positions are 0, 1, 2, ..., and use_cache_branch is
 * false. */
#ifndef COMPRESS_IO_ONNX_NET_PROBE_H
#define COMPRESS_IO_ONNX_NET_PROBE_H

#include "io/onnx/net/probe_input.h"

/* Sizes that the file leaves open but the reader knows; 0 = not known. */
typedef struct ProbeSizes {
    int64_t channels, height, width; /* of images */
} ProbeSizes;

/* Evaluates all nodes for both probes: fills NetValue.probe. If the file fixes the
 * number of samples or tokens, these sizes are opened (io/onnx/net/reopen.h): Net.fixed
 * says which, and the net's nodes change. Fails as eval_node does, naming the node, and
 * with STATUS_MODEL for an input whose size is open and not known, or if a fixed size
 * cannot be opened. */
Status probe_run(Net *net, ArrayPool *pool, const ProbeSizes *sizes, Diag *diag);

#endif
