/* Reopening: sizes that an exporter fixed, open again.
 *
 * PyTorch's exporter, told of no dynamic axes, fixes how many samples and tokens there
 * are and writes both numbers into the graph: shapes of reshapes, tables cut to so many
 * rows, masks of so many tokens. A net of such a file is evaluated with the file's own
 * sizes first. Beside the probes that says what each dimension is made of, and so what
 * the numbers in the graph stood for:
 *
 * - of a Reshape, the dimensions of its operand in their order, which its result divides
 *   in another way (where a 1 could be samples or nothing, see match_shape);
 * - of an Expand, its operand's, or as many as there are tokens;
 * - what is added, compared or joined and has as many rows as the file has tokens: the
 *   first rows, as many as there are tokens; what has one row for each sample, and the
 *   same in all of them: that row.
 *
 * With the file's own sizes the net stays what it was. A shorter text gets what the file
 * gives for it when padding fills it up that the mask hides. That samples do not meet is
 * checked where the net is lifted: no op of ours lets them (infer_samples,
 * exec/infer.h). */
#ifndef COMPRESS_IO_ONNX_NET_REOPEN_H
#define COMPRESS_IO_ONNX_NET_REOPEN_H

#include "io/onnx/net/array.h"

/* What is counted: samples, tokens, and the tokens of a source. */
enum { COUNTED_SAMPLES, COUNTED_TOKENS, COUNTED_SOURCE, COUNTED };

/* The size of an input's dimension in the file; 0 = it is open. */
int64_t reopen_fixed(const NetValue *input, int dim);

/* What a dimension of an input counts where a file may fix it; -1 = nothing. */
int reopen_counted(const Net *net, const NetValue *input, int dim);

/* How many samples, tokens or tokens of a source there are when the file's own sizes are
 * evaluated: the number that it fixes, or as many as in the last probe. */
int64_t reopen_file_count(const Net *net, int counted);

/* Fills Net.fixed by the inputs; all 0 where nothing is fixed, or inputs differ, or there
 * are too few tokens for the probes. */
void reopen_find(Net *net);

/* Whether a net's sizes were fixed and are open now. */
bool reopen_any(const Net *net);

typedef struct Reopen {
    Net *net;
    ArrayPool *pool;
    NetNode **nodes;   /* those of the net so far, with those that were put between */
    NetValue **values; /* that are new */
    int node_count, node_capacity, value_count, value_capacity;
} Reopen;

/* Gives a node whose operands have been evaluated (NetValue.fixed and .probe; its results
 * NetValue.fixed alone) operands without fixed sizes. Fails with STATUS_MODEL where it is
 * not known what a size counts. */
Status reopen_node(Reopen *r, NetNode *node, Diag *diag);

/* Puts the nodes and values that were made into the net; frees what the reopening holds,
 * also after a failure. */
void reopen_end(Reopen *r);

#endif
