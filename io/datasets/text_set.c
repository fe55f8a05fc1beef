/* Text data sets: sentences or pairs of sentences, with labels, of a TSV, CSV or JSON
 * Lines file, or the lines of a plain text, as tokens for BERT and its relatives.
 *
 * The texts become tokens when the data set is opened, and only those are kept. Samples
 * have lengths; fetch() pads them to the tokens it is asked for and masks some. */
#include "io/datasets/class_names.h"
#include "io/datasets/dataset.h"
#include "io/datasets/text_mask.h"
#include "io/datasets/text_samples.h"
#include "io/datasets/text_targets.h"
#include "io/formats/model_vocabulary.h"
#include "ir/random.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct TextOptions {
    const char *path, *tokenizer, *sentence, *sentence2, *negative, *label;
    StringList labels, columns;
    const char *separator;
    int pairs;   /* PAIRS_ */
    int targets; /* TargetKind */
    int table;   /* TableFormat */
    bool header;
    int64_t max_length, limit, offset, classes;
    double mask_share, mask_replace, mask_random;
} TextOptions;

/* What becomes of the texts of a row: one sample, or samples that are a group. */
enum { PAIRS_JOINED, PAIRS_SEPARATE };

/* The column of labels unless another is named, and that of the lines of a plain text. */
static const char LABEL[] = "label";
static const char SENTENCE[] = "sentence";

/* In this order; those of masking and the labels may be left out. */
enum {
    COLUMN_IDS,
    COLUMN_MASK,
    COLUMN_TYPES,
    COLUMN_POSITIONS,
    COLUMN_MASKED,
    COLUMN_LABELS,
    COLUMNS
};

static const Column TEXT_COLUMNS[COLUMNS] = {
    {"input_ids", {DTYPE_I32, 1, {DIM_T}}},
    {"attention_mask", {DTYPE_I32, 1, {DIM_T}}},
    {"token_type_ids", {DTYPE_I32, 1, {DIM_T}}},
    {"masked_positions", {DTYPE_I32, 1, {DIM_M}}},
    {"masked_labels", {DTYPE_I32, 1, {DIM_M}}},
    {"labels", {DTYPE_I32, 0, {0}}},
};

typedef struct TextData {
    Batches base;
    Arena *arena; /* holds this struct */
    TextSamples samples;
    int32_t *labels; /* [count / group], NULL without */
    float *targets;  /* [count / group, width], NULL without; in place of `labels` */
    int64_t width;
    int32_t pad;
    TextMask mask;
    Column columns[COLUMNS]; /* those there are */
    int place[COLUMNS];      /* of each of TEXT_COLUMNS among them */
} TextData;

/* --- fetching --- */

static int64_t text_length(const Batches *self, int64_t index) {
    const int64_t *start = ((const TextData *)self)->samples.start;
    return start[index + 1] - start[index];
}

static int64_t text_masked(const Batches *self, int64_t tokens) {
    return text_mask_most(&((const TextData *)self)->mask, tokens);
}

/* Row `row` of a column that has `width` values a row. */
static int32_t *row_of(const TextData *data, void *const *dst, int column, int64_t row,
                       int64_t width) {
    return (int32_t *)dst[data->place[column]] + row * width;
}

/* Writes sample `sample` as row `row`, padded and, where that is asked for, masked. */
static void sample_write(const TextData *data, const Fetch *what, int64_t sample,
                         int64_t row, void *const *dst) {
    const int64_t tokens = what->tokens;
    int32_t *ids = row_of(data, dst, COLUMN_IDS, row, tokens);
    text_samples_write(&data->samples, sample, tokens, data->pad, ids,
                       row_of(data, dst, COLUMN_MASK, row, tokens),
                       row_of(data, dst, COLUMN_TYPES, row, tokens));
    if (data->mask.share == 0) return;
    const uint64_t key =
        random_key(random_key_name(what->mask_key, "mask"), (uint64_t)sample);
    const int64_t most = text_masked(&data->base, tokens);
    text_mask_apply(&data->mask, key, ids, text_length(&data->base, sample),
                    row_of(data, dst, COLUMN_POSITIONS, row, most),
                    row_of(data, dst, COLUMN_MASKED, row, most), most);
}

static Status text_fetch(const Batches *self, const Fetch *what, void *const *dst,
                         Diag *diag) {
    const TextData *data = (const TextData *)self;
    for (int64_t i = 0; i < what->n; i++) {
        const int64_t sample = what->index[i];
        TRY(dataset_check_tokens(self, sample, what->tokens, diag));
        sample_write(data, what, sample, i, dst);
        const int64_t labelled = sample / batches_group(self);
        if (data->labels)
            *row_of(data, dst, COLUMN_LABELS, i, 1) = data->labels[labelled];
        if (data->targets)
            memcpy(row_of(data, dst, COLUMN_LABELS, i, data->width),
                   data->targets + labelled * data->width,
                   (size_t)data->width * sizeof(float));
    }
    return STATUS_OK;
}

static void text_destroy(Batches *self) {
    TextData *data = (TextData *)self;
    text_samples_free(&data->samples);
    free(data->labels);
    free(data->targets);
    arena_destroy(data->arena);
}

/* --- opening --- */

static bool is_given(const char *name) {
    return name && *name;
}

/* Whether a sample is two texts, with special tokens between them. */
static bool joins_texts(const TextOptions *options) {
    return is_given(options->sentence2) && options->pairs == PAIRS_JOINED;
}

/* Name of the column of labels; NULL = none. Lines have none unless one is asked for. */
static const char *label_column(const TextOptions *options) {
    const char *label = options->label;
    if (!is_given(label)) return NULL;
    return options->table == TABLE_LINES && strcmp(label, LABEL) == 0 ? NULL : label;
}

/* Options of targets that are no classes. */
static Status targets_check(const TextOptions *options, Loc at, Diag *diag) {
    const int columns = options->columns.count, names = options->labels.count;
    if (columns && options->targets == TARGET_CLASS)
        return diag_fail(diag, STATUS_RECIPE, at, "columns",
                         "expected targets: labels or values beside it");
    if (names && options->targets == TARGET_VALUES)
        return diag_fail(diag, STATUS_RECIPE, at, "labels",
                         "expected none, as values have no names");
    if (columns && names && columns != names)
        return diag_fail(diag, STATUS_RECIPE, at, "labels",
                         "expected %d names, one for each of 'columns', found %d",
                         columns, names);
    if (columns && options->classes && options->classes != columns)
        return diag_fail(diag, STATUS_RECIPE, at, "classes",
                         "expected %d, one for each of 'columns', found %" PRId64,
                         columns, options->classes);
    return STATUS_OK;
}

/* What the fields' own ranges cannot say. */
static Status options_check(const TextOptions *options, Loc at, Diag *diag) {
    const StringList *labels = &options->labels;
    const double sum = options->mask_replace + options->mask_random;
    const int names = labels->count;
    if (names && options->classes && options->classes != names)
        return diag_fail(diag, STATUS_RECIPE, at, "classes",
                         "expected %d, one for each name in 'labels', found %" PRId64,
                         names, options->classes);
    if (options->table == TABLE_LINES && label_column(options))
        return diag_fail(diag, STATUS_RECIPE, at, "label",
                         "expected none, as lines have no labels, found '%.64s'",
                         options->label);
    if (options->mask_share != 0 && sum > 1)
        return diag_fail(diag, STATUS_RECIPE, at, "mask_random",
                         "expected at most 1 together with mask_replace, found %g + %g",
                         options->mask_replace, options->mask_random);
    if (options->pairs == PAIRS_SEPARATE && !is_given(options->sentence2))
        return diag_fail(diag, STATUS_RECIPE, at, "pairs",
                         "expected sentence2 beside separate");
    if (is_given(options->negative) && options->pairs != PAIRS_SEPARATE)
        return diag_fail(diag, STATUS_RECIPE, at, "negative",
                         "expected pairs: separate beside it");
    if (names > TEXT_NAMES_MAX)
        return diag_fail(diag, STATUS_RECIPE, at, "labels",
                         "expected at most %d names, found %d", TEXT_NAMES_MAX, names);
    for (int i = 1; i < names; i++) {
        const StringList before = {labels->items, i};
        if (class_names_find(&before, labels->items[i]) >= 0)
            return diag_fail(diag, STATUS_RECIPE, at, "labels",
                             "expected names that differ, found '%.64s' twice",
                             labels->items[i]);
    }
    return targets_check(options, at, diag);
}

/* Finds the column `name`; *out = -1 when none is named. */
static Status column_find(int *out, const Table *table, const char *name, const char *key,
                          Loc at, Diag *diag) {
    *out = -1;
    if (!is_given(name)) return STATUS_OK;
    return table_column(out, table, name, at, key, diag);
}

/* Labels that are no classes. Columns of labels name them. */
static Status targets_fill(TextData *data, const TextOptions *options,
                           const TextRows *rows, Loc at, Diag *diag) {
    const StringList *columns = &options->columns;
    TargetColumns where = {.kind = (TargetKind)options->targets,
                           .separator = options->separator,
                           .count = columns->count,
                           .names = options->labels,
                           .width = options->classes};
    int *found = ARENA_ARRAY(data->arena, int, (size_t)columns->count);
    for (int i = 0; i < columns->count; i++)
        TRY(table_column(&found[i], rows->table, columns->items[i], at, "columns", diag));
    if (!columns->count)
        TRY(table_column(&where.column, rows->table, options->label, at, "label", diag));
    where.columns = found;
    const bool labels = where.kind == TARGET_LABELS;
    data->base.class_names = class_names_copy(
        data->arena, labels && !where.names.count ? columns : &where.names);
    TRY(text_targets_read(&data->targets, &data->width, rows, &where, diag));
    data->base.classes = data->width;
    return STATUS_OK;
}

static Status labels_fill(TextData *data, const TextOptions *options,
                          const TextRows *rows, Loc at, Diag *diag) {
    int column;
    if (options->targets != TARGET_CLASS && label_column(options))
        return targets_fill(data, options, rows, at, diag);
    Status status =
        column_find(&column, rows->table, label_column(options), "label", at, diag);
    if (status != STATUS_OK) diag_hint(diag, "label: \"\" reads no labels");
    if (status != STATUS_OK || column < 0) return status;
    data->labels = memory_alloc((size_t)rows->count, sizeof *data->labels);
    data->base.classes = options->classes;
    data->base.class_names = class_names_copy(data->arena, &options->labels);
    return text_labels_read(data->labels, &data->base.classes, rows, column,
                            &options->labels, diag);
}

/* Chooses the columns that there are. */
static void columns_fill(TextData *data) {
    const bool masked = data->mask.share > 0;
    Batches *base = &data->base;
    for (int i = 0; i < COLUMNS; i++) {
        if ((i == COLUMN_POSITIONS || i == COLUMN_MASKED) && !masked) continue;
        if (i == COLUMN_LABELS && !data->labels && !data->targets) continue;
        data->place[i] = base->column_count;
        data->columns[base->column_count++] =
            i == COLUMN_LABELS && data->targets
                ? (Column){DATA_LABELS, {DTYPE_F32, 1, {data->width}}}
                : TEXT_COLUMNS[i];
    }
    base->columns = data->columns;
    if (masked) base->masked = text_masked;
}

/* Encodes the texts of the rows, joined or as samples that are a group. */
static Status samples_fill(TextData *data, const TextOptions *options,
                           const TextRows *rows, const Tokenizer *tokenizer, Loc at,
                           Diag *diag) {
    const size_t most = (size_t)options->max_length;
    int texts[3];
    TRY(column_find(&texts[0], rows->table, options->sentence, "sentence", at, diag));
    TRY(column_find(&texts[1], rows->table, options->sentence2, "sentence2", at, diag));
    TRY(column_find(&texts[2], rows->table, options->negative, "negative", at, diag));
    data->base.group = 1;
    data->base.count = rows->count;
    if (options->pairs == PAIRS_JOINED)
        return text_samples_encode(&data->samples, tokenizer, rows, texts[0], texts[1],
                                   most, diag);
    data->base.group = texts[2] < 0 ? 2 : 3;
    data->base.count *= data->base.group;
    return text_samples_encode_apart(&data->samples, tokenizer, rows, texts,
                                     (int)data->base.group, most, diag);
}

static Status table_fill(TextData *data, const TextOptions *options, const Table *table,
                         const Tokenizer *tokenizer, Loc at, Diag *diag) {
    TextRows rows = {.table = table, .first = options->offset};
    TRY(dataset_slice(&rows.count, table_rows(table), options->offset, options->limit,
                      options->path, at, diag));
    TRY(labels_fill(data, options, &rows, at, diag));
    TRY(samples_fill(data, options, &rows, tokenizer, at, diag));
    text_samples_warn_cut(&data->samples, data->base.count, options->max_length,
                          data->base.name, at, diag);
    text_samples_warn_unknown(&data->samples, data->base.count, tokenizer,
                              options->tokenizer, data->base.name, at, diag);
    data->pad = tokenizer_specials(tokenizer)->pad;
    data->base.max_tokens = data->samples.longest;
    TRY(text_samples_check_padding(&data->samples, data->base.count, data->pad,
                                   options->tokenizer, at, diag));
    columns_fill(data);
    return STATUS_OK;
}

static Status mask_fill(TextMask *mask, const TextOptions *options,
                        const Tokenizer *tokenizer, Loc at, Diag *diag) {
    const int64_t overhead = (int64_t)tokenizer_overhead(tokenizer, joins_texts(options));
    *mask = (TextMask){.share = options->mask_share,
                       .replace = options->mask_replace,
                       .random = options->mask_random,
                       .specials = *tokenizer_specials(tokenizer),
                       .vocabulary = tokenizer_size(tokenizer),
                       .reserved = overhead > 0 ? overhead : 1};
    if (mask->share == 0 || mask->specials.mask >= 0) return STATUS_OK;
    diag_fail(diag, STATUS_RECIPE, at, "mask_share",
              "expected a tokenizer with [MASK], found none in %s", options->tokenizer);
    diag_hint(diag, "a tokenizer_config.json beside it can give mask_token another name");
    return STATUS_RECIPE;
}

static Status tokenizer_fill(TextData *data, const TextOptions *options,
                             const Tokenizer *tokenizer, Loc at, Diag *diag) {
    Table *table;
    const char *name = SENTENCE;
    const TableOptions chosen = {.format = (TableFormat)options->table,
                                 .no_header = !options->header,
                                 .lists = options->targets != TARGET_CLASS,
                                 .names = &name,
                                 .name_count = options->table == TABLE_LINES};
    TRY(text_samples_check_room(tokenizer, joins_texts(options), options->max_length, at,
                                diag));
    TRY(mask_fill(&data->mask, options, tokenizer, at, diag));
    TRY(table_read(&table, options->path, &chosen, diag));
    Status status = table_fill(data, options, table, tokenizer, at, diag);
    table_destroy(table);
    return status;
}

static Status text_fill(TextData *data, const TextOptions *options, Loc at, Diag *diag) {
    Tokenizer *tokenizer;
    TRY(options_check(options, at, diag));
    TRY(tokenizer_read(&tokenizer, options->tokenizer, diag));
    Status status = tokenizer_fill(data, options, tokenizer, at, diag);
    data->base.vocabulary = vocabulary_of(tokenizer, data->arena);
    tokenizer_destroy(tokenizer);
    return status;
}

static Status text_open(Batches **out, const void *options, Loc at, Diag *diag) {
    const TextOptions *chosen = options;
    Arena *arena = arena_create();
    TextData *data = ARENA_NEW(arena, TextData);
    data->arena = arena;
    data->base.name = arena_strdup(arena, chosen->path);
    data->base.length = text_length;
    data->base.fetch = text_fetch;
    data->base.destroy = text_destroy;
    Status status = text_fill(data, chosen, at, diag);
    if (status == STATUS_OK)
        *out = &data->base;
    else
        text_destroy(&data->base);
    return status;
}

static const Field TEXT_FIELDS[] = {
    {.name = "path",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(TextOptions, path, const char *),
     .required = true,
     .help = "TSV, CSV, JSON Lines or text file"},
    {.name = "tokenizer",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(TextOptions, tokenizer, const char *),
     .required = true,
     .help = "tokenizer.json, vocab.txt, or a folder with one"},
    F_CHOICE(TextOptions, table, "by_name|tsv|csv|jsonl|lines",
             "format of the file; by_name: .csv, .jsonl (.ndjson, .json), else TSV; "
             "lines: each line a sentence, no header, no labels"),
    F_BOOL(TextOptions, header, "TSV, CSV: the first line names the columns"),
    F_STRING(TextOptions, sentence, "column of the text: its name, or number from 0",
             .number = true, .expect = "a column's name or number"),
    F_STRING(TextOptions, sentence2, "column of the pair's second text; left out: none",
             .nullable = true, .empty = true, .number = true),
    F_CHOICE(TextOptions, pairs, "joined|separate",
             "sentence and sentence2: one sample with both, or two samples that are a "
             "group, for models that embed texts"),
    F_STRING(TextOptions, negative,
             "pairs: separate: column of a third text, which does not belong to the "
             "first; left out: none",
             .nullable = true, .empty = true, .number = true),
    F_STRING(TextOptions, label, "column of the labels; \"\" = no labels",
             .nullable = true, .empty = true, .number = true),
    F_STRINGS(TextOptions, labels,
              "names of the classes, in order; left out: labels are numbers from 0"),
    F_CHOICE(TextOptions, targets, TARGET_NAMES,
             "what labels are: one class a row; any number of labels; real values. The "
             "last two stand in one cell, a list or parted by `separator`, or in "
             "`columns`"),
    F_STRINGS(TextOptions, columns,
              "targets labels, values: a column for each, in place of `label`; labels "
              "are 0 or 1 and named by their columns",
              .number = true),
    F_STRING(TextOptions, separator, "targets labels, values: between those of a cell"),
    F_INT(TextOptions, max_length, 1, 65536,
          "most tokens of a sample, special ones included; the rest is cut"),
    F_INT(TextOptions, limit, 0, 1e12, "use this many samples; 0 = all"),
    F_INT(TextOptions, offset, 0, 1e12, "leave out this many samples at the start"),
    F_INT(TextOptions, classes, 0, TEXT_CLASSES_MAX,
          "number of classes, or of labels; 0 = that of 'labels', or 1 + the largest "
          "label"),
    F_REAL(TextOptions, mask_share, 0, 1,
           "share of a sample's tokens to mask for masked language models; 0 = none"),
    F_REAL(TextOptions, mask_replace, 0, 1, "share of these that become [MASK]"),
    F_REAL(TextOptions, mask_random, 0, 1,
           "share of these that become a random token; the rest stay"),
    F_END};

static const TextOptions TEXT_DEFAULTS = {.sentence = SENTENCE,
                                          .label = LABEL,
                                          .separator = ",",
                                          .header = true,
                                          .max_length = 128,
                                          .mask_replace = 0.8,
                                          .mask_random = 0.1};

const DataFormat format_text = {
    .name = "text",
    .summary = "sentences or pairs with labels in TSV, CSV or JSON Lines, or lines of "
               "text, as tokens; masked on demand",
    .fields = TEXT_FIELDS,
    .paths = "path|tokenizer",
    .options_size = sizeof(TextOptions),
    .defaults = &TEXT_DEFAULTS,
    .open = text_open,
};
