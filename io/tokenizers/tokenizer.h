/* Tokenizer: text to token numbers and back.
 *
 * Five kinds: WordPiece (BERT and its relatives), byte-pair encoding (GPT-2, Llama and
 * theirs), Unigram (T5, XLM-RoBERTa), whole words, and characters. The numbers of the
 * first four are exactly those of the `tokenizers` library of Hugging Face, except for -
 * characters that Unicode versions disagree on;
 *   - BERT's capital sigma at the end of a word: its lower case is the final sigma, as in
 *     BERT's own code and in transformers.js;
 *   - a Metaspace with prepend_scheme first behind another pre_tokenizer, in a text whose
 *     first characters the normalizer deletes: the word still counts as the first.
 * A Tokenizer does not change once it is read: any number of threads may use one, each
 * with its own Encoding.
 */
#ifndef COMPRESS_IO_TOKENIZERS_TOKENIZER_H
#define COMPRESS_IO_TOKENIZERS_TOKENIZER_H

#include "ir/model.h"
#include "ir/status.h"
#include "ir/text.h"

#include <stddef.h>
#include <stdint.h>

typedef struct Tokenizer Tokenizer;

/* Numbers of the tokens with a special meaning, -1 if there is none. WordPiece has all
 * of the first four and neither `bos` nor `eos`. */
typedef struct SpecialIds {
    int32_t pad, unk, cls, sep, mask;
    int32_t bos, eos; /* begin and end of a text, of a language model */
} SpecialIds;

/* A text as tokens, and memory that the next text reuses. Start with zeros; free with
 * encoding_free. */
typedef struct Encoding {
    int32_t *ids;   /* [length] */
    int32_t *types; /* [length]: 0, for the second text of a pair 1 */
    size_t length;
    size_t cut;     /* tokens cut off by `max_length` */
    int32_t *words; /* [length], only by tokenizer_encode_words */

    /* Set before encoding: characters without a token are left out instead of being an
     * error. `skipped` receives their number. */
    bool skip_unknown;
    size_t skipped;

    /* private to io/tokenizers/tokenizer_encode.c */
    size_t capacity, word_capacity;
    struct EncodingScratch *scratch;
} Encoding;

/* Reads a tokenizer from
 *   - a folder: its tokenizer.json; without one its vocab.json and merges.txt; or its
 *     spiece.model, sentencepiece.bpe.model, tokenizer.model or source.spm; or its
 *     vocab.json alone (whole words), or its vocab.txt;
 *   - a tokenizer.json (a file whose name ends in .json): of the models WordPiece, BPE,
 *     Unigram, WordLevel and, our own, Characters; its padding and truncation are not
 *     applied;
 *   - a model of SentencePiece (a file whose name ends in .model or .spm): Unigram or
 * bpe;
 *   - a vocab.txt (any other file): one token per line, BERT's rules. docs/tokenizers.md
 * lists the components of each, the classes supported for files other than
 * tokenizer.json, and the keys that count in an accompanying tokenizer_config.json.
 * Special tokens that it does not name are taken from the numbers in an accompanying
 * config.json (bos_token_id, eos_token_id, pad_token_id); failing that, <s>, </s>, <pad>,
 * <unk>, <mask>, <|endoftext|> and BERT's names count if they are added tokens. Files
 * have at most 64 MiB and 2,097,150 tokens of at most 1,024 bytes. Fails with STATUS_IO,
 * or with STATUS_FORMAT at the line, or naming the component, class or key, that is
 * damaged, missing or not supported. */
Status tokenizer_read(Tokenizer **out, const char *path, Diag *diag);

/* Reads the tokenizer of translations if a folder, whose source.spm tokenizer_read uses
 * for the texts to translate, has a target.spm for them (Marian). *out is NULL if
 * tokenizer_read's own handles both. Fails as tokenizer_read does. */
Status tokenizer_read_target(Tokenizer **out, const char *path, Diag *diag);

/* Reads the tokenizer of translations at `path`, as tokenizer_read_target or else
 * tokenizer_read does; *out is NULL if the one at `source` (NULL = no path) also handles
 * them. Fails as these do. */
Status tokenizer_read_beside(Tokenizer **out, const char *path, const char *source,
                             Diag *diag);

/* Whether a model has a tokenizer among its assets. */
bool tokenizer_of_model(const Model *model);

/* Reads the tokenizer among a model's assets (ModelAsset), as from the folder that the
 * model came from. `name` is the model's in messages. Fails as tokenizer_read does, with
 * STATUS_IO if the model has no tokenizer. */
Status tokenizer_read_model(Tokenizer **out, const Model *model, const char *name,
                            Diag *diag);

/* The same for translations, as tokenizer_read_target does; *out is NULL if
 * tokenizer_read_model's own handles both, or there is none. */
Status tokenizer_read_model_target(Tokenizer **out, const Model *model, const char *name,
                                   Diag *diag);

/* Assets of a model that translates with one tokenizer per language. */
#define SOURCE_TOKENIZER "source_tokenizer.json"
#define TARGET_TOKENIZER "target_tokenizer.json"

/* Reads one asset of a model as a stand-alone tokenizer.json. `name` is the model's in
 * messages. Fails as tokenizer_read does. */
Status tokenizer_read_asset(Tokenizer **out, const Model *model, const char *asset,
                            const char *name, Diag *diag);

/* Whether two tokenizers have the same tokens and cut texts alike, judged by a dozen
 * texts and pairs that distinguish the kinds, rules and templates. */
bool tokenizer_cuts_alike(const Tokenizer *a, const Tokenizer *b);

/* Appends a tokenizer that was read from a vocab.txt as an equivalent tokenizer.json,
 * for programs that know no other file. False, with nothing appended, if there is none:
 * for other files, and if two lines of the vocab.txt are equal. */
bool tokenizer_vocab_json(Text *out, const Tokenizer *self);

/* Frees the tokenizer. NULL is allowed. */
void tokenizer_destroy(Tokenizer *self);

/* Number of tokens, including added ones: all token numbers are below it. */
int32_t tokenizer_size(const Tokenizer *self);

/* Numbers of the special tokens. */
const SpecialIds *tokenizer_specials(const Tokenizer *self);

/* Whether texts become lower case before they are cut into tokens. */
bool tokenizer_lowercases(const Tokenizer *self);

/* Text of a token, NULL when no token has this number. It is the vocabulary's own
 * spelling ("Ġthe", "##ing", "<0x0A>"); tokenizer_decode gives the text it
 * represents. */
const char *tokenizer_token(const Tokenizer *self, int32_t id);

/* Number of a token, -1 when absent. */
int32_t tokenizer_find(const Tokenizer *self, const char *token);

/* How many special tokens tokenizer_encode adds to a text, or to a pair. */
size_t tokenizer_overhead(const Tokenizer *self, bool pair);

/* The beginning-of-text token, if tokenizer_encode puts it before a text; else -1.
 * Language models were trained to continue from it. */
int32_t tokenizer_begin(const Tokenizer *self);

/* Encodes a text, or a pair when `second` is not NULL, with special tokens around them as
 * the tokenizer's template says. Added tokens ([SEP], [MASK] ...) that occur in the text
 * become their numbers. More than `max_length` tokens (0 = no limit) are cut at the end;
 * for a pair, the longer text is cut first, then both to the same length, the odd token
 * going to the longer. `at` is where the text comes from, for messages. Fails with
 * STATUS_FORMAT for invalid UTF-8, naming the byte (from 0) of the text, and for a
 * character without a token, if the tokenizer has no unknown token (unless
 * out->skip_unknown), naming it with its line and column in the text; with STATUS_RECIPE
 * when the special tokens alone exceed `max_length`. */
Status tokenizer_encode(const Tokenizer *self, Encoding *out, TextSpan first,
                        const TextSpan *second, size_t max_length, Loc at, Diag *diag);

/* Encodes only the text: no special tokens around it, nothing cut, types 0. Fails as
 * tokenizer_encode does for the text. */
Status tokenizer_encode_plain(const Tokenizer *self, Encoding *out, TextSpan text, Loc at,
                              Diag *diag);

/* Encodes words that were cut before, each as a separate text, with special tokens
 * around all of them as the template for one text says: as the `tokenizers` library does
 * with a pretokenized sequence. If tokens begin with a space that the tokenizer does not
 * add itself (GPT-2's kind), every word gets one. out->words gives the word of each
 * token, -1 for a special one; a word may have no tokens. More than `max_length` tokens
 * (0 = no limit) are cut at the end. Fails as tokenizer_encode does.
 */
Status tokenizer_encode_words(const Tokenizer *self, Encoding *out, const TextSpan *words,
                              size_t count, size_t max_length, Loc at, Diag *diag);

/* Frees the memory and empties the encoding. */
void encoding_free(Encoding *encoding);

/* --- back to text --- */

/* Number of characters (code points) of a text of valid UTF-8. */
size_t text_characters(TextSpan text);

/* Appends the text that tokens represent; special tokens are left out when
 * `skip_specials`. Bytes that are not UTF-8 become U+FFFD, one for each longest start of
 * a character. Fails with STATUS_FORMAT, at `at`, for a number without a token. */
Status tokenizer_decode(const Tokenizer *tokenizer, Text *out, const int32_t *ids,
                        size_t count, bool skip_specials, Loc at, Diag *diag);

/* The same token by token, for text shown while it is generated. Start with
 * detokenizer_start; free with detokenizer_free. */
typedef struct Detokenizer {
    const Tokenizer *tokenizer; /* must outlive it */
    bool skip_specials;

    /* private to io/tokenizers/detokenizer.c */
    size_t tokens; /* taken so far */
    int stripped;  /* characters removed from the start so far */
    Text token;    /* the token at hand */
    struct RegexScratch *regex;
    char held[4]; /* the start of a character that is not complete yet */
    size_t held_length;
} Detokenizer;

/* Starts a text; an earlier one is forgotten. */
void detokenizer_start(Detokenizer *self, const Tokenizer *tokenizer, bool skip_specials);

/* Appends what is certain of the text after one more token: everything except the start
 * of an incomplete character. Fails as tokenizer_decode does. */
Status detokenizer_add(Detokenizer *self, Text *out, int32_t id, Loc at, Diag *diag);

/* Appends the rest at the end of the text: U+FFFD for a character that was never
 * completed. Call detokenizer_start before the next token. */
void detokenizer_finish(Detokenizer *self, Text *out);

/* Frees the memory. */
void detokenizer_free(Detokenizer *self);

#endif
