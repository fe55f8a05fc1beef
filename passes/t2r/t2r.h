/* T2R: what attention_to_t2r and merge_t2r share.
 *
 * Kasai et al., Finetuning Pretrained Transformers into RNNs, EMNLP 2021: softmax
 * attention becomes linear attention over feature maps phi(x) = relu(W x + b), which runs
 * as a recurrence with a state of constant size. */
#ifndef COMPRESS_PASSES_T2R_T2R_H
#define COMPRESS_PASSES_T2R_T2R_H

#include "ir/storage.h"
#include "passes/fault.h"
#include "passes/nodes.h"

/* "decoder.3": where a node stands, for messages and records; in the context's arena. */
const char *t2r_place(const PassContext *ctx, const Node *node);

/* Initial weights [G, k, d] of a feature map that has none. Row i of a head is row i mod
 * d of the identity, negated in every other round: 2 d features are relu(x) and
 * relu(-x). Or rows drawn from a standard normal distribution and made orthogonal, their
 * lengths kept, in blocks of at most d within each head, which lowers the variance of
 * positive features (Choromanski et al., Rethinking Attention with Performers, ICLR
 * 2021, section 2.4). Fail with STATUS_MEMORY. */
Status t2r_draw_identity(Tensor *tensor, Diag *diag);
Status t2r_draw_orthogonal(Tensor *tensor, uint64_t key, Diag *diag);

/* What to measure clamped rows on. */
typedef struct T2rData {
    const char *data;          /* name of the data set */
    int64_t limit, batch_size; /* as in forward_batches */
} T2rData;

/* Adds list "clamped" to the step's record: for every linear attention of the graph
 * without a window the share of its rows (one for each sample, token that no mask leaves
 * out, and head) whose denominator lies below eps, so that eps takes its place. When
 * planning, only the data set is checked. Fails as step_data does. */
Status t2r_record_clamped(PassContext *ctx, Graph *graph, const T2rData *on, Diag *diag);

#endif
