/* Translation data sets: pairs of sentences of a TSV, CSV or JSON Lines file, as tokens
 * for encoder-decoder models.
 *
 * A target of tokens y_1 .. y_n becomes the labels y_1 .. y_n </s> and the decoder's
 * input start y_1 .. y_n; with `begin`, y_1 is the token of the beginning. The texts
 * become tokens when the data set is opened; fetch() pads them to the sizes it is asked
 * for, source and target apart. */
#include "io/datasets/data_table.h"
#include "io/datasets/dataset.h"
#include "io/datasets/unknown_tokens.h"
#include "io/formats/model_vocabulary.h"
#include "io/tokenizers/tokenizer.h"
#include "io/tokenizers/unicode.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What becomes of pairs with too many tokens; what the decoder begins with. */
#define LONG_NAMES "cut|drop"
typedef enum LongPairs { LONG_CUT, LONG_DROP } LongPairs;
#define START_NAMES "pad|bos|end"
typedef enum Start { START_PAD, START_BOS, START_END } Start;

typedef struct TranslationOptions {
    const char *path, *tokenizer, *source_tokenizer, *target_tokenizer;
    const char *source, *target;
    int table; /* TableFormat */
    bool header;
    int64_t max_source, max_target, limit, offset;
    int too_long, start;
    bool begin;
} TranslationOptions;

enum {
    COLUMN_IDS,
    COLUMN_MASK,
    COLUMN_DECODER_IDS,
    COLUMN_DECODER_MASK,
    COLUMN_LABELS,
    COLUMNS
};

static const Column TRANSLATION_COLUMNS[COLUMNS] = {
    {"input_ids", {DTYPE_I32, 1, {DIM_S}}},
    {"attention_mask", {DTYPE_I32, 1, {DIM_S}}},
    {"decoder_input_ids", {DTYPE_I32, 1, {DIM_T}}},
    {"decoder_attention_mask", {DTYPE_I32, 1, {DIM_T}}},
    {"labels", {DTYPE_I32, 1, {DIM_T}}},
};

/* Token sequences one after another. */
typedef struct Sequences {
    int32_t *ids;
    int64_t *start; /* [pairs + 1] */
    int64_t capacity, longest;
} Sequences;

typedef struct TranslationData {
    Batches base;
    Arena *arena; /* holds this struct */
    Translations translations;
    Tokenizer *source_tokenizer, *target_tokenizer; /* may be the same one */
    Sequences source, target;                       /* targets end with the end token */
    Text references;                                /* terminated, one after another */
    size_t *reference_at;                           /* [pairs] */
    int32_t source_pad, target_pad;
} TranslationData;

static const char *source_path(const TranslationOptions *options) {
    return options->source_tokenizer ? options->source_tokenizer : options->tokenizer;
}

static const char *target_path(const TranslationOptions *options) {
    return options->target_tokenizer ? options->target_tokenizer : options->tokenizer;
}

/* --- fetching --- */

static int64_t sequence_length(const Sequences *s, int64_t sample) {
    return s->start[sample + 1] - s->start[sample];
}

static int64_t target_length(const Batches *self, int64_t index) {
    return sequence_length(&((const TranslationData *)self)->target, index);
}

static int64_t source_length(const Batches *self, int64_t index) {
    return sequence_length(&((const TranslationData *)self)->source, index);
}

/* Row `row` of a column; NULL when it is not wanted. */
static int32_t *row_of(void *const *dst, int column, int64_t row, int64_t width) {
    return dst[column] ? (int32_t *)dst[column] + row * width : NULL;
}

/* Writes `count` tokens, then `fill` up to `width`. */
static void put_ids(int32_t *out, const int32_t *ids, int64_t count, int32_t fill,
                    int64_t width) {
    if (!out) return;
    memcpy(out, ids, (size_t)count * sizeof *ids);
    for (int64_t i = count; i < width; i++) out[i] = fill;
}

static void put_mask(int32_t *out, int64_t count, int64_t width) {
    for (int64_t i = 0; out && i < width; i++) out[i] = i < count;
}

static void pair_write(const TranslationData *data, int64_t sample, int64_t row,
                       const Fetch *what, void *const *dst) {
    const int64_t S = what->source, T = what->tokens;
    const int64_t source = source_length(&data->base, sample);
    const int64_t target = target_length(&data->base, sample);
    const int32_t *x = data->source.ids + data->source.start[sample];
    const int32_t *y = data->target.ids + data->target.start[sample];
    put_ids(row_of(dst, COLUMN_IDS, row, S), x, source, data->source_pad, S);
    put_mask(row_of(dst, COLUMN_MASK, row, S), source, S);
    put_ids(row_of(dst, COLUMN_LABELS, row, T), y, target, INDEX_SKIP, T);
    put_mask(row_of(dst, COLUMN_DECODER_MASK, row, T), target, T);
    int32_t *shifted = row_of(dst, COLUMN_DECODER_IDS, row, T);
    if (!shifted) return;
    shifted[0] = data->translations.start;
    put_ids(shifted + 1, y, target - 1, data->target_pad, T - 1);
}

static Status translation_fetch(const Batches *self, const Fetch *what, void *const *dst,
                                Diag *diag) {
    const TranslationData *data = (const TranslationData *)self;
    for (int64_t i = 0; i < what->n; i++) {
        const int64_t sample = what->index[i];
        TRY(dataset_check_sample(self, sample, diag));
        if (source_length(self, sample) > what->source ||
            target_length(self, sample) > what->tokens)
            return diag_fail(diag, STATUS_INTERNAL, LOC_FILE(self->name), NULL,
                             "sample %" PRId64 " has %" PRId64 " and %" PRId64
                             " tokens, %" PRId64 " and %" PRId64 " were asked for",
                             sample, source_length(self, sample),
                             target_length(self, sample), what->source, what->tokens);
        pair_write(data, sample, i, what, dst);
    }
    return STATUS_OK;
}

static const char *translation_reference(const Batches *self, int64_t index) {
    const TranslationData *data = (const TranslationData *)self;
    return data->references.data + data->reference_at[index];
}

static Status translation_spell(const Batches *self, Text *out, const int32_t *tokens,
                                int64_t count, Diag *diag) {
    const TranslationData *data = (const TranslationData *)self;
    return tokenizer_decode(data->target_tokenizer, out, tokens, (size_t)count, true,
                            LOC_FILE(self->name), diag);
}

static void translation_destroy(Batches *self) {
    TranslationData *data = (TranslationData *)self;
    if (data->target_tokenizer != data->source_tokenizer)
        tokenizer_destroy(data->target_tokenizer);
    tokenizer_destroy(data->source_tokenizer);
    free(data->source.ids);
    free(data->source.start);
    free(data->target.ids);
    free(data->target.start);
    free(data->reference_at);
    text_free(&data->references);
    arena_destroy(data->arena);
}

/* --- encoding --- */

/* What is at hand while pairs are read. */
typedef struct PairReading {
    TranslationData *data;
    const TranslationOptions *options;
    const Table *table;
    int source, target; /* columns */
    Encoding encoding;
    int64_t dropped, cut;
} PairReading;

static TextSpan cell_of(const PairReading *r, int64_t row, int column) {
    TextSpan span;
    span.text = table_cell(r->table, row, column, &span.length);
    return span;
}

/* Appends tokens to sequence `pair`, which is the last one. */
static void sequence_add(Sequences *s, int64_t pair, const int32_t *ids, int64_t count) {
    const int64_t at = s->start[pair + 1], end = at + count;
    if (end > s->capacity) {
        s->capacity = end + end / 2 + 1024;
        s->ids = memory_grow(s->ids, (size_t)s->capacity, sizeof *s->ids);
    }
    if (count > 0) memcpy(s->ids + at, ids, (size_t)count * sizeof *ids);
    s->start[pair + 1] = end;
}

/* A source, with special tokens as its tokenizer puts them. */
static Status encode_source(PairReading *r, int64_t row, int64_t pair, bool *fits,
                            Diag *diag) {
    const TranslationData *data = r->data;
    const int64_t most = r->options->max_source;
    const TextSpan text = cell_of(r, row, r->source);
    Encoding *e = &r->encoding;
    TRY(tokenizer_encode(data->source_tokenizer, e, text, NULL, 0, LOC_NONE, diag));
    *fits = (int64_t)e->length <= most;
    if (!*fits && r->options->too_long == LONG_CUT)
        TRY(tokenizer_encode(data->source_tokenizer, e, text, NULL, (size_t)most,
                             LOC_NONE, diag));
    if (e->length <= tokenizer_overhead(data->source_tokenizer, false))
        return diag_fail(diag, STATUS_FORMAT, LOC_NONE, NULL,
                         "expected a sentence to translate, found one without tokens");
    r->data->source.start[pair + 1] = r->data->source.start[pair];
    sequence_add(&r->data->source, pair, e->ids, (int64_t)e->length);
    return STATUS_OK;
}

/* A target: its beginning, if it has one, its tokens and the end. */
static Status encode_target(PairReading *r, int64_t row, int64_t pair, bool *fits,
                            Diag *diag) {
    TranslationData *data = r->data;
    const int64_t before = r->options->begin, most = r->options->max_target - 1 - before;
    Encoding *e = &r->encoding;
    TRY(tokenizer_encode_plain(data->target_tokenizer, e, cell_of(r, row, r->target),
                               LOC_NONE, diag));
    if (e->length == 0)
        return diag_fail(diag, STATUS_FORMAT, LOC_NONE, NULL,
                         "expected a translation, found one without tokens");
    *fits = (int64_t)e->length <= most;
    const int64_t count = *fits ? (int64_t)e->length : most;
    Sequences *s = &data->target;
    s->start[pair + 1] = s->start[pair];
    sequence_add(s, pair, &tokenizer_specials(data->target_tokenizer)->bos, before);
    sequence_add(s, pair, e->ids, count);
    sequence_add(s, pair, &data->translations.end, 1);
    return STATUS_OK;
}

static void note_longest(Sequences *s, int64_t pair) {
    const int64_t length = sequence_length(s, pair);
    if (length > s->longest) s->longest = length;
}

/* Reads one row as pair number base.count, unless it is dropped. */
static Status read_pair(PairReading *r, int64_t row, Diag *diag) {
    TranslationData *data = r->data;
    const int64_t pair = data->base.count;
    bool source_fits = false, target_fits = false;
    TRY(encode_source(r, row, pair, &source_fits, diag));
    TRY(encode_target(r, row, pair, &target_fits, diag));
    const bool fits = source_fits && target_fits;
    r->cut += !fits;
    if (!fits && r->options->too_long == LONG_DROP) {
        r->dropped++;
        return STATUS_OK;
    }
    note_longest(&data->source, pair);
    note_longest(&data->target, pair);
    const TextSpan reference = cell_of(r, row, r->target);
    data->reference_at[pair] = data->references.length;
    if (data->translations.lowercase)
        utf8_lower(&data->references, reference.text, reference.length);
    else
        text_bytes(&data->references, reference.text, reference.length);
    text_bytes(&data->references, "", 1);
    data->base.count++;
    return STATUS_OK;
}

/* Warns of sources, or of targets, with many unknown tokens. */
static void warn_unknown(const PairReading *r, const Sequences *s,
                         const Tokenizer *tokenizer, const char *path, const char *what,
                         Loc at, Diag *diag) {
    const Batches *base = &r->data->base;
    UnknownTokens unknown;
    unknown_tokens_start(&unknown, tokenizer);
    for (int64_t i = 0; i < s->start[base->count]; i++)
        unknown_tokens_see(&unknown, s->ids[i]);
    unknown_tokens_warn(&unknown,
                        arena_printf(r->data->arena, "%s in %s", what, base->name), path,
                        at, diag);
}

static Status read_pairs(PairReading *r, Loc at, Diag *diag) {
    int64_t rows;
    TranslationData *data = r->data;
    const TranslationOptions *options = r->options;
    TRY(table_column(&r->source, r->table, options->source, at, "source", diag));
    TRY(table_column(&r->target, r->table, options->target, at, "target", diag));
    TRY(dataset_slice(&rows, table_rows(r->table), options->offset, options->limit,
                      options->path, at, diag));
    data->source.start = memory_alloc((size_t)rows + 1, sizeof(int64_t));
    data->target.start = memory_alloc((size_t)rows + 1, sizeof(int64_t));
    data->reference_at = memory_alloc((size_t)rows, sizeof(size_t));
    for (int64_t i = 0; i < rows; i++) {
        const int64_t row = options->offset + i;
        const Status status = read_pair(r, row, diag);
        if (status != STATUS_OK) diag_place(diag, table_loc(r->table, row), NULL);
        TRY(status);
    }
    if (data->base.count == 0)
        return diag_fail(diag, STATUS_RECIPE, at, "too_long",
                         "expected pairs of at most %" PRId64 " and %" PRId64
                         " tokens, %s has none",
                         options->max_source, options->max_target, options->path);
    warn_unknown(r, &data->source, data->source_tokenizer, source_path(options),
                 "the sources", at, diag);
    warn_unknown(r, &data->target, data->target_tokenizer, target_path(options),
                 "the targets", at, diag);
    if (r->cut > 0)
        diag_warn(diag, at, "too_long",
                  "%s: %" PRId64 " of %" PRId64 " pairs have more than %" PRId64
                  " source or %" PRId64 " target tokens and are %s",
                  data->base.name, r->cut, rows, options->max_source, options->max_target,
                  r->dropped ? "left out" : "cut");
    return STATUS_OK;
}

/* --- opening --- */

/* Numbers of the tokens that sentences begin, end and are padded with. */
static Status specials_fill(TranslationData *data, const TranslationOptions *options,
                            Loc at, Diag *diag) {
    const SpecialIds *source = tokenizer_specials(data->source_tokenizer);
    const SpecialIds *target = tokenizer_specials(data->target_tokenizer);
    const int32_t starts[] = {target->pad, target->bos, target->eos};
    Translations *t = &data->translations;
    t->end = target->eos;
    t->start = starts[options->start];
    data->source_pad = source->pad;
    data->target_pad = target->pad;
    const bool begins = options->start == START_BOS || options->begin;
    if (t->end >= 0 && t->start >= 0 && source->pad >= 0 && target->pad >= 0 &&
        (!begins || target->bos >= 0))
        return STATUS_OK;
    diag_fail(
        diag, STATUS_RECIPE, at, "tokenizer",
        "expected tokenizers with tokens for padding and for the end of a sentence%s",
        begins ? ", and for its beginning" : "");
    diag_hint(diag, "`compress vocabulary` makes one; a tokenizer_config.json beside a "
                    "tokenizer names pad_token, bos_token, eos_token");
    return STATUS_RECIPE;
}

static Status tokenizers_fill(TranslationData *data, const TranslationOptions *options,
                              Loc at, Diag *diag) {
    const char *source = source_path(options), *target = target_path(options);
    if (!source || !target)
        return diag_fail(diag, STATUS_RECIPE, at, "tokenizer",
                         "expected tokenizer, or source_tokenizer and target_tokenizer");
    if (options->tokenizer && options->source_tokenizer && options->target_tokenizer)
        return diag_fail(diag, STATUS_RECIPE, at, "tokenizer",
                         "expected tokenizer, or source_tokenizer and target_tokenizer, "
                         "found all three");
    TRY(tokenizer_read(&data->source_tokenizer, source, diag));
    TRY(tokenizer_read_beside(&data->target_tokenizer, target, source, diag));
    if (!data->target_tokenizer) data->target_tokenizer = data->source_tokenizer;
    data->translations.lowercase = tokenizer_lowercases(data->target_tokenizer);
    data->base.vocabulary = vocabulary_of(data->source_tokenizer, data->arena);
    return specials_fill(data, options, at, diag);
}

static Status translation_fill(TranslationData *data, const TranslationOptions *options,
                               Loc at, Diag *diag) {
    Table *table;
    const TableOptions chosen = {.format = (TableFormat)options->table,
                                 .no_header = !options->header};
    TRY(tokenizers_fill(data, options, at, diag));
    /* At least one token of the source must fit. */
    const int64_t least = (int64_t)tokenizer_overhead(data->source_tokenizer, false) + 1;
    if (options->max_source < least)
        return diag_fail(diag, STATUS_RECIPE, at, "max_source",
                         "expected at least %" PRId64 ", special tokens and one of the "
                         "sentence, found %" PRId64,
                         least, options->max_source);
    TRY(table_read(&table, options->path, &chosen, diag));
    PairReading reading = {.data = data, .options = options, .table = table};
    const Status status = read_pairs(&reading, at, diag);
    encoding_free(&reading.encoding);
    table_destroy(table);
    data->base.classes = tokenizer_size(data->target_tokenizer);
    data->base.max_tokens = data->target.longest;
    data->base.max_source = data->source.longest;
    return status;
}

static Status translation_open(Batches **out, const void *options, Loc at, Diag *diag) {
    const TranslationOptions *chosen = options;
    Arena *arena = arena_create();
    TranslationData *data = ARENA_NEW(arena, TranslationData);
    data->arena = arena;
    data->translations =
        (Translations){.reference = translation_reference, .spell = translation_spell};
    data->base = (Batches){.name = arena_strdup(arena, chosen->path),
                           .columns = TRANSLATION_COLUMNS,
                           .column_count = COLUMNS,
                           .length = target_length,
                           .source_length = source_length,
                           .translations = &data->translations,
                           .partial = true,
                           .fetch = translation_fetch,
                           .destroy = translation_destroy};
    const Status status = translation_fill(data, chosen, at, diag);
    if (status == STATUS_OK)
        *out = &data->base;
    else
        translation_destroy(&data->base);
    return status;
}

static const Field TRANSLATION_FIELDS[] = {
    {.name = "path",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(TranslationOptions, path, const char *),
     .required = true,
     .help = "TSV, CSV or JSON Lines file"},
    F_STRING(TranslationOptions, tokenizer,
             "of both languages: tokenizer.json, or a folder with one; of Marian's the "
             "target.spm cuts the target",
             .nullable = true),
    F_STRING(TranslationOptions, source_tokenizer, "of the source, where they differ",
             .nullable = true),
    F_STRING(TranslationOptions, target_tokenizer, "of the target, where they differ",
             .nullable = true),
    F_STRING(TranslationOptions, source,
             "column of the sentences to translate: its name, or number from 0",
             .number = true),
    F_STRING(TranslationOptions, target, "column of their translations", .number = true),
    F_CHOICE(TranslationOptions, table, "by_name|tsv|csv|jsonl",
             "format of the file; by_name: .csv, .jsonl (.ndjson, .json), else TSV"),
    F_BOOL(TranslationOptions, header, "TSV, CSV: the first line names the columns"),
    F_INT(TranslationOptions, max_source, 1, 65536,
          "most tokens of a source, special ones included"),
    F_INT(TranslationOptions, max_target, 2, 65536,
          "most tokens of a target, its end included"),
    F_CHOICE(TranslationOptions, too_long, LONG_NAMES,
             "what becomes of pairs with more tokens"),
    F_CHOICE(TranslationOptions, start, START_NAMES,
             "token that the decoder begins with: that of padding (Marian, T5), of the "
             "beginning, or of the end of a sentence (BART)"),
    F_BOOL(TranslationOptions, begin,
           "targets begin with the token of the beginning (BART)"),
    F_INT(TranslationOptions, limit, 0, 1e12, "use this many rows; 0 = all"),
    F_INT(TranslationOptions, offset, 0, 1e12, "leave out this many rows at the start"),
    F_END};

static const TranslationOptions TRANSLATION_DEFAULTS = {.source = "source",
                                                        .target = "target",
                                                        .header = true,
                                                        .max_source = 128,
                                                        .max_target = 128};

const DataFormat format_translation = {
    .name = "translation",
    .summary = "pairs of sentences in TSV, CSV or JSON Lines, as tokens for "
               "encoder-decoder models",
    .fields = TRANSLATION_FIELDS,
    .paths = "path|tokenizer|source_tokenizer|target_tokenizer",
    .options_size = sizeof(TranslationOptions),
    .defaults = &TRANSLATION_DEFAULTS,
    .open = translation_open,
};
