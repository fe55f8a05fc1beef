/* Sentence embeddings: one vector per text or image, pooled from a model's tokens.
 *
 * Two keys of a configuration, which transformers does not have, ask for it: `pooling`
 * (mean, first, last; none) and `normalize`. In folders of sentence-transformers they
 * follow from files of their own: io/formats/sentence_files.h. */
#ifndef COMPRESS_IO_FAMILIES_SENTENCE_H
#define COMPRESS_IO_FAMILIES_SENTENCE_H

#include "ir/model.h"

#define SENTENCE_POOLING   "pooling"
#define SENTENCE_NORMALIZE "normalize"

/* Adds the output `embedding` [N, width] to a graph that a family built, if the model's
 * configuration asks for it: the mean of the tokens that are not padding, or the first
 * or last of them, divided by its L2 norm with `normalize: true`. Predictions are
 * dropped, and the task is TASK_EMBED. `pooling: none` removes the embedding of a model
 * that has one. Fails with STATUS_MODEL at the key for another value, or a model without
 * token states. */
Status sentence_build(Model *model, Diag *diag);

#endif
