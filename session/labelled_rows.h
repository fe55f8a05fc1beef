/* Labelled rows: samples whose labels are next tokens, with the positions that have
 * labels, so that a model's head is computed for them alone. */
#ifndef COMPRESS_SESSION_LABELLED_ROWS_H
#define COMPRESS_SESSION_LABELLED_ROWS_H

#include "ir/batches.h"
#include "ir/graph.h"

/* Name of the column and of the input: i32[N, M], 0 where a sample has fewer. */
#define LABELLED_POSITIONS "labelled_positions"

/* Samples [first, first + count) of `data`, which has columns input_ids, attention_mask
 * and labels i32[T] and outlives the result. Its columns are input_ids, attention_mask,
 * labels i32[M] of the positions that have one, INDEX_SKIP behind the last, and
 * LABELLED_POSITIONS. Fetches every sample once. Fails as that does. */
Status labelled_rows_create(Batches **out, const Batches *data, int64_t first,
                            int64_t count, Diag *diag);

/* Lets the matrix at the end of `logits` [N, T, V], behind which there are but ops on
 * single values, read the tokens at LABELLED_POSITIONS in place of all: [N, M, V]. False
 * where there is no such matrix, and nothing has changed. */
Status labelled_rows_gather(bool *done, Graph *graph, Node *logits, Diag *diag);

#endif
