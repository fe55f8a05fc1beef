/* Companions: what people need beside the weights of a model that a run writes, where the
 * model came without and the data sets that its steps read have it:
 *   - the tokenizer of texts, of the tokens that the model's note names
 *     (io/formats/model_vocabulary.h) or, without a note, of no more than it can read; of
 *     sentence pairs that have two, source_tokenizer.json and target_tokenizer.json, or
 *     the files of a Marian folder;
 *   - how images are prepared, as a preprocessor_config.json;
 *   - the names of the classes, as many as the head has.
 * A tokenizer goes along where it cuts texts with the model as it did in the run. Data
 * sets that contradict each other give nothing, with a warning. */
#ifndef COMPRESS_SESSION_COMPANIONS_H
#define COMPRESS_SESSION_COMPANIONS_H

#include "session/session.h"

/* Finds the companions of the session's model, session->companions, and reads their
 * files: for the end of the plan, when it is known which data sets the steps read.
 * `planned` is the model that comes out. Warns of what is left out, and of outputs that
 * cannot hold a tokenizer. */
void companions_find(Session *session, const Model *planned, Diag *diag);

/* Gives the session's model its companions; nothing where none were found. */
void companions_give(Session *session);

/* Takes back what output `i` cannot hold, if anything: companions_give gives it again. */
void companions_fit(Session *session, int i);

/* Puts into a map what was found and in which data set. */
void companions_report(const Session *session, Tree *map);

/* Frees the files. NULL is allowed. */
void companions_destroy(Companions *self);

#endif
