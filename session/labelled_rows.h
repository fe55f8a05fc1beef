/* Labelled rows: samples whose labels are next tokens, with the positions that have
 * labels, so that a model's head is computed only for them. */
#ifndef COMPRESS_SESSION_LABELLED_ROWS_H
#define COMPRESS_SESSION_LABELLED_ROWS_H

#include "ir/batches.h"
#include "ir/graph.h"

/* Name of the column and of the input: i32[N, M], padded with 0. */
#define LABELLED_POSITIONS "labelled_positions"

/* Samples [first, first + count) of `data`, which has columns input_ids, attention_mask
 * and labels i32[T] and outlives the result. Its columns are input_ids, attention_mask,
 * labels i32[M] of the positions that have one, padded with INDEX_SKIP, and
 * LABELLED_POSITIONS. Fetches every sample once. Fails as that does. */
Status labelled_rows_create(Batches **out, const Batches *data, int64_t first,
                            int64_t count, Diag *diag);

/* Makes the matrix at the end of `logits` [N, T, V], after which there are only
 * elementwise ops, read the tokens at LABELLED_POSITIONS instead of all: [N, M, V].
 * False, with nothing changed, if there is no such matrix. */
Status labelled_rows_gather(bool *done, Graph *graph, Node *logits, Diag *diag);

#endif
