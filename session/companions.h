/* Companions: what a written model needs besides its weights, if the model lacks it and
 * the data sets that its steps read have it:
 *   - the tokenizer of texts, of the tokens that the model's note names
 *     (io/formats/model_vocabulary.h) or, without a note, of no more than it can read; of
 *     sentence pairs that have two, source_tokenizer.json and target_tokenizer.json, or
 *     the files of a Marian folder;
 *   - how images are prepared, as a preprocessor_config.json;
 *   - the names of the classes, as many as the head has.
 * A tokenizer is taken only if it cuts texts with the model as it did in the run. Data
 * sets that contradict each other contribute nothing, with a warning. */
#ifndef COMPRESS_SESSION_COMPANIONS_H
#define COMPRESS_SESSION_COMPANIONS_H

#include "session/session.h"

/* Finds the companions of the session's model, session->companions, and reads their
 * files: for the end of the plan, when it is known which data sets the steps read.
 * `planned` is the resulting model. Warns about what is left out, and about outputs that
 * cannot hold a tokenizer. */
void companions_find(Session *session, const Model *planned, Diag *diag);

/* Gives the session's model its companions, if any were found. */
void companions_give(Session *session);

/* Removes what output `i` cannot hold, if anything: companions_give adds it again. */
void companions_fit(Session *session, int i);

/* Records in a map what was found and in which data set. */
void companions_report(const Session *session, Tree *map);

/* Frees the files. NULL is allowed. */
void companions_destroy(Companions *self);

#endif
