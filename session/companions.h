/* Companions: what people need beside the weights of a model that a run writes. */
#ifndef COMPRESS_SESSION_COMPANIONS_H
#define COMPRESS_SESSION_COMPANIONS_H

#include "session/session.h"

/* Gives the session's model what it came without and the recipe's data sets have, of each
 * the first one in the recipe's order:
 *   - the tokenizer of texts whose tokens are those that the model's note names
 *     (io/formats/model_vocabulary.h) or, without a note, no more than the model can
 *     read; not one that the model's configuration turns into another, nor one
 *     that an output cannot hold. Of sentence pairs
 *     that have two, source_tokenizer.json and target_tokenizer.json;
 *   - the preprocessor_config.json of images;
 *   - the names of the classes (`id2label`), where there are as many as the head has.
 * For after the steps, before the model is written. Which steps ran does not matter, so
 * that a run that was resumed gives the same. Warns of files that can no longer be read,
 * which are left out. */
void companions_take(Session *session, Diag *diag);

#endif
