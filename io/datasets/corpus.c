/* Corpora: texts that need not fit in memory, as windows of tokens for causal language
 * models. Nothing is read beforehand but a few probes: a window is a place in the bytes
 * of the corpus, and becomes tokens when it is fetched. */
#include "io/datasets/corpus_text.h"
#include "io/datasets/dataset.h"
#include "io/datasets/unknown_tokens.h"
#include "io/formats/model_vocabulary.h"
#include "io/tokenizers/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct CorpusOptions {
    const char *path, *tokenizer, *field, *separator;
    int64_t length, bytes, offset, limit;
    double from, to;
    bool lowercase, skip_unknown, add_bos;
    int on_error; /* ERROR_ */
} CorpusOptions;

enum { ERROR_STOP, ERROR_SKIP };

enum { COLUMN_IDS, COLUMN_LABELS, COLUMNS };

enum {
    PROBES = 64,            /* places at which bytes of a token are measured, */
    PROBE_BYTES = 4096,     /* in so much text */
    MORE_BYTES = 256,       /* read beyond what a window takes by that measure */
    PIECE_BYTES = 64 << 20, /* most of a document that are read for a window */
};

typedef struct CorpusData {
    Batches base;
    Arena *arena; /* holds this struct */
    CorpusText *text;
    Tokenizer *tokenizer;
    int64_t length, first, bytes; /* window i begins at byte (first + i) bytes */
    double token_bytes;           /* of a token, as the probes have it */
    bool lowercase, skip_unknown;
    int32_t bos; /* in front of a document; -1 = nothing */
    Column columns[COLUMNS];
} CorpusData;

/* One call's memory. */
typedef struct CorpusReader {
    const CorpusData *data;
    Arena *arena; /* of the sample at hand */
    Encoding encoding;
    Text lower;
} CorpusReader;

static void reader_free(CorpusReader *r) {
    encoding_free(&r->encoding);
    text_free(&r->lower);
    if (r->arena) arena_destroy(r->arena);
}

/* ---- tokens ---- */

/* The tokens of a piece, in r->encoding. */
static Status encode(CorpusReader *r, TextSpan text, const char *file, Diag *diag) {
    if (r->data->lowercase) {
        r->lower.length = 0;
        utf8_lower(&r->lower, text.text, text.length);
        text = (TextSpan){r->lower.data, r->lower.length};
    }
    r->encoding.skip_unknown = r->data->skip_unknown;
    return tokenizer_encode_plain(r->data->tokenizer, &r->encoding, text, LOC_FILE(file),
                                  diag);
}

/* The piece from `place` on with `wanted` tokens, or what its document has left, in
 * r->encoding. */
static Status encode_piece(CorpusReader *r, CorpusPiece *piece, CorpusPlace *place,
                           int64_t wanted, Diag *diag) {
    const CorpusPlace from = *place;
    int64_t bytes = (int64_t)ceil((double)wanted * r->data->token_bytes) + MORE_BYTES;
    for (;; bytes *= 2) {
        *place = from;
        TRY(corpus_text_next(piece, place, r->data->text, bytes, r->arena, diag));
        TRY(encode(r, piece->text, corpus_text_file(r->data->text, &from), diag));
        const bool enough = (int64_t)r->encoding.length >= wanted;
        if (enough || piece->ends || piece->cut || bytes > PIECE_BYTES) return STATUS_OK;
    }
}

/* The `count` tokens from a byte of the corpus on. */
static Status read_tokens(CorpusReader *r, int64_t byte, int32_t *tokens, int64_t count,
                          Diag *diag) {
    const CorpusData *data = r->data;
    CorpusPlace place;
    if (r->arena) arena_destroy(r->arena);
    r->arena = arena_create();
    TRY(corpus_text_seek(&place, data->text, byte, r->arena, diag));
    for (int64_t have = 0; have < count;) {
        CorpusPiece piece;
        TRY(encode_piece(r, &piece, &place, count - have, diag));
        if (piece.begins && data->bos >= 0) tokens[have++] = data->bos;
        int64_t more = (int64_t)r->encoding.length;
        if (more > count - have) more = count - have;
        memcpy(tokens + have, r->encoding.ids, (size_t)more * sizeof *tokens);
        have += more;
    }
    return STATUS_OK;
}

/* ---- fetching ---- */

static Status corpus_fetch(const Batches *self, const Fetch *what, void *const *dst,
                           Diag *diag) {
    const CorpusData *data = (const CorpusData *)self;
    const int64_t length = data->length;
    CorpusReader reader = {.data = data};
    int32_t *tokens = memory_alloc((size_t)length + 1, sizeof *tokens);
    Status status = STATUS_OK;
    for (int64_t i = 0; i < what->n && status == STATUS_OK; i++) {
        const int64_t sample = what->index[i];
        status = dataset_check_sample(self, sample, diag);
        if (status == STATUS_OK)
            status = read_tokens(&reader, (data->first + sample) * data->bytes, tokens,
                                 length + 1, diag);
        for (int c = 0; c < COLUMNS && status == STATUS_OK; c++)
            if (dst[c]) /* labels are one token ahead */
                memcpy((int32_t *)dst[c] + i * length, tokens + c,
                       (size_t)length * sizeof *tokens);
    }
    free(tokens);
    reader_free(&reader);
    return status;
}

static void corpus_destroy(Batches *self) {
    CorpusData *data = (CorpusData *)self;
    corpus_text_close(data->text);
    tokenizer_destroy(data->tokenizer);
    arena_destroy(data->arena);
}

/* ---- opening ---- */

/* Bytes and characters of a token at some places of the corpus, and how many of these
 * tokens are unknown. */
static Status probe(CorpusData *data, const char *path, UnknownTokens *unknown,
                    Diag *diag) {
    const int64_t all = corpus_text_bytes(data->text);
    CorpusReader reader = {.data = data};
    int64_t bytes = 0, characters = 0, tokens = 0;
    Status status = STATUS_OK;
    for (int i = 0; i < PROBES && status == STATUS_OK; i++) {
        CorpusPlace place, from;
        CorpusPiece piece;
        if (reader.arena) arena_destroy(reader.arena);
        reader.arena = arena_create();
        status = corpus_text_seek(&place, data->text, (int64_t)((double)all / PROBES * i),
                                  reader.arena, diag);
        from = place;
        if (status == STATUS_OK)
            status = corpus_text_next(&piece, &place, data->text, PROBE_BYTES,
                                      reader.arena, diag);
        if (status == STATUS_OK)
            status =
                encode(&reader, piece.text, corpus_text_file(data->text, &from), diag);
        if (status != STATUS_OK) break;
        bytes += (int64_t)piece.text.length;
        characters += (int64_t)(text_characters(piece.text) - reader.encoding.skipped);
        tokens += (int64_t)reader.encoding.length;
        for (size_t t = 0; t < reader.encoding.length; t++)
            unknown_tokens_see(unknown, reader.encoding.ids[t]);
    }
    reader_free(&reader);
    TRY(status);
    if (tokens == 0)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                         "expected text that the tokenizer has tokens for, found none at "
                         "%d places",
                         PROBES);
    data->token_bytes = (double)bytes / (double)tokens;
    data->base.label_characters = (double)characters / (double)tokens;
    return STATUS_OK;
}

static Status open_tokenizer(CorpusData *data, const CorpusOptions *options, Loc at,
                             Diag *diag) {
    TRY(tokenizer_read(&data->tokenizer, options->tokenizer, diag));
    data->base.classes = data->base.below = tokenizer_size(data->tokenizer);
    data->base.vocabulary = vocabulary_of(data->tokenizer, data->arena);
    data->bos = options->add_bos ? tokenizer_specials(data->tokenizer)->bos : -1;
    if (!options->add_bos || data->bos >= 0) return STATUS_OK;
    return diag_fail(diag, STATUS_RECIPE, at, "add_bos",
                     "expected a tokenizer with a token for the beginning of a text, "
                     "found none");
}

static Status corpus_fill(CorpusData *data, const CorpusOptions *options, Loc at,
                          Diag *diag) {
    const CorpusRules rules = {.from = options->from,
                               .to = options->to,
                               .field = options->field,
                               .separator = options->separator,
                               .skip_damaged = options->on_error == ERROR_SKIP};
    UnknownTokens unknown;
    if (!(options->from < options->to))
        return diag_fail(diag, STATUS_RECIPE, at, "from",
                         "expected from < to, found from %g and to %g", options->from,
                         options->to);
    TRY(open_tokenizer(data, options, at, diag));
    TRY(corpus_text_open(&data->text, options->path, &rules, diag));
    unknown_tokens_start(&unknown, data->tokenizer);
    TRY(probe(data, options->path, &unknown, diag));
    unknown_tokens_warn(&unknown, data->base.name, options->tokenizer, at, diag);
    data->bytes = options->bytes;
    if (data->bytes == 0)
        data->bytes = (int64_t)ceil((double)data->length * data->token_bytes);
    data->first = options->offset;
    const int64_t all = corpus_text_bytes(data->text), windows = all / data->bytes;
    return dataset_slice(&data->base.count, windows > 0 ? windows : 1, options->offset,
                         options->limit, options->path, at, diag);
}

static Status corpus_open(Batches **out, const void *opaque, Loc at, Diag *diag) {
    const CorpusOptions *options = opaque;
    Arena *arena = arena_create();
    CorpusData *data = ARENA_NEW(arena, CorpusData);
    const Type type = {.dtype = DTYPE_I32, .rank = 1, .dim = {options->length}};
    *data = (CorpusData){.arena = arena,
                         .length = options->length,
                         .lowercase = options->lowercase,
                         .skip_unknown = options->skip_unknown,
                         .columns = {{"input_ids", type}, {"labels", type}}};
    data->base = (Batches){.name = arena_strdup(arena, options->path),
                           .columns = data->columns,
                           .column_count = COLUMNS,
                           .partial = true,
                           .fetch = corpus_fetch,
                           .destroy = corpus_destroy};
    const Status status = corpus_fill(data, options, at, diag);
    if (status == STATUS_OK)
        *out = &data->base;
    else
        corpus_destroy(&data->base);
    return status;
}

static const Field CORPUS_FIELDS[] = {
    {.name = "path",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(CorpusOptions, path, const char *),
     .required = true,
     .help = "a text, a file of JSON Lines (.jsonl), or a folder of both (.txt, .jsonl)"},
    {.name = "tokenizer",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(CorpusOptions, tokenizer, const char *),
     .required = true,
     .help = "tokenizer.json, vocab.txt, or a folder with one"},
    F_INT(CorpusOptions, length, 1, 1 << 20, "tokens of a window"),
    F_INT(CorpusOptions, bytes, 0, 1 << 30,
          "bytes of text from the start of a window to that of the next; 0 = as many as "
          "its tokens take, measured at 64 places"),
    F_STRING(CorpusOptions, field, "JSON Lines: the key of the text"),
    F_STRING(CorpusOptions, separator,
             "texts: line that parts documents and is left out; not given: a file is one",
             .nullable = true, .empty = true),
    F_REAL(CorpusOptions, from, 0, 1, "where the part of the corpus to use begins"),
    F_REAL(CorpusOptions, to, 0, 1, "where it ends; 1 = at the end"),
    F_BOOL(CorpusOptions, lowercase, "make the text lower case"),
    F_BOOL(CorpusOptions, skip_unknown,
           "leave out characters that the tokenizer has no token for; otherwise they are "
           "its unknown token, or an error where it has none"),
    F_BOOL(CorpusOptions, add_bos,
           "put the tokenizer's token for the beginning before each document"),
    F_CHOICE(
        CorpusOptions, on_error, "stop|skip",
        "bytes that are no UTF-8 and lines that are no JSON end the run, or are left "
        "out, with a warning of the first"),
    F_INT(CorpusOptions, limit, 0, 1e12, "use this many windows; 0 = all"),
    F_INT(CorpusOptions, offset, 0, 1e12, "leave out this many windows at the start"),
    F_END};

static const CorpusOptions CORPUS_DEFAULTS = {.length = 128, .to = 1, .field = "text"};

const DataFormat format_corpus = {
    .name = "corpus",
    .summary =
        "texts of any size as windows of tokens that are made when they are wanted, "
        "for causal language models",
    .fields = CORPUS_FIELDS,
    .paths = "path|tokenizer",
    .tolerances = "on_error",
    .options_size = sizeof(CorpusOptions),
    .defaults = &CORPUS_DEFAULTS,
    .open = corpus_open,
};
