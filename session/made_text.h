/* Made text: the text of a language model's tokens, up to one of several stops. */
#ifndef COMPRESS_SESSION_MADE_TEXT_H
#define COMPRESS_SESSION_MADE_TEXT_H

#include "io/tokenizers/tokenizer.h"
#include "ir/field.h"

typedef struct MadeText {
    Text prompt;    /* the tokens that were there before, as text */
    Text made;      /* the text after that; ends before a stop */
    size_t certain; /* bytes of it that no stop can remove any more */
    bool stopped;

    /* private to session/made_text.c */
    Detokenizer text;
    const StringList *stops;
} MadeText;

/* Starts with the tokens of a prompt; stops in the prompt do not count. `stops` and
 * tokenizer must outlive it. The struct must be zeros or hold an earlier text. Fails as
 * detokenizer_add. */
Status made_text_start(MadeText *self, const Tokenizer *tokenizer,
                       const StringList *stops, const int32_t *prompt, int64_t count,
                       Diag *diag);

/* Adds the part of a token's text that is certain; a token beyond the vocabulary adds
 * nothing. */
Status made_text_add(MadeText *self, int32_t token, Diag *diag);

/* Adds the rest at the end of the text; all of it is then certain. */
void made_text_finish(MadeText *self);

/* Tokens that end a text: the vocabulary's end token, and the one that begins a text if
 * it is one of the stops; -1 = none. */
void made_text_ends(int32_t ends[2], const StringList *stops, const Tokenizer *tokenizer);

/* Frees the memory. */
void made_text_free(MadeText *self);

#endif
