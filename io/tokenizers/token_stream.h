/* Token stream: a text as one sequence of tokens, what the data format `language` cuts
 * into windows. */
#ifndef COMPRESS_IO_TOKENIZERS_TOKEN_STREAM_H
#define COMPRESS_IO_TOKENIZERS_TOKEN_STREAM_H

#include "io/tokenizers/tokenizer.h"

/* How a text is processed. */
typedef struct StreamRules {
    double from, to;   /* part of the text, as shares of its bytes: 0 <= from < to <= 1;
                          both are advanced to the start of a character */
    bool lowercase;    /* full lower case, before the tokenizer sees the text */
    bool skip_unknown; /* leave out characters that the tokenizer has no token for */
    bool add_bos; /* adds the tokenizer's beginning-of-text token before each document */
    const char *separator; /* a line that separates documents and is not part of them;
                              NULL or empty = the text is one document */
} StreamRules;

/* Start with zeros; free with token_stream_free. */
typedef struct TokenStream {
    int32_t *tokens; /* [count] */
    int64_t count, capacity;
    int64_t characters; /* that the tokens represent; omitted ones do not count */
    int64_t documents;  /* that are not empty */
    int64_t text_bytes; /* of the file */
} TokenStream;

/* Reads a file of at most 1 GiB of UTF-8. Fails with STATUS_IO; with STATUS_FORMAT, at
 * its line, when the text is damaged or has a character without a token; with
 * STATUS_RECIPE, at `at`, when there is no beginning-of-text token to add. */
Status token_stream_read(TokenStream *out, const Tokenizer *tokenizer, const char *path,
                         const StreamRules *rules, Loc at, Diag *diag);

/* Frees the memory and empties the stream. */
void token_stream_free(TokenStream *stream);

#endif
