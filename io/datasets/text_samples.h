/* Text samples: rows of a table as tokens and labels, as kept by the data format `text`.
 */
#ifndef COMPRESS_IO_DATASETS_TEXT_SAMPLES_H
#define COMPRESS_IO_DATASETS_TEXT_SAMPLES_H

#include "io/datasets/data_table.h"
#include "io/tokenizers/tokenizer.h"
#include "ir/field.h"

/* Most classes, and most names of classes. */
enum { TEXT_CLASSES_MAX = 1000000, TEXT_NAMES_MAX = 1000 };

/* Rows [first, first + count) of a table. */
typedef struct TextRows {
    const Table *table;
    int64_t first, count;
} TextRows;

/* Token sequences one after another. Start with zeros; free with text_samples_free. */
typedef struct TextSamples {
    uint32_t *tokens; /* [start[count]]: see text_token_id, text_token_type */
    int64_t *start;   /* [count + 1]: where each sample begins */
    int64_t longest;  /* most tokens of a sample */
    int64_t cut;      /* samples from which `max_length` cut tokens */
    int64_t capacity;
} TextSamples;

/* A token's number and type share 32 bits: numbers take 21 of them. */
enum { TOKEN_TYPE_SHIFT = 22 };

/* The number of a token. */
static inline int32_t text_token_id(uint32_t token) {
    return (int32_t)(token & (((uint32_t)1 << TOKEN_TYPE_SHIFT) - 1));
}

/* Its type. */
static inline int32_t text_token_type(uint32_t token) {
    return (int32_t)(token >> TOKEN_TYPE_SHIFT);
}

/* Fails with STATUS_RECIPE unless the special tokens of a text, or of a pair, and one
 * token of each text fit into `max_length`. */
Status text_samples_check_room(const Tokenizer *tokenizer, bool pair, int64_t max_length,
                               Loc at, Diag *diag);

/* Encodes the text in column `first`, with that in `second` when it is not -1, of every
 * row, to at most `max_length` tokens. Fails with STATUS_FORMAT at the row that gives no
 * tokens. */
Status text_samples_encode(TextSamples *out, const Tokenizer *tokenizer,
                           const TextRows *rows, int first, int second, size_t max_length,
                           Diag *diag);

/* The same with the text in each of `count` columns as a separate sample: those of a row
 * one after another. */
Status text_samples_encode_apart(TextSamples *out, const Tokenizer *tokenizer,
                                 const TextRows *rows, const int *columns, int count,
                                 size_t max_length, Diag *diag);

/* Appends one sample of tokens after the earlier ones. Fails with STATUS_FORMAT, without
 * a place (diag_place), if there are no tokens. */
Status text_samples_add(TextSamples *out, int64_t sample, const Encoding *encoding,
                        Diag *diag);

/* Warns at `max_length` of a data set that some of `count` samples were cut, if any. */
void text_samples_warn_cut(const TextSamples *samples, int64_t count, int64_t max_length,
                           const char *name, Loc at, Diag *diag);

/* Warns at `tokenizer`, which is at `path`, of a data set that many tokens of `count`
 * samples are unknown (io/datasets/unknown_tokens.h). */
void text_samples_warn_unknown(const TextSamples *samples, int64_t count,
                               const Tokenizer *tokenizer, const char *path,
                               const char *name, Loc at, Diag *diag);

/* Writes a sample as rows of `tokens` places each, with `pad` after its end, where mask
 * and types are 0. */
void text_samples_write(const TextSamples *samples, int64_t sample, int64_t tokens,
                        int32_t pad, int32_t *ids, int32_t *mask, int32_t *types);

/* A tokenizer without a padding token (`pad` -1) has no token to pad a shorter sample
 * with: any other token would make the model's result depend on the neighbouring
 * samples. Fails with STATUS_RECIPE unless all of `count` samples are equally long. */
Status text_samples_check_padding(const TextSamples *samples, int64_t count, int32_t pad,
                                  const char *tokenizer, Loc at, Diag *diag);

/* Frees the memory and empties the samples. */
void text_samples_free(TextSamples *samples);

/* An integer label, -1 when the text is not one. */
int64_t text_label_parse(const char *text);

/* Reads a column of labels into labels[rows->count]: the place in `names`, or, when that
 * is empty, integers in [0, *classes), *classes = 0 becoming 1 + the largest. Fails with
 * STATUS_FORMAT at the row. */
Status text_labels_read(int32_t *labels, int64_t *classes, const TextRows *rows,
                        int column, const StringList *names, Diag *diag);

#endif
