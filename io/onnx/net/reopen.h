/* Reopening: making sizes that an exporter fixed open again.
 *
 * PyTorch's exporter, without dynamic axes, fixes the numbers of samples and tokens and
 * writes them into the graph: shapes of reshapes, tables cut to that many rows, masks of
 * that many tokens. The net of such a file is first evaluated with the file's own sizes.
 * Compared with the probes, that shows what each dimension consists of, and so what the
 * numbers in the graph stood for:
 *
 * - of a Reshape, the dimensions of its operand in their order, which its result divides
 *   in another way (where a 1 could be samples or nothing, see match_shape);
 * - of an Expand, its operand's, or as many as there are tokens;
 * - what is added, compared or joined and has as many rows as the file has tokens: the
 *   first rows, as many as there are tokens; what has one row for each sample, and the
 *   same in all of them: that row.
 *
 * With the file's own sizes, the net is unchanged. A shorter text gets the result that
 * the file gives for it with masked padding. That samples do not interact is checked
 * when the net is lifted: none of our ops lets them (infer_samples, exec/infer.h). */
#ifndef COMPRESS_IO_ONNX_NET_REOPEN_H
#define COMPRESS_IO_ONNX_NET_REOPEN_H

#include "io/onnx/net/array.h"

/* What is counted: samples, tokens, and the tokens of a source. */
enum { COUNTED_SAMPLES, COUNTED_TOKENS, COUNTED_SOURCE, COUNTED };

/* The size of an input's dimension in the file; 0 = it is open. */
int64_t reopen_fixed(const NetValue *input, int dim);

/* What a dimension of an input counts if a file may fix it; -1 = nothing. */
int reopen_counted(const Net *net, const NetValue *input, int dim);

/* The number of samples, tokens or source tokens when the file's own sizes are
 * evaluated: the number that it fixes, or that of the last probe. */
int64_t reopen_file_count(const Net *net, int counted);

/* Fills Net.fixed by the inputs; all 0 where nothing is fixed, or inputs differ, or there
 * are too few tokens for the probes. */
void reopen_find(Net *net);

/* Whether a net's sizes were fixed and are now open. */
bool reopen_any(const Net *net);

typedef struct Reopen {
    Net *net;
    ArrayPool *pool;
    NetNode **nodes;   /* those of the net so far, including inserted ones */
    NetValue **values; /* that are new */
    int node_count, node_capacity, value_count, value_capacity;
} Reopen;

/* Gives a node whose operands have been evaluated (NetValue.fixed and .probe; its results
 * only NetValue.fixed) operands without fixed sizes. Fails with STATUS_MODEL if it is
 * not known what a size counts. */
Status reopen_node(Reopen *r, NetNode *node, Diag *diag);

/* Puts the new nodes and values into the net; frees what the reopening holds, also after
 * a failure. */
void reopen_end(Reopen *r);

#endif
