/* The vocabulary that a model's token numbers mean, and that of the texts it gets.
 *
 * A model that is read from a folder with a tokenizer remembers how many tokens that has
 * and their hash, as "vocabulary" in its provenance, and so does one that a recipe
 * builds, of the first texts it gets; the model files that it becomes keep both. Numbers
 * of another vocabulary would fit the embedding and mean nothing. */
#ifndef COMPRESS_IO_MODEL_VOCABULARY_H
#define COMPRESS_IO_MODEL_VOCABULARY_H

#include "io/tokenizers/tokenizer.h"
#include "ir/batches.h"
#include "ir/model.h"

/* Tells a data set which vocabulary its numbers are of; the hash is put into `arena`. */
void vocabulary_of_data(Batches *data, const Tokenizer *tokenizer, Arena *arena);

/* Notes the vocabulary of a folder's tokenizer in a model with an input "input_ids".
 * Nothing when the folder has no tokenizer, or none that tokenizer_read knows. */
void vocabulary_note(Model *model, const char *folder);

/* Notes the vocabulary of a data set in a model that has none. */
void vocabulary_adopt(Model *model, const Batches *data);

/* Compares the data set called `name` with the model. As many other tokens fail with
 * STATUS_MODEL at `at`; more or fewer of them, which added tokens can explain, give a
 * warning. Nothing where one of the two is not known. */
Status vocabulary_check(const Model *model, const Batches *data, const char *name, Loc at,
                        Diag *diag);

/* The same for another model, which gets the same texts: a teacher, read from `path`. */
Status vocabulary_check_model(const Model *model, const Model *other, const char *path,
                              Loc at, Diag *diag);

/* The same for a tokenizer alone. */
Status vocabulary_check_tokenizer(const Model *model, const Tokenizer *tokenizer, Loc at,
                                  Diag *diag);

#endif
