/* Table: TSV, CSV, JSON Lines and lines of text as cells, and access to them. */
#include "io/datasets/data_table.h"

#include "io/files/file.h"
#include "io/files/json.h"
#include "io/files/path.h"
#include "io/tokenizers/unicode.h"
#include "ir/arena.h"
#include "ir/text.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_PER_ANCHOR = 8 };

/* Cells stand one after the other, row by row, each terminated by a NUL. Where every
 * eighth row starts is kept; the others are found by walking. */
struct Table {
    Arena *arena;
    const char *path;
    TableOptions options;
    bool quotes; /* as the options and the format say */
    char *data;
    Text owned; /* `data` of JSON Lines */
    const char **names;
    int columns; /* 0 = not known yet */
    int64_t rows, skipped;
    uint32_t *anchors; /* start of rows 0, 8, 16 ... */
    uint64_t *starts;  /* a bit for each line of the file: whether a row starts there */
};

/* --- what the readers fill in --- */

/* Notes that the next row starts at `offset` of the data and on a line of the file. */
static void table_row_add(Table *table, size_t offset, int64_t line) {
    if (table->rows % ROWS_PER_ANCHOR == 0)
        table->anchors[table->rows / ROWS_PER_ANCHOR] = (uint32_t)offset;
    table->starts[(line - 1) / 64] |= (uint64_t)1 << (line - 1) % 64;
    table->rows++;
}

/* A place in the file; lines beyond what Loc can hold are left out. */
static Loc table_place(const Table *table, int64_t line) {
    return (Loc){table->path, line > INT_MAX ? 0 : (int)line, 0};
}

/* Takes over the names of the columns; the texts are borrowed. Fails with STATUS_FORMAT
 * when two are equal. */
static Status table_set_names(Table *table, const char *const *names, int count,
                              int64_t line, Diag *diag) {
    const char **sorted = ARENA_ARRAY(table->arena, const char *, (size_t)count);
    memcpy(sorted, names, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, text_order);
    for (int i = 1; i < count; i++)
        if (*sorted[i] && strcmp(sorted[i - 1], sorted[i]) == 0)
            return diag_fail(diag, STATUS_FORMAT, table_place(table, line), NULL,
                             "expected columns that differ, found '%.64s' twice",
                             sorted[i]);
    table->names = ARENA_ARRAY(table->arena, const char *, (size_t)count);
    memcpy(table->names, names, (size_t)count * sizeof *table->names);
    table->columns = count;
    return STATUS_OK;
}

/* --- TSV, CSV and lines --- */

/* Cells are written back over the text they are read from: a cell takes no more room than
 * its text and the separator, quote or line end behind it. */
typedef struct CellReader {
    Table *table;
    char *at, *end; /* what is still to be read; *end is 0 */
    char *write;    /* where the next cell goes */
    int64_t line;   /* of `at` */
    char stops[4];  /* what ends a cell without quotes */
    Diag *diag;
} CellReader;

/* Writes a cell, or the next part of one. */
static void cell_write(CellReader *self, const char *text, size_t length) {
    if (self->write != text) memmove(self->write, text, length);
    self->write += length;
}

/* Reads a cell that starts with a quote. */
static Status cell_quoted(CellReader *self) {
    int64_t first = self->line;
    self->at++;
    for (;;) {
        size_t length = strcspn(self->at, "\"\n");
        bool newline = self->at[length] == '\n', quote = self->at[length] == '"';
        bool doubled = quote && self->at[length + 1] == '"';
        if (!newline && !quote)
            return diag_fail(self->diag, STATUS_FORMAT, table_place(self->table, first),
                             NULL, "a quote opens here that is never closed");
        self->line += newline;
        cell_write(self, self->at, length + (newline || doubled));
        self->at += length + 1 + doubled;
        if (quote && !doubled) break;
    }
    const char *at = self->at;
    if (at == self->end || *at == '\n' || *at == self->stops[0]) return STATUS_OK;
    if (*at == '\r' && (at + 1 == self->end || at[1] == '\n')) return STATUS_OK;
    return diag_fail(self->diag, STATUS_FORMAT, table_place(self->table, self->line),
                     NULL, "expected a separator or line end behind the quote");
}

/* Reads the cells of a line and steps behind its end; `count` receives their number. */
static Status row_read(CellReader *self, int64_t *count) {
    for (*count = 1;; ++*count) {
        if (self->table->quotes && *self->at == '"') {
            TRY(cell_quoted(self));
        } else {
            size_t length = strcspn(self->at, self->stops);
            cell_write(self, self->at, length);
            self->at += length;
            bool last = self->at == self->end || *self->at == '\n';
            if (last && length > 0 && self->at[-1] == '\r') self->write--;
        }
        if (*self->at == '\r' && self->at < self->end) self->at++;
        char stop = self->at < self->end ? *self->at : '\n';
        if (self->at < self->end) self->at++;
        *self->write++ = 0;
        if (stop == '\n') break;
    }
    self->line++;
    return STATUS_OK;
}

static bool is_lines(const Table *table) {
    return table->options.format == TABLE_LINES;
}

/* Bytes at the start of a line that leave it empty when its end follows. */
static size_t blank_length(const CellReader *self) {
    size_t length = 0, bytes;
    if (!is_lines(self->table)) return *self->at == '\r';
    for (const char *at = self->at; at < self->end && *at != '\n'; at += bytes) {
        if (!char_is_space(utf8_decode(at, &bytes))) break;
        length += bytes;
    }
    return length;
}

/* Steps over empty lines; false at the end of the file. */
static bool skip_empty(CellReader *self) {
    while (self->at < self->end) {
        size_t blank = blank_length(self);
        bool ends = self->at + blank == self->end;
        if (!ends && self->at[blank] != '\n') return true;
        self->at += blank + !ends;
        self->line++;
    }
    return false;
}

static Status check_columns(const CellReader *self, int64_t count, int64_t line) {
    if (count <= TABLE_COLUMNS_MAX) return STATUS_OK;
    return diag_fail(self->diag, STATUS_FORMAT, table_place(self->table, line), NULL,
                     "expected at most %d columns, found %lld", TABLE_COLUMNS_MAX,
                     (long long)count);
}

/* Reads the header; its cells stay where they are and name the columns, unless names were
 * given. */
static Status header_read(CellReader *self) {
    int64_t count, line = self->line;
    const char *cell = self->write;
    Table *table = self->table;
    TRY(row_read(self, &count));
    TRY(check_columns(self, count, line));
    if (table->columns > 0) return STATUS_OK;
    const char **names = ARENA_ARRAY(table->arena, const char *, (size_t)count);
    for (int64_t i = 0; i < count; i++, cell += strlen(cell) + 1) names[i] = cell;
    return table_set_names(table, names, (int)count, line, self->diag);
}

/* Keeps the row just read, whose cells start at `start`, if it is as long as it must be.
 */
static Status row_keep(CellReader *self, char *start, int64_t count, int64_t line) {
    Table *table = self->table;
    if (table->columns == 0) {
        TRY(check_columns(self, count, line));
        table->columns = (int)count;
    }
    if (count == table->columns) {
        table_row_add(table, (size_t)(start - table->data), line);
        return STATUS_OK;
    }
    if (!table->options.skip_bad)
        return diag_fail(self->diag, STATUS_FORMAT, table_place(table, line), NULL,
                         "expected %d columns, found %lld", table->columns,
                         (long long)count);
    table->skipped++;
    self->write = start;
    return STATUS_OK;
}

static Status table_parse_text(Table *table, char *text, size_t length, Diag *diag) {
    const bool header = !table->options.no_header && !is_lines(table);
    const char separator = is_lines(table)                      ? '\n'
                           : table->options.format == TABLE_CSV ? ','
                                                                : '\t';
    CellReader self = {.table = table,
                       .at = text,
                       .end = text + length,
                       .write = text,
                       .line = 1,
                       .stops = {separator, '\n'},
                       .diag = diag};
    table->data = text;
    if (header && skip_empty(&self)) TRY(header_read(&self));
    while (skip_empty(&self)) {
        int64_t count, line = self.line;
        char *start = self.write;
        TRY(row_read(&self, &count));
        TRY(row_keep(&self, start, count, line));
    }
    return STATUS_OK;
}

/* --- JSON Lines, one object a line --- */

/* Appends a string, number or boolean as text; false for anything else. */
static bool scalar_add(Text *out, const Tree *value) {
    switch (value->kind) {
    case TREE_STRING: text_bytes(out, value->string, strlen(value->string)); return true;
    case TREE_INT: text_add(out, "%" PRId64, value->integer); return true;
    case TREE_FLOAT: text_real(out, value->real); return true;
    case TREE_BOOL: text_add(out, "%s", value->boolean ? "true" : "false"); return true;
    default: return false;
    }
}

static Status fail_value(const Tree *value, const char *key, const char *expected,
                         Diag *diag) {
    return diag_fail(diag, STATUS_FORMAT, value->loc, key, "expected %s, found %s",
                     expected, tree_kind_name(value->kind));
}

/* Appends a value as a cell. */
static Status cell_add(Table *table, const Tree *value, const char *key, Diag *diag) {
    static const char END = TABLE_ITEM_END, SCALAR[] = "a string or a number";
    Text *out = &table->owned;
    const bool list = table->options.lists && value->kind == TREE_LIST;
    if (!list && !scalar_add(out, value)) return fail_value(value, key, SCALAR, diag);
    for (const Tree *item = list ? value->first : NULL; item; item = item->next) {
        const size_t before = out->length;
        if (!scalar_add(out, item)) return fail_value(item, key, SCALAR, diag);
        if (memchr(out->data + before, END, out->length - before))
            return fail_value(item, key, "items without the character U+001F", diag);
        text_bytes(out, &END, 1);
    }
    text_bytes(out, "", 1);
    return STATUS_OK;
}

/* The keys of the first object name the columns. */
static Status take_keys(Table *table, const Tree *object, int64_t line, Diag *diag) {
    int count = 0;
    if (object->count > TABLE_COLUMNS_MAX)
        return diag_fail(diag, STATUS_FORMAT, object->loc, NULL,
                         "expected at most %d keys, found %d", TABLE_COLUMNS_MAX,
                         object->count);
    const char **names =
        ARENA_ARRAY(table->arena, const char *, (size_t)object->count + 1);
    for (const Tree *value = object->first; value; value = value->next)
        names[count++] = arena_strdup(table->arena, value->key);
    return table_set_names(table, names, count, line, diag);
}

static Status row_add(Table *table, const Tree *object, int64_t line, Diag *diag) {
    if (object->kind != TREE_MAP || object->count == 0)
        return diag_fail(diag, STATUS_FORMAT, object->loc, NULL,
                         "expected an object with keys, found %s",
                         object->kind == TREE_MAP ? "an empty one"
                                                  : tree_kind_name(object->kind));
    if (table->columns == 0) TRY(take_keys(table, object, line, diag));
    const char *missing = NULL;
    for (int i = 0; i < table->columns && !missing; i++)
        if (!tree_get(object, table->names[i])) missing = table->names[i];
    if (missing && !table->options.skip_bad)
        return diag_fail(diag, STATUS_FORMAT, object->loc, missing, "missing");
    if (missing) {
        table->skipped++;
        return STATUS_OK;
    }
    table_row_add(table, table->owned.length, line);
    for (int i = 0; i < table->columns; i++)
        TRY(cell_add(table, tree_get(object, table->names[i]), table->names[i], diag));
    if (table->owned.length <= UINT32_MAX) return STATUS_OK;
    return diag_fail(diag, STATUS_FORMAT, LOC_FILE(table->path), NULL,
                     "expected cells of at most 4 GiB together");
}

static Status table_parse_json(Table *table, const char *text, size_t length,
                               Diag *diag) {
    const char *end = text + length;
    for (int64_t line = 1; text < end; line++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t bytes = (size_t)((newline ? newline : end) - text);
        if (strspn(text, " \t\r") < bytes) {
            Arena *scratch = arena_create();
            Tree *object;
            Status status =
                json_parse_line(&object, scratch, table->path,
                                table_place(table, line).line, text, bytes, diag);
            if (status == STATUS_OK) status = row_add(table, object, line, diag);
            arena_destroy(scratch);
            TRY(status);
        }
        text += bytes + 1;
    }
    table->data = table->owned.data;
    return STATUS_OK;
}

/* --- reading --- */

static TableFormat format_by_name(const char *path) {
    if (path_has_ending(path, ".csv")) return TABLE_CSV;
    return path_is_json_lines(path) || path_has_ending(path, ".json") ? TABLE_JSONL
                                                                      : TABLE_TSV;
}

static Status copy_names(Table *table, Diag *diag) {
    int count = table->options.name_count;
    if (count == 0) return STATUS_OK;
    if (count > TABLE_COLUMNS_MAX)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(table->path), NULL,
                         "expected at most %d columns, found %d", TABLE_COLUMNS_MAX,
                         count);
    const char **names = ARENA_ARRAY(table->arena, const char *, (size_t)count);
    for (int i = 0; i < count; i++)
        names[i] = arena_strdup(table->arena, table->options.names[i]);
    return table_set_names(table, names, count, 0, diag);
}

/* Reads into `scratch` when the text is not needed later. */
static Status read_with(Table *table, Arena *scratch, Diag *diag) {
    char *text;
    size_t length;
    bool json = table->options.format == TABLE_JSONL;
    TRY(copy_names(table, diag));
    TRY(file_read(&text, &length, json ? scratch : table->arena, table->path, UINT32_MAX,
                  diag));
    TRY(utf8_check_file(table->path, text, length, diag));
    size_t mark = utf8_mark_length(text, length);
    text += mark;
    length -= mark;
    size_t lines = 1; /* at least as many as rows */
    for (const char *at = text; (at = memchr(at, '\n', (size_t)(text + length - at)));
         at++)
        lines++;
    table->anchors = ARENA_ARRAY(table->arena, uint32_t, lines / ROWS_PER_ANCHOR + 1);
    table->starts = ARENA_ARRAY(table->arena, uint64_t, lines / 64 + 1);
    TRY(json ? table_parse_json(table, text, length, diag)
             : table_parse_text(table, text, length, diag));
    if (table->rows > 0) return STATUS_OK;
    diag_fail(diag, STATUS_FORMAT, LOC_FILE(table->path), NULL,
              table->skipped ? "expected rows, found none that is complete"
                             : "expected rows, found none");
    if (table->names && !json)
        diag_hint(diag, "its one line is taken for names of columns: `header: false` "
                        "reads it as a row, `table: lines` as a text");
    return STATUS_FORMAT;
}

Status table_read(Table **out, const char *path, const TableOptions *options,
                  Diag *diag) {
    Arena *arena = arena_create(), *scratch = arena_create();
    Table *table = ARENA_NEW(arena, Table);
    table->arena = arena;
    table->path = arena_strdup(arena, path);
    table->options = *options;
    if (options->format == TABLE_BY_NAME) table->options.format = format_by_name(path);
    const TableFormat format = table->options.format;
    table->quotes = format != TABLE_LINES &&
                    (options->quotes == TABLE_QUOTES_RFC4180 ||
                     (options->quotes == TABLE_QUOTES_BY_FORMAT && format == TABLE_CSV));
    Status status = read_with(table, scratch, diag);
    table->options.names = NULL; /* borrowed while reading only */
    arena_destroy(scratch);
    if (status == STATUS_OK)
        *out = table;
    else
        table_destroy(table);
    return status;
}

void table_destroy(Table *table) {
    if (!table) return;
    text_free(&table->owned);
    arena_destroy(table->arena);
}

/* --- access --- */

const char *table_path(const Table *table) {
    return table->path;
}

int64_t table_rows(const Table *table) {
    return table->rows;
}

int table_columns(const Table *table) {
    return table->columns;
}

int64_t table_skipped(const Table *table) {
    return table->skipped;
}

const char *table_name(const Table *table, int column) {
    return table->names ? table->names[column] : NULL;
}

int table_find(const Table *table, const char *name) {
    for (int i = 0; table->names && i < table->columns; i++)
        if (strcmp(table->names[i], name) == 0) return i;
    size_t digits = strspn(name, "0123456789");
    if (digits == 0 || digits > 6 || name[digits]) return -1;
    int column = atoi(name);
    return column < table->columns ? column : -1;
}

Status table_column(int *out, const Table *table, const char *name, Loc at,
                    const char *key, Diag *diag) {
    *out = table_find(table, name);
    if (*out >= 0) return STATUS_OK;
    diag_fail(diag, STATUS_RECIPE, at, key, "%s has no column '%s'", table->path, name);
    Text list = {0};
    for (int i = 0; table->names && i < table->columns && i < 16; i++)
        text_add(&list, "%s%.64s", i > 0 ? ", " : "", table->names[i]);
    if (list.data)
        diag_hint(diag, "its %d columns: %s%s", table->columns, list.data,
                  table->columns > 16 ? " ..." : "");
    else
        diag_hint(diag, "its columns have no names: give a number from 0 to %d",
                  table->columns - 1);
    text_free(&list);
    return STATUS_RECIPE;
}

const char *table_cell(const Table *table, int64_t row, int column, size_t *length) {
    const char *cell = table->data + table->anchors[row / ROWS_PER_ANCHOR];
    int64_t steps = row % ROWS_PER_ANCHOR * table->columns + column;
    size_t bytes = strlen(cell);
    for (; steps > 0; steps--) {
        cell += bytes + 1;
        bytes = strlen(cell);
    }
    *length = bytes;
    return cell;
}

Loc table_loc(const Table *table, int64_t row) {
    int64_t word = 0, before = 0; /* rows that start in the words before */
    for (int bits; (bits = __builtin_popcountll(table->starts[word])) + before <= row;
         word++)
        before += bits;
    uint64_t rest = table->starts[word];
    for (; before < row; before++) rest &= rest - 1;
    return table_place(table, word * 64 + __builtin_ctzll(rest) + 1);
}
