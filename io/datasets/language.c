/* Language data sets: a text as one stream of tokens, cut into windows of equal length,
 * each with the token after every one of its tokens, for causal language models. */
#include "io/datasets/dataset.h"
#include "io/datasets/unknown_tokens.h"
#include "io/formats/model_vocabulary.h"
#include "io/tokenizers/token_stream.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct LanguageOptions {
    const char *path, *tokenizer, *separator;
    int64_t length, stride, offset, limit;
    double from, to;
    int score; /* SCORE_ */
    bool lowercase, skip_unknown, add_bos;
} LanguageOptions;

enum { COLUMN_IDS, COLUMN_LABELS, COLUMNS };

/* Bytes of memory while a text becomes tokens: of each of its own, as it is and
 * normalised, and of each token, which lists with room hold that grow. */
enum { BYTES_OF_BYTE = 3, BYTES_OF_TOKEN = 19 };

/* Which labels of windows that overlap count. */
enum { SCORE_ALL, SCORE_NEW };

typedef struct LanguageData {
    Batches base;
    Arena *arena; /* holds this struct */
    TokenStream stream;
    int64_t first, stride; /* window i begins at token (first + i) stride */
    int64_t length;
    int64_t known; /* labels at the start of a window that the one before had and that do
                      not count again */
    Column columns[COLUMNS];
} LanguageData;

/* --- fetching --- */

static Status language_fetch(const Batches *self, const Fetch *what, void *const *dst,
                             Diag *diag) {
    const LanguageData *data = (const LanguageData *)self;
    const int64_t length = data->length;
    for (int64_t i = 0; i < what->n; i++) {
        const int64_t sample = what->index[i];
        TRY(dataset_check_sample(self, sample, diag));
        const int32_t *tokens =
            data->stream.tokens + (data->first + sample) * data->stride;
        for (int c = 0; c < COLUMNS; c++) /* labels are one token ahead */
            if (dst[c])
                memcpy((int32_t *)dst[c] + i * length, tokens + c,
                       (size_t)length * sizeof *tokens);
        int32_t *labels = dst[COLUMN_LABELS];
        for (int64_t t = 0; labels && sample > 0 && t < data->known; t++)
            labels[i * length + t] = INDEX_SKIP;
    }
    return STATUS_OK;
}

static void language_destroy(Batches *self) {
    LanguageData *data = (LanguageData *)self;
    token_stream_free(&data->stream);
    arena_destroy(data->arena);
}

/* --- opening --- */

/* Windows of `length` tokens and the one after them that the stream has. */
static Status windows_fill(LanguageData *data, const LanguageOptions *options, Loc at,
                           Diag *diag) {
    const int64_t tokens = data->stream.count;
    data->length = options->length;
    data->stride = options->stride ? options->stride : options->length;
    data->first = options->offset;
    if (options->score == SCORE_NEW && data->stride < data->length)
        data->known = data->length - data->stride;
    if (tokens <= data->length) {
        diag_fail(diag, STATUS_RECIPE, at, "length",
                  "expected more than %" PRId64 " tokens, for one window and a label, %s "
                  "has %" PRId64,
                  data->length, options->path, tokens);
        diag_hint(diag, "a smaller 'length', or a larger part of the text");
        return STATUS_RECIPE;
    }
    const int64_t windows = (tokens - 1 - data->length) / data->stride + 1;
    const int64_t used = (windows - 1) * data->stride + data->length + 1;
    if (tokens - used > tokens / 100)
        diag_warn(diag, at, "length",
                  "%s: the last %" PRId64 " of %" PRId64
                  " tokens make no whole window and are left out",
                  data->base.name, tokens - used, tokens);
    return dataset_slice(&data->base.count, windows, options->offset, options->limit,
                         options->path, at, diag);
}

static void warn_unknown(const LanguageData *data, const LanguageOptions *options,
                         const Tokenizer *tokenizer, Loc at, Diag *diag) {
    UnknownTokens unknown;
    unknown_tokens_start(&unknown, tokenizer);
    for (int64_t i = 0; i < data->stream.count; i++)
        unknown_tokens_see(&unknown, data->stream.tokens[i]);
    unknown_tokens_warn(&unknown, data->base.name, options->tokenizer, at, diag);
}

static Status stream_fill(LanguageData *data, const LanguageOptions *options, Loc at,
                          Diag *diag) {
    Tokenizer *tokenizer;
    const StreamRules rules = {.from = options->from,
                               .to = options->to,
                               .lowercase = options->lowercase,
                               .skip_unknown = options->skip_unknown,
                               .add_bos = options->add_bos,
                               .separator = options->separator};
    TRY(tokenizer_read(&tokenizer, options->tokenizer, diag));
    const Status status =
        token_stream_read(&data->stream, tokenizer, options->path, &rules, at, diag);
    data->base.opening_bytes =
        BYTES_OF_BYTE * data->stream.text_bytes + BYTES_OF_TOKEN * data->stream.count;
    data->base.classes = tokenizer_size(tokenizer);
    data->base.vocabulary = vocabulary_of(tokenizer, data->arena);
    if (status == STATUS_OK) warn_unknown(data, options, tokenizer, at, diag);
    tokenizer_destroy(tokenizer);
    return status;
}

static Status language_fill(LanguageData *data, const LanguageOptions *options, Loc at,
                            Diag *diag) {
    if (!(options->from < options->to))
        return diag_fail(diag, STATUS_RECIPE, at, "from",
                         "expected from < to, found from %g and to %g", options->from,
                         options->to);
    TRY(stream_fill(data, options, at, diag));
    TRY(windows_fill(data, options, at, diag));
    data->base.label_characters =
        (double)data->stream.characters / (double)data->stream.count;
    const Type type = {.dtype = DTYPE_I32, .rank = 1, .dim = {data->length}};
    data->columns[COLUMN_IDS] = (Column){"input_ids", type};
    data->columns[COLUMN_LABELS] = (Column){"labels", type};
    return STATUS_OK;
}

static Status language_open(Batches **out, const void *options, Loc at, Diag *diag) {
    const LanguageOptions *chosen = options;
    Arena *arena = arena_create();
    LanguageData *data = ARENA_NEW(arena, LanguageData);
    data->arena = arena;
    data->base = (Batches){.name = arena_strdup(arena, chosen->path),
                           .columns = data->columns,
                           .column_count = COLUMNS,
                           .partial = true,
                           .fetch = language_fetch,
                           .destroy = language_destroy};
    const Status status = language_fill(data, chosen, at, diag);
    if (status == STATUS_OK)
        *out = &data->base;
    else
        language_destroy(&data->base);
    return status;
}

static const Field LANGUAGE_FIELDS[] = {
    {.name = "path",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(LanguageOptions, path, const char *),
     .required = true,
     .help = "text file"},
    {.name = "tokenizer",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(LanguageOptions, tokenizer, const char *),
     .required = true,
     .help = "tokenizer.json, vocab.txt, or a folder with one"},
    F_INT(LanguageOptions, length, 1, 1 << 20, "tokens of a window"),
    F_INT(LanguageOptions, stride, 0, 1e12,
          "tokens from the start of a window to that of the next; 0 = length"),
    F_CHOICE(LanguageOptions, score, "all|new",
             "labels that count where windows overlap: all, or in every window but the "
             "first those that the one before has not, so that each is predicted once, "
             "from as many tokens as there are"),
    F_REAL(LanguageOptions, from, 0, 1, "where the part of the text to use begins"),
    F_REAL(LanguageOptions, to, 0, 1, "where it ends; 1 = at the end of the text"),
    F_BOOL(LanguageOptions, lowercase, "make the text lower case"),
    F_BOOL(LanguageOptions, skip_unknown,
           "leave out characters that the tokenizer has no token for; otherwise they are "
           "its unknown token, or an error where it has none"),
    F_STRING(LanguageOptions, separator,
             "line that parts documents and is left out; not given: one document",
             .nullable = true, .empty = true),
    F_BOOL(LanguageOptions, add_bos,
           "put the tokenizer's token for the beginning before each document"),
    F_INT(LanguageOptions, limit, 0, 1e12, "use this many windows; 0 = all"),
    F_INT(LanguageOptions, offset, 0, 1e12, "leave out this many windows at the start"),
    F_END};

static const LanguageOptions LANGUAGE_DEFAULTS = {.length = 128, .to = 1};

const DataFormat format_language = {
    .name = "language",
    .summary = "a text as windows of tokens, each with the next as its label, for causal "
               "language models",
    .fields = LANGUAGE_FIELDS,
    .paths = "path|tokenizer",
    .options_size = sizeof(LanguageOptions),
    .defaults = &LANGUAGE_DEFAULTS,
    .open = language_open,
};
