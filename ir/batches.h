/* Batches: random access to the samples of a data set, the only way data reaches passes.
 *
 * A sample is one row of every column. Readers (io) make them, training and evaluation
 * (exec) draw from them; neither knows the other. */
#ifndef COMPRESS_IR_BATCHES_H
#define COMPRESS_IR_BATCHES_H

#include "ir/op.h"

/* A named part of a sample, bound to the graph's input of that name. */
typedef struct Column {
    const char *name; /* "pixel_values", "labels", ... */
    Type type;        /* of one sample: F32 or I32, no batch dimension */
} Column;

/* Columns that passes ask for by name: the class of a sample; and, if training mixes two
 * samples (mixup, CutMix), the class of the other one and its share of the target, in
 * [0, 1]. A fetch without augmentation gives the sample's own class and share 0. */
#define DATA_LABELS     "labels"
#define DATA_MIX_LABELS "mix_labels"
#define DATA_MIX_SHARE  "mix_share"

/* Where an answer is in the tokens of a sample: its first and its last token; both 0 if
 * there is none. For a question with choices also a sample's number in its group. */
#define DATA_SPAN_FIRST   "start_positions"
#define DATA_SPAN_LAST    "end_positions"
#define DATA_CHOICE_PLACE "choice_place"

/* For texts with endings, whose labels are next tokens: 1 if the ending is the right
 * one, and its number of bytes. */
#define DATA_CHOICE_RIGHT "choice_right"
#define DATA_CHOICE_BYTES "choice_bytes"

/* What to fetch: samples index[0..n), padded to `tokens` tokens where columns have DIM_T
 * and to `source` tokens where they have DIM_S (else ignored). `key` seeds augmentation,
 * 0 = none. `mask_key` seeds the choice of masked positions: training uses a different
 * one in every step, whether it augments or not; with 0 (evaluation) a sample is always
 * masked in the same way. */
typedef struct Fetch {
    const int64_t *index;
    int64_t n, tokens;
    uint64_t key, mask_key;
    int64_t source;
} Fetch;

typedef struct Batches Batches;

/* The tokens that the numbers of texts stand for. */
typedef struct TokenNames {
    const char *const *tokens; /* by number; "" where there is none */
    int64_t count;
} TokenNames;

/* What a data set of sentence pairs knows about its targets, for generating translations
 * and comparing them with the references. */
typedef struct Translations {
    int32_t start, end; /* tokens that the decoder begins with, and that ends a target */
    bool lowercase;     /* targets are lower case as tokens, references as text */

    /* The target sentence of a sample as text; borrowed. */
    const char *(*reference)(const Batches *self, int64_t index);

    /* Appends the text that target tokens stand for, without special ones. Fails with
     * STATUS_FORMAT for a number without a token. */
    Status (*spell)(const Batches *self, Text *out, const int32_t *tokens, int64_t count,
                    Diag *diag);
} Translations;

/* What a data set of questions about texts knows, for turning tokens into answers and
 * comparing those with the right ones. A question has one or more samples: its text is
 * cut into windows that overlap. */
typedef struct Answers {
    int64_t questions;
    int64_t longest; /* most tokens of an answer */

    /* The question of a sample; samples of one question are consecutive. */
    int64_t (*question)(const Batches *self, int64_t sample);

    /* The tokens [*first, *end) of a sample that are the text. */
    void (*tokens)(const Batches *self, int64_t sample, int64_t *first, int64_t *end);

    /* The characters of the text from token `first` to token `last` of a sample, both
     * inside; borrowed. */
    const char *(*text)(const Batches *self, int64_t sample, int64_t first, int64_t last,
                        size_t *length);

    /* Whether the text holds an answer to a question. */
    bool (*answerable)(const Batches *self, int64_t question);

    /* How an answer ("" = none) compares with the most similar right one: 1 or 0 for
     * equal or not, and the F1 of their words, 0 to 1. */
    void (*compare)(const Batches *self, int64_t question, const char *answer,
                    size_t length, double *exact, double *f1);
} Answers;

struct Batches {
    const char *name; /* for messages: the file or folder */
    int64_t count;    /* samples */
    int64_t group; /* number of consecutive samples that belong together (the choices of a
                      question, the texts of a pair), kept together and in order in every
                      mini-batch and part of one; 0 or 1 = each alone. `count` is a
                      multiple of it */
    const Column *columns;
    int column_count;
    int64_t classes; /* labels lie in [0, classes); 0 = no labels */
    const char *const
        *class_names; /* by label, if the data set names all of its classes; else NULL */
    const TokenNames
        *vocabulary; /* for texts; for sentence pairs the source's; NULL = not known */
    const char *preparation; /* for images: a preprocessor_config.json that prepares them
                                as this data set does; NULL = no images */
    double label_characters; /* language data: characters that a label stands for, on
                                average; 0 = not known */

    int64_t opening_bytes; /* peak memory that reading it took in addition to what stays,
                              if that is much; else 0 */

    int64_t below; /* integers of all columns lie in [0, below), as ensured by the data
                      set; 0 = callers that need to know must look at all samples */

    bool augments; /* a key of Fetch changes something */

    /* The file that a sample is from, or its place in an archive, for messages;
     * borrowed. NULL = not known, for all samples or this one; if it is known for any,
     * it is known for the first one of every class. */
    const char *(*origin)(const Batches *self, int64_t index);

    /* Sequences: tokens of one sample, at most max_tokens. NULL: all samples have the
     * shape of their columns. With lengths, a column's type may hold DIM_T, and samples
     * are batched by length and padded no further than needed. */
    int64_t (*length)(const Batches *self, int64_t index);
    int64_t max_tokens;

    /* Pairs of sequences: tokens of the source (DIM_S), at most max_source, while
     * `length` gives those of the target (DIM_T). NULL: no column has DIM_S. */
    int64_t (*source_length)(const Batches *self, int64_t index);
    int64_t max_source;

    const Translations *translations; /* NULL = the samples are not sentence pairs */

    const Answers *answers; /* NULL = the samples are not questions about texts */

    /* Masked positions (DIM_M, at least 1) of samples padded to this many tokens, the
     * same for every sample; never fewer for more tokens. NULL: no column has DIM_M. */
    int64_t (*masked)(const Batches *self, int64_t tokens);

    /* Copies the samples one after another into dst[column] (floats or int32_t). Safe to
     * call from several threads. With `partial` columns whose dst is NULL are skipped;
     * without it every column has room. */
    bool partial;
    Status (*fetch)(const Batches *self, const Fetch *what, void *const *dst, Diag *diag);
    void (*destroy)(Batches *self);
};

/* Calls self->destroy. NULL is allowed. */
void batches_destroy(Batches *batches);

/* Fewest tokens that samples index[0..n) can be padded to: the longest of them, rounded
 * up to a multiple of 8 (so that few sizes occur) but not above max_tokens. 0 without
 * lengths. */
int64_t batches_tokens(const Batches *batches, const int64_t *index, int64_t n);

/* Sets what->tokens, as batches_tokens does, and likewise what->source (0 without source
 * lengths) to what the samples of `what` can be padded to. */
void batches_pad(const Batches *batches, Fetch *what);

/* Masked positions of samples padded to `tokens` tokens (0, without lengths: those of
 * max_tokens); 0 if none are masked. */
int64_t batches_masked(const Batches *batches, int64_t tokens);

/* Sorts samples index[0..n) by length, then by that of the source, equally long ones in
 * their original order; without lengths they are unchanged. */
void batches_sort(const Batches *batches, int64_t *index, int64_t n);

/* Number of samples that stay together, at least 1. NULL = no data set: 1. */
int64_t batches_group(const Batches *batches);

/* Index of a column by name, -1 when there is none. */
int batches_column(const Batches *batches, const char *name);

/* How messages name a sample: "sample 98", and where it is from, if that is known. In
 * the arena. */
const char *batches_sample(Arena *arena, const Batches *batches, int64_t index);

/* The samples of `data` with `count` further columns of floats, all dimensions known:
 * values[i] holds column i of every sample one after another. All is borrowed and must
 * outlive the result, which has no `translations` and no `answers`. */
Batches *batches_extend(const Batches *data, const Column *columns,
                        const float *const *values, int count);

#endif
