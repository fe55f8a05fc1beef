/* Tokenizer: its readers. io/tokenizers/tokenizer_read.c calls one for each kind of
 * file; they call each other for the parts of a tokenizer.json. */
#ifndef COMPRESS_IO_TOKENIZERS_TOKENIZER_READERS_H
#define COMPRESS_IO_TOKENIZERS_TOKENIZER_READERS_H

#include "io/tokenizers/tokenizer_build.h"

/* --- one kind of file each: `name` in the folder, where the configuration lies too. What
 * is not needed later goes into the arena `scratch` --- */

/* Fills an empty tokenizer from a tokenizer.json. */
Status tokenizer_read_json(Tokenizer *self, Arena *scratch, const Folder *folder,
                           const char *name, Diag *diag);

/* Fills an empty tokenizer from a vocab.txt, one token per line. */
Status tokenizer_read_vocab(Tokenizer *self, Arena *scratch, const Folder *folder,
                            const char *name, Diag *diag);

/* Fills an empty tokenizer from the vocab.json, `name`, and the merges.txt of a
 * folder: GPT-2's. */
Status tokenizer_read_merges(Tokenizer *self, Arena *scratch, const Folder *folder,
                             const char *name, Diag *diag);

/* Fills an empty tokenizer from a SentencePiece model: alone, or with what the tokenizer
 * class named by the configuration adds to it. */
Status tokenizer_read_pieces(Tokenizer *self, Arena *scratch, const Folder *folder,
                             const char *name, Diag *diag);

/* Fills an empty tokenizer from a vocab.json of whole words, Marian's without its
 * SentencePiece model. */
Status tokenizer_read_words(Tokenizer *self, Arena *scratch, const Folder *folder,
                            const char *name, Diag *diag);

/* --- parts of a tokenizer.json --- */

/* Read what is specific to a kind of tokenizer.json; the tokens must be in their
 * places. */
Status bpe_read(Tokenizer *self, const Tree *root, const Tree *model, SpecialNames *names,
                Diag *diag);
Status characters_read(Tokenizer *self, const Tree *root, const Tree *model,
                       const AddedToken *added, int count, SpecialNames *names,
                       Diag *diag);

/* The same for whole words. */
Status wordlevel_read(Tokenizer *self, const Tree *root, const Tree *model,
                      SpecialNames *names, Diag *diag);

/* The same for Unigram, and its vocabulary, a list of pieces with their scores, as a map
 * of numbers; in the arena. Fail with STATUS_FORMAT. */
Status unigram_read(Tokenizer *self, const Tree *root, const Tree *model,
                    SpecialNames *names, Diag *diag);
Status unigram_vocab(const Tree **vocab, Arena *arena, const Tree *model,
                     const Tree *root, Diag *diag);

/* Appends the tokens that tokenizer_config.json (NULL = none) lists and tokenizer.json
 * does not; in the arena. Fails with STATUS_FORMAT. */
Status config_tokens(AddedToken **out, int *count, Arena *arena, const Tree *config,
                     Diag *diag);

/* Apply what tokenizer_config.json (NULL = none) overrides: do_lower_case, strip_accents
 * and tokenize_chinese_chars of a BertNormalizer, and add_prefix_space of a ByteLevel,
 * before the added tokens are made known; add_bos_token and add_eos_token of Llama's and
 * Gemma's classes, when everything is read. Fail with STATUS_FORMAT, at the key, if it
 * contradicts a tokenizer.json that it cannot change. */
Status config_text(Tokenizer *self, const Tree *config, Diag *diag);
Status config_template(Tokenizer *self, const Tree *config, Diag *diag);

/* Vocabulary of a model Characters as a map of numbers, even if it is a list; in the
 * arena. Fails with STATUS_FORMAT. */
Status characters_vocab(const Tree **vocab, Arena *arena, const Tree *model,
                        const Tree *root, Diag *diag);

/* Reads the templates of a tokenizer.json's post_processor; the vocabulary must be
 * complete. */
Status template_read(Tokenizer *self, const Tree *root, Diag *diag);

/* Reads the decoder of a tokenizer.json, or sets the model's default. */
Status decoder_read(Tokenizer *self, const Tree *root, Diag *diag);

#endif
