/* The vocabulary that a model's token numbers refer to, compared with that of its input
 * texts.
 *
 * A model that is read with its weights and a tokenizer (ModelAsset) notes that
 * tokenizer's vocabulary in its provenance; a model that a recipe builds notes the
 * vocabulary of the first texts it gets. Model files written from them keep the note:
 * number of tokens, hash, and a sample of the tokens. Numbers from another vocabulary
 * would fit the embedding but be meaningless. For translating models, the source
 * counts. */
#ifndef COMPRESS_IO_FORMATS_MODEL_VOCABULARY_H
#define COMPRESS_IO_FORMATS_MODEL_VOCABULARY_H

#include "io/tokenizers/tokenizer.h"
#include "ir/batches.h"
#include "ir/model.h"

/* The tokens of a tokenizer, copied into the arena. */
const TokenNames *vocabulary_of(const Tokenizer *tokenizer, Arena *arena);

/* Notes a vocabulary in a model that has no note; does nothing if it is NULL. */
void vocabulary_note(Model *model, const TokenNames *vocabulary);

/* Notes the vocabulary of the tokenizer that comes with the model, if that has an input
 * "input_ids" and no note. Does nothing when there is no tokenizer, or none that
 * tokenizer_read knows. */
void vocabulary_note_own(Model *model);

/* Whether the model has a note; and whether it is for exactly these tokens. */
bool vocabulary_has_note(const Model *model);
bool vocabulary_is_noted(const Model *model, const TokenNames *vocabulary);

/* Compares the vocabulary of `what` ("tokenizer of data set ...") with that of the model
 * called `whose`. Fails with STATUS_MODEL at `at` when most tokens of the sample differ,
 * and warns about smaller differences, which added or renamed tokens explain. Does
 * nothing if one of the two is not known (NULL, or a model without a note). */
Status vocabulary_check(const Model *model, const char *whose,
                        const TokenNames *vocabulary, const char *what, Loc at,
                        Diag *diag);

#endif
