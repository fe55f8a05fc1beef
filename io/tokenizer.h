/* Tokenizer: text to token numbers, as BERT and its relatives do (WordPiece).
 *
 * The numbers are those of the `tokenizers` library of Hugging Face, one for one, but for
 * characters that Unicode versions disagree on, and for capital sigma at the end of a
 * word: its lower case is the final sigma, as in BERT's own code and in transformers.js.
 * A Tokenizer does not change once it is read: any number of threads may use one, each
 * with an Encoding of its own. */
#ifndef COMPRESS_IO_TOKENIZER_H
#define COMPRESS_IO_TOKENIZER_H

#include "io/wordpiece.h"

typedef struct Tokenizer Tokenizer;

/* Numbers of the tokens with a meaning; `mask` is -1 when the vocabulary has none. */
typedef struct SpecialIds {
    int32_t pad, unk, cls, sep, mask;
} SpecialIds;

/* A piece of text; it may hold NUL. */
typedef struct TextSpan {
    const char *text;
    size_t length;
} TextSpan;

/* A text as tokens, and memory that the next text uses again. Start with zeros; free with
 * encoding_free. */
typedef struct Encoding {
    int32_t *ids;   /* [length] */
    int32_t *types; /* [length]: 0, for the second text of a pair 1 */
    size_t length;

    /* private to io/tokenizer.c */
    size_t capacity;
    IdList first, second;
    Text normalized;
    MarkRun marks;
} Encoding;

/* Reads a tokenizer from
 *   - a folder: its tokenizer.json, or without one its vocab.txt;
 *   - a tokenizer.json (a file whose name ends in .json): model WordPiece, normalizer
 *     BertNormalizer or null, pre_tokenizer BertPreTokenizer, post_processor
 *     TemplateProcessing or BertProcessing; its padding and truncation are not applied;
 *   - a vocab.txt (any other file): one token a line, BERT's rules.
 * A tokenizer_config.json beside either file may name the special tokens ([PAD], [UNK],
 * [CLS], [SEP], [MASK] otherwise); beside a vocab.txt it also sets do_lower_case (true
 * otherwise), strip_accents (as do_lower_case) and tokenize_chinese_chars (true).
 * Files have at most 64 MiB and 2,097,150 tokens of at most 1,024 bytes. Fails with
 * STATUS_IO, or with STATUS_FORMAT at the line, or naming the component, that is damaged,
 * missing or not supported. */
Status tokenizer_read(Tokenizer **out, const char *path, Diag *diag);

/* Frees the tokenizer. NULL is allowed. */
void tokenizer_destroy(Tokenizer *tokenizer);

/* Number of tokens, added ones included: all numbers are below it. */
int32_t tokenizer_size(const Tokenizer *tokenizer);

/* Numbers of the special tokens. */
const SpecialIds *tokenizer_specials(const Tokenizer *tokenizer);

/* Text of a token, NULL when there is none of this number. */
const char *tokenizer_token(const Tokenizer *tokenizer, int32_t id);

/* Number of a token, -1 when absent. */
int32_t tokenizer_find(const Tokenizer *tokenizer, const char *token);

/* How many special tokens tokenizer_encode adds to a text, or to a pair. */
size_t tokenizer_overhead(const Tokenizer *tokenizer, bool pair);

/* Encodes a text, or a pair when `second` is not NULL, with special tokens around them as
 * the tokenizer's template says. Added tokens ([SEP], [MASK] ...) that stand in the text
 * become their numbers. More than `max_length` tokens (0 = no limit) are cut at the end;
 * of a pair the longer text is cut first, then both to the same length, the odd token
 * going to the longer.
 * `at` is where the text comes from, for messages. Fails with STATUS_FORMAT for invalid
 * UTF-8, naming the byte (from 0) of the text; with STATUS_RECIPE when the special tokens
 * alone exceed `max_length`. */
Status tokenizer_encode(const Tokenizer *tokenizer, Encoding *out, TextSpan first,
                        const TextSpan *second, size_t max_length, Loc at, Diag *diag);

/* Encodes a text alone: no special tokens around it, nothing cut, types 0. Fails as
 * tokenizer_encode for invalid UTF-8. */
Status tokenizer_encode_plain(const Tokenizer *tokenizer, Encoding *out, TextSpan text,
                              Loc at, Diag *diag);

/* Frees the memory and empties the encoding. */
void encoding_free(Encoding *encoding);

#endif
