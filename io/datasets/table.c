/* Table: reading a file, access to cells. */
#include "io/datasets/table_parts.h"

#include "io/files/file.h"
#include "io/tokenizers/unicode.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* --- what the readers fill in --- */

void table_reserve(Table *table, const char *text, size_t length) {
    size_t lines = 1;
    const char *end = text + length;
    for (; (text = memchr(text, '\n', (size_t)(end - text))); text++) lines++;
    table->anchors = ARENA_ARRAY(table->arena, uint32_t, lines / ROWS_PER_ANCHOR + 1);
    table->starts = ARENA_ARRAY(table->arena, uint64_t, lines / 64 + 1);
}

void table_row_add(Table *table, size_t offset, int64_t line) {
    if (table->rows % ROWS_PER_ANCHOR == 0)
        table->anchors[table->rows / ROWS_PER_ANCHOR] = (uint32_t)offset;
    table->starts[(line - 1) / 64] |= (uint64_t)1 << (line - 1) % 64;
    table->rows++;
}

Loc table_place(const Table *table, int64_t line) {
    return (Loc){table->path, line > INT_MAX ? 0 : (int)line, 0};
}

static int name_compare(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

Status table_set_names(Table *table, const char *const *names, int count, int64_t line,
                       Diag *diag) {
    const char **sorted = ARENA_ARRAY(table->arena, const char *, (size_t)count);
    memcpy(sorted, names, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, name_compare);
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

/* --- reading --- */

static TableFormat format_by_name(const char *path) {
    static const struct {
        const char *end;
        TableFormat format;
    } NAMES[] = {{".csv", TABLE_CSV},
                 {".jsonl", TABLE_JSONL},
                 {".ndjson", TABLE_JSONL},
                 {".json", TABLE_JSONL}};
    size_t length = strlen(path);
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        size_t bytes = strlen(NAMES[i].end);
        if (length >= bytes && strcasecmp(path + length - bytes, NAMES[i].end) == 0)
            return NAMES[i].format;
    }
    return TABLE_TSV;
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
    table_reserve(table, text + mark, length - mark);
    TRY(json ? table_parse_json(table, text + mark, length - mark, diag)
             : table_parse_text(table, text + mark, length - mark, diag));
    if (table->rows == 0)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(table->path), NULL,
                         table->skipped ? "expected rows, found none that is complete"
                                        : "expected rows, found none");
    return STATUS_OK;
}

static bool has_quotes(const TableOptions *options) {
    if (options->format == TABLE_LINES) return false;
    return options->quotes == TABLE_QUOTES_RFC4180 ||
           (options->quotes == TABLE_QUOTES_BY_FORMAT && options->format == TABLE_CSV);
}

Status table_read(Table **out, const char *path, const TableOptions *options,
                  Diag *diag) {
    Arena *arena = arena_create(), *scratch = arena_create();
    Table *table = ARENA_NEW(arena, Table);
    table->arena = arena;
    table->path = arena_strdup(arena, path);
    table->options = *options;
    if (options->format == TABLE_BY_NAME) table->options.format = format_by_name(path);
    table->quotes = has_quotes(&table->options);
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
