/* Questions with choices, of a TSV, CSV or JSON Lines file: in two formats.
 *
 * choices: a sample is the pair of a question's text and one of its choices, for encoders
 * with a score (SWAG, Zellers et al., 2018; RACE). The choices of a question are a group
 * (Batches.group).
 *
 * endings: a sample is a text with one of its possible endings, for models that predict
 * the next token: what they make of the endings' tokens tells which they choose
 * (HellaSwag, Zellers et al., 2019). Without choices a text's ending is its last word
 * (LAMBADA, Paperno et al., 2016). */
#include "io/datasets/dataset.h"
#include "io/datasets/last_words.h"
#include "io/datasets/text_samples.h"
#include "io/files/path.h"
#include "io/formats/model_vocabulary.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { CHOICES_MAX = 1024 };

typedef struct ChoiceOptions {
    const char *path, *tokenizer, *context, *question, *label, *separator;
    StringList choices, labels;
    int table; /* TableFormat */
    int64_t max_length, limit, offset;
    bool endings;
    const char *length_name; /* of max_length, in messages */
} ChoiceOptions;

enum { COLUMN_IDS, COLUMN_MASK, COLUMN_TYPES, COLUMN_PLACE, COLUMN_LABEL, COLUMNS };

static const Column CHOICE_COLUMNS[COLUMNS] = {
    {"input_ids", {DTYPE_I32, 1, {DIM_T}}},
    {"attention_mask", {DTYPE_I32, 1, {DIM_T}}},
    {"token_type_ids", {DTYPE_I32, 1, {DIM_T}}},
    {DATA_CHOICE_PLACE, {DTYPE_I32, 0, {0}}},
    {DATA_LABELS, {DTYPE_I32, 0, {0}}},
};

/* Of endings: the labels are the next tokens, and the right choice has its own column. */
enum {
    COLUMN_NEXT = COLUMN_TYPES,
    COLUMN_RIGHT = COLUMN_LABEL,
    COLUMN_BYTES,
    ENDING_COLUMNS
};

static const Column ENDINGS_COLUMNS[ENDING_COLUMNS] = {
    {"input_ids", {DTYPE_I32, 1, {DIM_T}}},   {"attention_mask", {DTYPE_I32, 1, {DIM_T}}},
    {DATA_LABELS, {DTYPE_I32, 1, {DIM_T}}},   {DATA_CHOICE_PLACE, {DTYPE_I32, 0, {0}}},
    {DATA_CHOICE_RIGHT, {DTYPE_I32, 0, {0}}}, {DATA_CHOICE_BYTES, {DTYPE_I32, 0, {0}}},
};

typedef struct ChoiceData {
    Batches base;
    Arena *arena; /* holds this struct */
    TextSamples samples;
    int32_t *right;   /* by question: which choice */
    int32_t *from;    /* endings, by sample: its first token that is the ending's */
    int32_t *bytes;   /* likewise: bytes of the ending */
    int64_t capacity; /* samples that there is room for */
    int32_t pad;
    bool endings;
} ChoiceData;

/* ---- fetching ---- */

/* Tokens of a sample; the last one of an ending is a label alone. */
static int64_t choice_length(const Batches *self, int64_t index) {
    const ChoiceData *data = (const ChoiceData *)self;
    const int64_t *start = data->samples.start;
    return start[index + 1] - start[index] - data->endings;
}

static void ending_write(const ChoiceData *data, int64_t sample, int64_t tokens,
                         int32_t *ids, int32_t *mask, int32_t *next) {
    const uint32_t *from = data->samples.tokens + data->samples.start[sample];
    const int64_t length = choice_length(&data->base, sample);
    for (int64_t t = 0; t < tokens; t++) {
        const bool inside = t < length;
        ids[t] = inside ? text_token_id(from[t]) : data->pad >= 0 ? data->pad : 0;
        mask[t] = inside;
        next[t] = inside && t + 1 >= data->from[sample] ? text_token_id(from[t + 1])
                                                        : INDEX_SKIP;
    }
}

static Status choice_fetch(const Batches *self, const Fetch *what, void *const *dst,
                           Diag *diag) {
    const ChoiceData *data = (const ChoiceData *)self;
    const int64_t tokens = what->tokens, group = batches_group(self);
    for (int64_t i = 0; i < what->n; i++) {
        const int64_t sample = what->index[i];
        TRY(dataset_check_tokens(self, sample, tokens, diag));
        int32_t *row[3];
        for (int c = 0; c < 3; c++) row[c] = (int32_t *)dst[c] + i * tokens;
        if (data->endings)
            ending_write(data, sample, tokens, row[COLUMN_IDS], row[COLUMN_MASK],
                         row[COLUMN_NEXT]);
        else
            text_samples_write(&data->samples, sample, tokens, data->pad, row[COLUMN_IDS],
                               row[COLUMN_MASK], row[COLUMN_TYPES]);
        ((int32_t *)dst[COLUMN_PLACE])[i] = (int32_t)(sample % group);
        ((int32_t *)dst[COLUMN_LABEL])[i] =
            data->right[sample / group] == (int32_t)(sample % group);
        if (data->endings) ((int32_t *)dst[COLUMN_BYTES])[i] = data->bytes[sample];
    }
    return STATUS_OK;
}

static void choice_destroy(Batches *self) {
    ChoiceData *data = (ChoiceData *)self;
    text_samples_free(&data->samples);
    free(data->right);
    free(data->from);
    free(data->bytes);
    arena_destroy(data->arena);
}

/* ---- rows ---- */

/* Where a row's texts stand. */
typedef struct Row {
    const Table *table;
    int context, question, label; /* columns; -1 = none */
    int choice[CHOICES_MAX];      /* columns of one choice each */
    int count;                    /* of them; 1: it may hold a list of choices */
    bool none;                    /* the ending is the last word of the text */
} Row;

static Status find_columns(Row *row, const ChoiceOptions *o, Loc at, Diag *diag) {
    const StringList *choices = &o->choices;
    row->question = row->label = -1;
    row->none = o->endings && choices->count == 0;
    TRY(table_column(&row->context, row->table, o->context, at, "context", diag));
    if (o->question && *o->question)
        TRY(table_column(&row->question, row->table, o->question, at, "question", diag));
    if (row->none) return STATUS_OK;
    TRY(table_column(&row->label, row->table, o->label, at, "label", diag));
    if (choices->count == 0 || choices->count > CHOICES_MAX)
        return diag_fail(diag, STATUS_RECIPE, at, "choices",
                         "expected 1 to %d columns, found %d", CHOICES_MAX,
                         choices->count);
    for (int i = 0; i < choices->count; i++)
        TRY(table_column(&row->choice[i], row->table, choices->items[i], at, "choices",
                         diag));
    row->count = choices->count;
    return STATUS_OK;
}

/* The items of a row's list, of which the first CHOICES_MAX are kept; returns how many
 * there are. */
static int list_choices(TextSpan *out, const Row *row, int64_t index) {
    size_t length;
    const char *cell = table_cell(row->table, index, row->choice[0], &length), *item;
    const char *end = cell + length;
    int count = 0;
    for (; (item = memchr(cell, TABLE_ITEM_END, (size_t)(end - cell))); cell = item + 1)
        if (count++ < CHOICES_MAX)
            out[count - 1] = (TextSpan){cell, (size_t)(item - cell)};
    return count;
}

/* A cell that is no list: that is for choices in one column. */
static Status read_cell(TextSpan *out, const Row *row, int64_t index, int column,
                        const char *key, Diag *diag) {
    out->text = table_cell(row->table, index, column, &out->length);
    if (!memchr(out->text, TABLE_ITEM_END, out->length)) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, table_loc(row->table, index), key,
                     "expected a string or a number, found list");
}

/* The choices of a row: cells, or the items of one cell's list. Fails with STATUS_FORMAT
 * at a row with another number of them than `wanted` (0 = any from 2 to CHOICES_MAX). */
static Status read_choices(TextSpan *out, int *count, const Row *row, int64_t index,
                           int wanted, Diag *diag) {
    const bool list = row->count == 1;
    *count = list ? list_choices(out, row, index) : row->count;
    for (int i = 0; i < row->count && !list; i++)
        TRY(read_cell(&out[i], row, index, row->choice[i], "choices", diag));
    if (wanted ? *count == wanted : *count >= 2 && *count <= CHOICES_MAX)
        return STATUS_OK;
    const bool few = *count < 2;
    diag_fail(diag, STATUS_FORMAT, table_loc(row->table, index), "choices",
              wanted ? "expected %d choices, as in the first row, found %d"
              : few  ? "expected at least %d choices, found %d"
                     : "expected at most %d choices, found %d",
              wanted ? wanted
              : few  ? 2
                     : CHOICES_MAX,
              *count);
    diag_hint(diag, "choices: [COLUMN] of JSON Lines with a list of texts, or "
                    "[COLUMN, COLUMN ...]");
    return STATUS_FORMAT;
}

/* The right choice: its number from 0, or its place among the names of `labels`. */
static Status read_right(int32_t *out, const Row *row, int64_t index, int count,
                         const StringList *names, Diag *diag) {
    const TextRows rows = {row->table, index, 1};
    int64_t classes = names->count ? 0 : count;
    TRY(text_labels_read(out, &classes, &rows, row->label, names, diag));
    if (*out < count) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, table_loc(row->table, index), NULL,
                     "expected the name of one of %d choices, found the %dth name", count,
                     *out + 1);
}

/* ---- tokens ---- */

typedef struct Choosing {
    ChoiceData *data;
    const ChoiceOptions *options;
    const Tokenizer *tokenizer;
    Row row;
    int64_t index; /* the table's row at hand */
    Encoding tokens;
    int32_t begin; /* token for the beginning that the tokenizer puts in front; or -1 */
    Text text;     /* what is encoded */
    int64_t cut;   /* samples that were longer than may be */
    Diag *diag;
} Choosing;

static void text_put(Text *text, TextSpan part) {
    text_bytes(text, part.text, part.length);
}

/* Keeps the tokens as a sample; of an ending those from `from` on are its own. */
static Status keep_sample(Choosing *c, int64_t from, size_t bytes) {
    ChoiceData *data = c->data;
    const int64_t sample = data->base.count++;
    if (sample == data->capacity) {
        data->capacity = 2 * data->capacity + 64;
        const size_t room = (size_t)data->capacity;
        int64_t **start = &data->samples.start;
        *start = memory_grow(*start, room + 1, sizeof **start);
        data->from = memory_grow(data->from, room, sizeof *data->from);
        data->bytes = memory_grow(data->bytes, room, sizeof *data->bytes);
    }
    if (sample == 0) data->samples.start[0] = 0;
    data->from[sample] = (int32_t)from;
    data->bytes[sample] = (int32_t)(bytes > 0 ? bytes : 1);
    return text_samples_add(&data->samples, sample, &c->tokens, c->diag);
}

/* A question's text and one of its choices as a pair: with a question, that and the
 * choice are the second text, as SWAG has it. */
static Status add_pair(Choosing *c, TextSpan context, TextSpan question,
                       TextSpan choice) {
    c->text.length = 0;
    text_put(&c->text, question);
    if (question.length > 0) text_bytes(&c->text, " ", 1);
    text_put(&c->text, choice);
    const TextSpan second = {c->text.data ? c->text.data : "", c->text.length};
    TRY(tokenizer_encode(c->tokenizer, &c->tokens, context, &second,
                         (size_t)c->options->max_length, LOC_NONE, c->diag));
    return keep_sample(c, 0, choice.length);
}

/* Tokens of a text as a language model reads it: behind the token for the beginning,
 * where the tokenizer puts one there, and without any for the end. */
static Status encode_open(Choosing *c, TextSpan text) {
    Encoding *tokens = &c->tokens;
    if (c->begin >= 0) /* which makes room for special tokens */
        TRY(tokenizer_encode(c->tokenizer, tokens, text, NULL, 0, LOC_NONE, c->diag));
    TRY(tokenizer_encode_plain(c->tokenizer, tokens, text, LOC_NONE, c->diag));
    if (c->begin < 0) return STATUS_OK;
    memmove(tokens->ids + 1, tokens->ids, tokens->length++ * sizeof *tokens->ids);
    tokens->ids[0] = c->begin;
    tokens->types[tokens->length - 1] = 0;
    return STATUS_OK;
}

/* A text with an ending. The ending's tokens are those of the whole behind the first
 * `from`, as many as the text alone has; what does not fit is cut at the start. */
static Status add_ending(Choosing *c, TextSpan context, TextSpan between, TextSpan ending,
                         int64_t from) {
    c->text.length = 0;
    text_put(&c->text, context);
    text_put(&c->text, between);
    text_put(&c->text, ending);
    const TextSpan whole = {c->text.data ? c->text.data : "", c->text.length};
    TRY(encode_open(c, whole));
    const int64_t most = c->options->max_length + 1, all = (int64_t)c->tokens.length;
    if (all < 2)
        return diag_fail(
            c->diag, STATUS_FORMAT, table_loc(c->row.table, c->index), NULL,
            "expected a text and an ending of two tokens or more, found %lld",
            (long long)all);
    if (from >= all)
        from = all - 1;     /* the ending became one with the text's last token */
    if (from < 1) from = 1; /* the first token is predicted from nothing */
    const int64_t drop = all > most ? all - most : 0;
    c->cut += drop > 0;
    memmove(c->tokens.ids, c->tokens.ids + drop,
            (size_t)(all - drop) * sizeof *c->tokens.ids);
    c->tokens.length = (size_t)(all - drop);
    return keep_sample(c, from > drop ? from - drop : 1, ending.length);
}

static bool is_space(char c) {
    return c && strchr(" \t\r\n", c);
}

/* Where the ending of a text without choices begins: its last word, or of a line with
 * tabs what is behind the last one; 0 where nothing is in front of it. */
static size_t find_ending(const TextSpan *text, bool tabbed) {
    size_t at = text->length;
    while (at > 0 &&
           (tabbed ? text->text[at - 1] != '\t' : !is_space(text->text[at - 1])))
        at--;
    return at;
}

static Status add_last_word(Choosing *c, TextSpan text) {
    while (text.length > 0 && is_space(text.text[text.length - 1])) text.length--;
    const bool tabbed =
        c->options->table == TABLE_LINES && memchr(text.text, '\t', text.length) != NULL;
    const size_t word = find_ending(&text, tabbed);
    size_t end = word;
    while (end > 0 && is_space(text.text[end - 1])) end--;
    if (end == 0)
        return diag_fail(c->diag, STATUS_FORMAT, table_loc(c->row.table, c->index), NULL,
                         "expected a text of at least two words, found '%.60s'",
                         text.text);
    const TextSpan context = {text.text, end};
    const char *separator = c->options->separator;
    TRY(encode_open(c, context));
    return add_ending(c, context,
                      tabbed ? (TextSpan){separator, strlen(separator)}
                             : (TextSpan){text.text + end, word - end},
                      (TextSpan){text.text + word, text.length - word},
                      (int64_t)c->tokens.length);
}

/* Adds the samples of the row at hand, which is question number `question`. */
static Status add_row(Choosing *c, int64_t question) {
    TextSpan context, about = {"", 0}, choice[CHOICES_MAX];
    const Row *row = &c->row;
    const ChoiceOptions *o = c->options;
    int count;
    TRY(read_cell(&context, row, c->index, row->context, "context", c->diag));
    if (row->none) return add_last_word(c, context);
    if (row->question >= 0)
        TRY(read_cell(&about, row, c->index, row->question, "question", c->diag));
    TRY(read_choices(choice, &count, row, c->index, (int)c->data->base.group, c->diag));
    TRY(read_right(&c->data->right[question], row, c->index, count, &o->labels, c->diag));
    c->data->base.group = count;
    const TextSpan between = {o->separator, strlen(o->separator)};
    if (o->endings) TRY(encode_open(c, context));
    const int64_t from = (int64_t)c->tokens.length;
    for (int i = 0; i < count; i++)
        TRY(o->endings ? add_ending(c, context, between, choice[i], from)
                       : add_pair(c, context, about, choice[i]));
    return STATUS_OK;
}

static Status add_rows(Choosing *c, Loc at) {
    int64_t count;
    const ChoiceOptions *o = c->options;
    ChoiceData *data = c->data;
    TRY(find_columns(&c->row, o, at, c->diag));
    TRY(dataset_slice(&count, table_rows(c->row.table), o->offset, o->limit, o->path, at,
                      c->diag));
    data->right = memory_alloc((size_t)count, sizeof *data->right);
    for (int64_t i = 0; i < count; i++) {
        c->index = o->offset + i;
        const Status status = add_row(c, i);
        if (status == STATUS_OK) continue;
        diag_place(c->diag, table_loc(c->row.table, c->index), NULL);
        return status;
    }
    data->base.max_tokens = data->samples.longest - data->endings;
    if (c->cut > 0)
        diag_warn(c->diag, at, o->length_name,
                  "%" PRId64 " of %" PRId64 " texts are longer and lost their beginnings",
                  c->cut, data->base.count);
    text_samples_warn_cut(&data->samples, data->base.count, o->max_length, o->path, at,
                          c->diag);
    text_samples_warn_unknown(&data->samples, data->base.count, c->tokenizer,
                              o->tokenizer, o->path, at, c->diag);
    if (data->endings) return STATUS_OK; /* nothing behind a token changes it */
    return text_samples_check_padding(&data->samples, data->base.count, data->pad,
                                      o->tokenizer, at, c->diag);
}

/* ---- opening ---- */

static Status choice_fill(ChoiceData *data, const ChoiceOptions *o,
                          const Tokenizer *tokenizer, Loc at, Diag *diag) {
    Table *table;
    const char *line = o->context;
    const bool lines = o->table == TABLE_LINES;
    const TableOptions as = {.format = (TableFormat)o->table,
                             .lists = true,
                             .names = &line,
                             .name_count = lines};
    if (!data->endings)
        TRY(text_samples_check_room(tokenizer, true, o->max_length, at, diag));
    TRY(table_read(&table, o->path, &as, diag));
    data->pad = tokenizer_specials(tokenizer)->pad;
    data->base.vocabulary = vocabulary_of(tokenizer, data->arena);
    if (data->endings) data->base.classes = tokenizer_size(tokenizer);
    Choosing c = {.data = data,
                  .options = o,
                  .tokenizer = tokenizer,
                  .row = {.table = table},
                  .begin = tokenizer_begin(tokenizer),
                  .diag = diag};
    const Status status = add_rows(&c, at);
    encoding_free(&c.tokens);
    text_free(&c.text);
    table_destroy(table);
    return status;
}

static Status open_with(Batches **out, const ChoiceOptions *o, const Tokenizer *tokenizer,
                        Loc at, Diag *diag) {
    Arena *arena = arena_create();
    ChoiceData *data = ARENA_NEW(arena, ChoiceData);
    data->arena = arena;
    data->endings = o->endings;
    data->base =
        (Batches){.name = arena_strdup(arena, o->path),
                  .columns = o->endings ? ENDINGS_COLUMNS : CHOICE_COLUMNS,
                  .column_count = o->endings ? (int)ENDING_COLUMNS : (int)COLUMNS,
                  .length = choice_length,
                  .fetch = choice_fetch,
                  .destroy = choice_destroy};
    const Status status = choice_fill(data, o, tokenizer, at, diag);
    if (status == STATUS_OK)
        *out = &data->base;
    else
        choice_destroy(&data->base);
    return status;
}

static Status open_as(Batches **out, const ChoiceOptions *o, bool endings, Loc at,
                      Diag *diag) {
    Tokenizer *tokenizer;
    ChoiceOptions chosen = *o;
    chosen.endings = endings;
    TRY(tokenizer_read(&tokenizer, chosen.tokenizer, diag));
    const Status status = open_with(out, &chosen, tokenizer, at, diag);
    tokenizer_destroy(tokenizer);
    return status;
}

static Status choices_open(Batches **out, const void *options, Loc at, Diag *diag) {
    return open_as(out, options, false, at, diag);
}

static Status endings_open(Batches **out, const void *options, Loc at, Diag *diag) {
    return open_as(out, options, true, at, diag);
}

#define CHOICE_FIELDS                                                                    \
    {.name = "path",                                                                     \
     .kind = FIELD_STRING,                                                               \
     .offset = FIELD_AT(ChoiceOptions, path, const char *),                              \
     .required = true,                                                                   \
     .help = "TSV, CSV or JSON Lines file"},                                             \
        {.name = "tokenizer",                                                            \
         .kind = FIELD_STRING,                                                           \
         .offset = FIELD_AT(ChoiceOptions, tokenizer, const char *),                     \
         .required = true,                                                               \
         .help = "tokenizer.json, vocab.txt, or a folder with one"},                     \
        F_STRING(ChoiceOptions, context, "column of the text", .number = true),          \
        F_STRING(ChoiceOptions, label, "column of the right choice", .number = true),    \
        F_STRINGS(ChoiceOptions, labels,                                                 \
                  "what stands there for each choice ([A, B, C, D]); left out: numbers " \
                  "from 0"),                                                             \
        F_INT(ChoiceOptions, limit, 0, 1e12, "use this many questions; 0 = all"),        \
        F_INT(ChoiceOptions, offset, 0, 1e12,                                            \
              "leave out this many questions at the start")

static const Field CHOICES_FIELDS[] = {
    CHOICE_FIELDS,
    F_CHOICE(ChoiceOptions, table, "by_name|tsv|csv|jsonl",
             "format of the file; by_name: .csv, .jsonl (.ndjson, .json), else TSV"),
    F_STRING(ChoiceOptions, question,
             "column of a text in front of every choice; left out: none",
             .nullable = true, .empty = true, .number = true),
    F_STRINGS(ChoiceOptions, choices,
              "columns of the choices, or the one of JSON Lines that holds a list of "
              "them",
              .number = true),
    F_INT(ChoiceOptions, max_length, 1, 65536,
          "most tokens of a sample, special ones included; the rest is cut"),
    F_END};

static const Field ENDINGS_FIELDS[] = {
    CHOICE_FIELDS,
    F_CHOICE(ChoiceOptions, table, "by_name|tsv|csv|jsonl|lines",
             "format of the file; by_name: .csv, .jsonl (.ndjson, .json), else TSV; "
             "lines: each line a text, or one with a tab and its ending"),
    F_STRINGS(ChoiceOptions, choices,
              "columns of the endings, or the one of JSON Lines that holds a list of "
              "them; left out: the last word of the text is its ending",
              .number = true),
    F_STRING(ChoiceOptions, separator, "what stands between a text and an ending",
             .empty = true),
    F_INT(ChoiceOptions, max_length, 2, 65536,
          "most tokens of a text with an ending; what is before them is cut"),
    F_END};

static const ChoiceOptions CHOICES_DEFAULTS = {.context = "context",
                                               .label = "label",
                                               .separator = " ",
                                               .max_length = 128,
                                               .length_name = "max_length"};

static const ChoiceOptions ENDINGS_DEFAULTS = {.context = "context",
                                               .label = "label",
                                               .separator = " ",
                                               .max_length = 1024,
                                               .length_name = "max_length"};

Status last_words_open(Batches **out, const char *path, const Tokenizer *tokenizer,
                       int64_t max_length, const char *length_name, Diag *diag) {
    ChoiceOptions options = ENDINGS_DEFAULTS;
    options.path = path;
    options.endings = true;
    options.max_length = max_length;
    options.length_name = length_name;
    options.table = path_is_json_lines(path) ? TABLE_JSONL : TABLE_LINES;
    options.context = "text";
    Diag *own = diag_create();
    const Status status = open_with(out, &options, tokenizer, LOC_FILE(path), own);
    if (status == STATUS_RECIPE) /* of a caller who has no recipe */
        diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                  "expected a map with \"text\" on every line, found none");
    else
        diag_take(diag, own);
    diag_destroy(own);
    return status == STATUS_RECIPE ? STATUS_FORMAT : status;
}

const DataFormat format_choices = {
    .name = "choices",
    .summary = "questions with choices, each a pair of texts, for encoders with a score",
    .fields = CHOICES_FIELDS,
    .paths = "path|tokenizer",
    .options_size = sizeof(ChoiceOptions),
    .defaults = &CHOICES_DEFAULTS,
    .open = choices_open,
};

const DataFormat format_endings = {
    .name = "endings",
    .summary = "texts with possible endings, or with their last words, for language "
               "models",
    .fields = ENDINGS_FIELDS,
    .paths = "path|tokenizer",
    .options_size = sizeof(ChoiceOptions),
    .defaults = &ENDINGS_DEFAULTS,
    .open = endings_open,
};
