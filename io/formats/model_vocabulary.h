/* The vocabulary that a model's token numbers mean, and those of the texts it gets.
 *
 * A model that is read, with its weights and a tokenizer (ModelAsset), notes that one's
 * vocabulary in its provenance, and a model that a recipe builds the one of the first
 * texts it gets; the model files that they become keep the note: number of tokens, hash,
 * and a sample of the tokens. Numbers of another vocabulary would fit the embedding and
 * mean nothing. Of translating models the source counts. */
#ifndef COMPRESS_IO_FORMATS_MODEL_VOCABULARY_H
#define COMPRESS_IO_FORMATS_MODEL_VOCABULARY_H

#include "io/tokenizers/tokenizer.h"
#include "ir/batches.h"
#include "ir/model.h"

/* The tokens of a tokenizer, copied into the arena. */
const TokenNames *vocabulary_of(const Tokenizer *tokenizer, Arena *arena);

/* Notes a vocabulary in a model that has none; nothing where it is NULL. */
void vocabulary_note(Model *model, const TokenNames *vocabulary);

/* Notes the vocabulary of the tokenizer that goes with the model, which has an input
 * "input_ids" and no note. Nothing when there is no tokenizer, or none that
 * tokenizer_read knows. */
void vocabulary_note_own(Model *model);

/* Whether the model has a note; and whether it is of these tokens and no others. */
bool vocabulary_has_note(const Model *model);
bool vocabulary_is_noted(const Model *model, const TokenNames *vocabulary);

/* Compares the vocabulary of `what` ("tokenizer of data set ...") with that of the model
 * called `whose`. Fails with STATUS_MODEL at `at` when most tokens of the sample are
 * others, and warns of smaller differences, which added or renamed tokens explain.
 * Nothing where one of the two is not known (NULL, or a model without a note). */
Status vocabulary_check(const Model *model, const char *whose,
                        const TokenNames *vocabulary, const char *what, Loc at,
                        Diag *diag);

#endif
