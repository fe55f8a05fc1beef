/* User inputs: texts and image files as the named inputs of a model. */
#ifndef COMPRESS_SESSION_USER_INPUTS_H
#define COMPRESS_SESSION_USER_INPUTS_H

#include "io/formats/checkpoint.h"
#include "io/tokenizers/tokenizer.h"
#include "ir/field.h"
#include "ir/model.h"

/* A word of a text, and its first token; -1 where it was cut off. */
typedef struct UserWord {
    TextSpan text;
    int64_t token;
} UserWord;

/* One text, or a pair. */
typedef struct UserText {
    TextSpan first, second;
    bool pair;
    Loc at;
    UserWord *words; /* if texts are cut into words: user_inputs_of_texts */
    int word_count;

    /* Set by user_inputs_of_texts, in the inputs' arena: the tokens, and those of the
     * second text, [second_begin, second_end); none for a single text. */
    const int32_t *ids;
    size_t second_begin, second_end;
} UserText;

typedef struct UserTexts {
    UserText *items;
    int count;
} UserTexts;

/* Texts as they were given on the command line, and those of a file of JSON Lines: maps
 * with `text`, and `text_pair` for the second one of a pair. In the arena. Both fail
 * with STATUS_IO, STATUS_FORMAT at the line. */
void user_texts_of(UserTexts *out, Arena *arena, const StringList *texts);
Status user_texts_read(UserTexts *out, Arena *arena, const char *path, Diag *diag);

/* Reads the tokenizer at `path`; NULL = the model's own, or the source's if it has two.
 * Fails with STATUS_USAGE if it has none, and as tokenizer_read. */
Status user_tokenizer_read(Tokenizer **out, const char *path, const Model *model,
                           const char *name, Diag *diag);

/* The texts as input_ids, attention_mask and token_type_ids, as far as the model has
 * these inputs, padded to the longest. Texts with more tokens than the model has
 * positions are cut, with a warning. For a model that labels words (task label_tokens)
 * texts are cut into words (WORDS_REGEX, io/tokenizers/word_split.h: apostrophes and
 * hyphens join letters, other punctuation stands alone), which are recorded in `texts`,
 * in the inputs' arena, and encoded as by tokenizer_encode_words. Fails with
 * STATUS_MODEL if the model takes other inputs, with STATUS_USAGE for a pair of texts if
 * words are needed, and as tokenizer_encode. */
Status user_inputs_of_texts(Checkpoint **out, UserTexts *texts,
                            const Tokenizer *tokenizer, const Model *model, Diag *diag);

/* The tokens of a text or pair, with special tokens and without truncation: a map of
 * `input_ids`, for a pair `token_type_ids`, and `tokens` as the vocabulary spells them.
 * In the arena. Fails as tokenizer_encode. */
Status user_text_tokens(Tree **out, Arena *arena, const UserText *text,
                        const Tokenizer *tokenizer, Diag *diag);

/* Image files as pixel_values, prepared as the preprocessor_config.json at `preprocessor`
 * says; NULL = the model's own. Fails with STATUS_USAGE if there is none, STATUS_MODEL
 * if the model takes other inputs or sizes, and as image_read. */
Status user_inputs_of_images(Checkpoint **out, const StringList *paths,
                             const char *preprocessor, const Model *model, Diag *diag);

#endif
