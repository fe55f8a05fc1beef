/* Sentence embeddings: one vector for each text, or image, pooled from a model's tokens.
 *
 * Two keys of a configuration, which transformers does not have, ask for it: `pooling`
 * (mean, first, last; none) and `normalize`. In folders of sentence-transformers they
 * follow from files of their own: io/formats/sentence_files.h. */
#ifndef COMPRESS_IO_FAMILIES_SENTENCE_H
#define COMPRESS_IO_FAMILIES_SENTENCE_H

#include "ir/model.h"

#define SENTENCE_POOLING   "pooling"
#define SENTENCE_NORMALIZE "normalize"

/* Gives a graph that a family built the output `embedding` [N, width], when the model's
 * configuration asks for it: the mean of the tokens that are no padding, the first or the
 * last of them, divided by its L2 norm with `normalize: true`. Predictions go, and the
 * task is TASK_EMBED. `pooling: none` takes the embedding of a model that has one. Fails
 * with STATUS_MODEL at the key: another value, or a model without states of tokens. */
Status sentence_build(Model *model, Diag *diag);

#endif
