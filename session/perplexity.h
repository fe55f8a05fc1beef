/* Perplexity: how well a model that predicts the next token predicts a text, or the last
 * words of texts. */
#ifndef COMPRESS_SESSION_PERPLEXITY_H
#define COMPRESS_SESSION_PERPLEXITY_H

#include "exec/run/ticker.h"
#include "ir/model.h"

typedef struct PerplexityOptions {
    const char *text;      /* file */
    const char *tokenizer; /* NULL = the model's */
    int64_t length;        /* tokens of a window; 0 = the model's context, at most
                              PERPLEXITY_LENGTH */
    int64_t stride;        /* between the starts of two windows; 0 = half of `length` */
    bool last_word;        /* the last word of each text of the file */
    int threads;
    const Watch *watch; /* may be NULL */
} PerplexityOptions;

#define PERPLEXITY_LENGTH 2048

/* Most bytes of a text. */
#define PERPLEXITY_BYTES_MAX ((size_t)1 << 30)

/* A text's tokens are those of the tokenizer, after its beginning-of-text token if it
 * adds one (`first`; otherwise the text's own first token is not predicted). They are
 * cut into windows as io/datasets/text_windows.h says; last words are those of
 * io/datasets/last_words.h. Logarithms are natural. */
typedef struct Perplexity {
    int64_t length, stride; /* as chosen; stride 0 with last words */
    int64_t samples;        /* windows, or texts with a last word */
    int64_t bytes, tokens;  /* of the text without `first`; 0 with last words */
    int64_t predicted;      /* tokens that count */
    int32_t first;          /* token before the text; -1 = none */
    double loss;            /* sum over them of -log p */
    int64_t likeliest;      /* how many of them have the largest logit */
    int64_t exact;          /* samples in which all that count do */
    double seconds;         /* seconds of running the model */
} Perplexity;

/* Runs the model over the text. Sums have one order at any number of threads. Fails with
 * STATUS_USAGE: no tokenizer, options that do not fit each other, the text or the model's
 * table of positions; STATUS_MODEL: a model that does not predict the next token of
 * input_ids alone, another vocabulary, logits that are not finite; STATUS_IO,
 * STATUS_FORMAT: the text; STATUS_INTERRUPTED. */
Status perplexity_measure(Perplexity *out, const Model *model, const char *name,
                          const PerplexityOptions *options, Diag *diag);

/* e to the mean loss of a token, and of a last word. */
double perplexity_of_tokens(const Perplexity *it);
double perplexity_of_words(const Perplexity *it);

/* Bits per byte of the text: bits per token divided by bytes per token. Use it to
 * compare models with different tokenizers. */
double perplexity_bits_per_byte(const Perplexity *it);

#endif
