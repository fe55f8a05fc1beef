/* Token data sets: sentences of words that have a label each (CoNLL columns, JSON Lines),
 * as tokens. The first token of a word has the word's label; the other ones, special
 * tokens and padding have INDEX_SKIP, which losses and metrics leave out. */
#include "io/datasets/class_names.h"
#include "io/datasets/dataset.h"
#include "io/datasets/tagged_words.h"
#include "io/datasets/text_samples.h"
#include "io/formats/model_vocabulary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct TokenOptions {
    const char *path, *tokenizer, *config;
    const char *word, *label;
    StringList labels;
    int table; /* TaggedFormat */
    int64_t max_length, limit, offset, classes;
} TokenOptions;

enum { COLUMN_IDS, COLUMN_MASK, COLUMN_TYPES, COLUMN_LABELS, COLUMNS };

static const Column TOKEN_COLUMNS[COLUMNS] = {
    {"input_ids", {DTYPE_I32, 1, {DIM_T}}},
    {"attention_mask", {DTYPE_I32, 1, {DIM_T}}},
    {"token_type_ids", {DTYPE_I32, 1, {DIM_T}}},
    {DATA_LABELS, {DTYPE_I32, 1, {DIM_T}}},
};

typedef struct TokenData {
    Batches base;
    Arena *arena; /* holds this struct */
    TextSamples samples;
    int32_t *labels; /* by token; NULL without */
    int32_t pad;
    int64_t label_room;
} TokenData;

/* ---- fetching ---- */

static int64_t token_length(const Batches *self, int64_t index) {
    const int64_t *start = ((const TokenData *)self)->samples.start;
    return start[index + 1] - start[index];
}

static Status token_fetch(const Batches *self, const Fetch *what, void *const *dst,
                          Diag *diag) {
    const TokenData *data = (const TokenData *)self;
    const int64_t tokens = what->tokens;
    for (int64_t i = 0; i < what->n; i++) {
        const int64_t sample = what->index[i];
        TRY(dataset_check_tokens(self, sample, tokens, diag));
        const int64_t length = token_length(self, sample);
        text_samples_write(&data->samples, sample, tokens, data->pad,
                           (int32_t *)dst[COLUMN_IDS] + i * tokens,
                           (int32_t *)dst[COLUMN_MASK] + i * tokens,
                           (int32_t *)dst[COLUMN_TYPES] + i * tokens);
        const int64_t start = data->samples.start[sample];
        for (int64_t t = 0; t < tokens && self->column_count == COLUMNS; t++)
            ((int32_t *)dst[COLUMN_LABELS])[i * tokens + t] =
                t < length ? data->labels[start + t] : INDEX_SKIP;
    }
    return STATUS_OK;
}

static void token_destroy(Batches *self) {
    TokenData *data = (TokenData *)self;
    text_samples_free(&data->samples);
    free(data->labels);
    arena_destroy(data->arena);
}

/* ---- labels ---- */

static Status fail_label(const TaggedWords *words, int64_t sentence, const char *label,
                         const StringList *names, int64_t most, Diag *diag) {
    if (names->count) {
        diag_fail(diag, STATUS_FORMAT, tagged_loc(words, sentence), NULL,
                  "expected one of the %d names of `labels`, found '%.64s'", names->count,
                  label);
        return STATUS_FORMAT;
    }
    diag_fail(diag, STATUS_FORMAT, tagged_loc(words, sentence), NULL,
              "expected a label from 0 to %" PRId64 ", found '%.64s'", most - 1, label);
    diag_hint(diag, "labels: [O, B-PER, I-PER] names the classes of labels that are "
                    "words; label: \"\" reads no labels");
    return STATUS_FORMAT;
}

/* The class of each word. Numbers of JSON are numbers with names, too. */
static Status classes_find(int32_t *classes, TokenData *data, const TaggedWords *words,
                           int64_t first, int64_t count, const StringList *names,
                           Diag *diag) {
    int64_t largest = -1;
    const bool named = names->count > 0 && !words->numbers;
    int64_t most = data->base.classes ? data->base.classes : TEXT_CLASSES_MAX;
    if (names->count) most = names->count;
    for (int64_t s = first; s < first + count; s++)
        for (int64_t w = words->first[s]; w < words->first[s + 1]; w++) {
            const char *tag = tagged_tag(words, w);
            const int64_t label =
                named ? class_names_find(names, tag) : text_label_parse(tag);
            if (label < 0 || label >= most)
                return fail_label(words, s, tag, names, most, diag);
            classes[w] = (int32_t)label;
            if (label > largest) largest = label;
        }
    if (!data->base.classes) data->base.classes = names->count ? most : largest + 1;
    return STATUS_OK;
}

/* ---- tokens ---- */

/* What is told of sentences that were cut. */
typedef struct Cut {
    int64_t sentences, words;
} Cut;

/* Appends a sentence; the first token of a word gets its class. Words behind the last one
 * that has tokens are cut off, if the sentence is as long as may be. */
static Status sentence_add(TokenData *data, int64_t sample, const Encoding *encoding,
                           const int32_t *classes, int64_t words, int64_t most, Cut *cut,
                           Diag *diag) {
    TRY(text_samples_add(&data->samples, sample, encoding, diag));
    const int64_t start = data->samples.start[sample];
    int32_t last = -1;
    if (data->samples.capacity > data->label_room) {
        data->label_room = data->samples.capacity;
        data->labels =
            memory_grow(data->labels, (size_t)data->label_room, sizeof *data->labels);
    }
    for (size_t t = 0; t < encoding->length; t++) {
        const int32_t word = encoding->words[t];
        data->labels[start + (int64_t)t] =
            word >= 0 && word != last ? classes[word] : INDEX_SKIP;
        if (word >= 0) last = word;
    }
    if ((int64_t)encoding->length < most || last + 1 == words) return STATUS_OK;
    cut->sentences++;
    cut->words += words - last - 1;
    return STATUS_OK;
}

static Status sentences_encode(TokenData *data, const TokenOptions *options,
                               const Tokenizer *tokenizer, const TaggedWords *words,
                               const int32_t *classes, Cut *cut, Diag *diag) {
    Encoding encoding = {0};
    TextSpan *spans = NULL;
    int64_t room = 0;
    Status status = STATUS_OK;
    data->samples.start = memory_alloc((size_t)data->base.count + 1, sizeof(int64_t));
    for (int64_t i = 0; i < data->base.count && status == STATUS_OK; i++) {
        const int64_t s = options->offset + i, first = words->first[s];
        const int64_t count = words->first[s + 1] - first;
        if (count > room)
            spans = memory_grow(spans, (size_t)(room = 2 * count), sizeof *spans);
        for (int64_t w = 0; w < count; w++) spans[w] = tagged_word(words, first + w);
        status = tokenizer_encode_words(tokenizer, &encoding, spans, (size_t)count,
                                        (size_t)options->max_length, LOC_NONE, diag);
        if (status == STATUS_OK)
            status = sentence_add(data, i, &encoding, classes + first, count,
                                  options->max_length, cut, diag);
        if (status != STATUS_OK) diag_place(diag, tagged_loc(words, s), NULL);
    }
    free(spans);
    encoding_free(&encoding);
    return status;
}

/* ---- opening ---- */

static Status words_fill(TokenData *data, const TokenOptions *options,
                         const StringList *names, const Tokenizer *tokenizer,
                         const TaggedWords *words, Loc at, Diag *diag) {
    const bool labelled = !options->label || *options->label;
    Cut cut = {0};
    Batches *base = &data->base;
    TRY(dataset_slice(&base->count, words->sentences, options->offset, options->limit,
                      options->path, at, diag));
    int32_t *classes = memory_alloc((size_t)words->words, sizeof *classes);
    base->classes = options->classes;
    Status status = STATUS_OK;
    if (labelled)
        status =
            classes_find(classes, data, words, options->offset, base->count, names, diag);
    if (status == STATUS_OK)
        status = sentences_encode(data, options, tokenizer, words, classes, &cut, diag);
    free(classes);
    TRY(status);
    if (cut.sentences > 0)
        diag_warn(diag, at, "max_length",
                  "%s: %" PRId64 " of %" PRId64 " sentences have more than %" PRId64
                  " tokens and are cut: %" PRId64 " words are left out",
                  base->name, cut.sentences, base->count, options->max_length, cut.words);
    text_samples_warn_unknown(&data->samples, base->count, tokenizer, options->tokenizer,
                              base->name, at, diag);
    data->pad = tokenizer_specials(tokenizer)->pad;
    base->max_tokens = data->samples.longest;
    base->column_count = labelled ? COLUMNS : COLUMN_LABELS;
    return text_samples_check_padding(&data->samples, base->count, data->pad,
                                      options->tokenizer, at, diag);
}

static Status tokenizer_fill(TokenData *data, const TokenOptions *options,
                             const StringList *names, const Tokenizer *tokenizer, Loc at,
                             Diag *diag) {
    const TaggedColumns columns = {(TaggedFormat)options->table, options->word,
                                   options->label};
    TaggedWords words;
    TRY(text_samples_check_room(tokenizer, false, options->max_length, at, diag));
    Status status = tagged_words_read(&words, options->path, &columns, at, diag);
    if (status == STATUS_OK)
        status = words_fill(data, options, names, tokenizer, &words, at, diag);
    tagged_words_free(&words);
    return status;
}

/* Names of the classes come from the recipe, or from a file when the data set is opened.
 */
static Status count_check(const TokenOptions *options, int names, const char *key, Loc at,
                          Diag *diag) {
    if (!names || !options->classes || options->classes == names) return STATUS_OK;
    return diag_fail(diag, STATUS_RECIPE, at, "classes",
                     "expected %d, one for each name in '%s', found %" PRId64, names, key,
                     options->classes);
}

static Status token_fill(TokenData *data, const TokenOptions *options, Loc at,
                         Diag *diag) {
    Tokenizer *tokenizer;
    StringList names = options->labels;
    if (!names.count && options->config)
        TRY(class_names_read(&names, options->config, data->arena, diag));
    TRY(count_check(options, names.count, "config", at, diag));
    data->base.class_names = class_names_copy(data->arena, &names);
    TRY(tokenizer_read(&tokenizer, options->tokenizer, diag));
    const Status status = tokenizer_fill(data, options, &names, tokenizer, at, diag);
    data->base.vocabulary = vocabulary_of(tokenizer, data->arena);
    tokenizer_destroy(tokenizer);
    return status;
}

static Status token_open(Batches **out, const void *options, Loc at, Diag *diag) {
    const TokenOptions *chosen = options;
    Arena *arena = arena_create();
    TokenData *data = ARENA_NEW(arena, TokenData);
    data->arena = arena;
    data->base = (Batches){.name = arena_strdup(arena, chosen->path),
                           .columns = TOKEN_COLUMNS,
                           .length = token_length,
                           .fetch = token_fetch,
                           .destroy = token_destroy};
    const Status status = token_fill(data, chosen, at, diag);
    if (status == STATUS_OK)
        *out = &data->base;
    else
        token_destroy(&data->base);
    return status;
}

static Status token_check(void *opaque, Arena *arena, Loc at, Diag *diag) {
    const TokenOptions *options = opaque;
    (void)arena;
    TRY(count_check(options, options->labels.count, "labels", at, diag));
    return class_names_check(&options->labels, at, "labels", diag);
}

static const Field TOKEN_FIELDS[] = {
    {.name = "path",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(TokenOptions, path, const char *),
     .required = true,
     .help = "file of CoNLL columns or JSON Lines"},
    {.name = "tokenizer",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(TokenOptions, tokenizer, const char *),
     .required = true,
     .help = "tokenizer.json, vocab.txt, or a folder with one"},
    F_CHOICE(TokenOptions, table, TAGGED_NAMES,
             "format of the file; by_name: .jsonl, .ndjson, .json, else CoNLL columns"),
    F_STRING(TokenOptions, word,
             "column of the words: its number from 0, or key; not given: 0, or tokens",
             .nullable = true),
    F_STRING(TokenOptions, label,
             "column of the labels; not given: the last, or ner_tags; \"\" = no labels",
             .nullable = true, .empty = true),
    F_STRINGS(TokenOptions, labels,
              "names of the classes, in order; left out: those of `config`, or labels "
              "are numbers from 0"),
    F_STRING(TokenOptions, config,
             "config.json, or a Hugging Face folder with one, whose id2label names the "
             "classes",
             .nullable = true),
    F_INT(TokenOptions, max_length, 1, 65536,
          "most tokens of a sentence, special ones included; words behind are left out"),
    F_INT(TokenOptions, limit, 0, 1e12, "use this many sentences; 0 = all"),
    F_INT(TokenOptions, offset, 0, 1e12, "leave out this many sentences at the start"),
    F_INT(TokenOptions, classes, 0, TEXT_CLASSES_MAX,
          "number of classes; 0 = that of their names, or 1 + the largest label"),
    F_END};

static const TokenOptions TOKEN_DEFAULTS = {.max_length = 128};

const DataFormat format_tokens = {
    .name = "tokens",
    .summary = "sentences of words with a label each (CoNLL columns, JSON Lines), as "
               "tokens",
    .fields = TOKEN_FIELDS,
    .paths = "path|tokenizer|config",
    .options_size = sizeof(TokenOptions),
    .defaults = &TOKEN_DEFAULTS,
    .check = token_check,
    .open = token_open,
};
