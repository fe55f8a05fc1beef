/* Table: TSV, CSV and lines. Cells are written back over the text they are read from: a
 * cell takes no more room than its text and the separator, quote or line end behind it.
 */
#include "io/datasets/table_parts.h"

#include "io/tokenizers/unicode.h"

#include <string.h>

typedef struct Reader {
    Table *table;
    char *at, *end; /* what is still to be read; *end is 0 */
    char *write;    /* where the next cell goes */
    int64_t line;   /* of `at` */
    char stops[4];  /* what ends a cell without quotes */
    Diag *diag;
} Reader;

/* Writes a cell, or the next part of one. */
static void cell_write(Reader *self, const char *text, size_t length) {
    if (self->write != text) memmove(self->write, text, length);
    self->write += length;
}

/* Whether a cell may end here: at a separator, a line end or the end. */
static bool at_stop(const Reader *self) {
    const char *at = self->at;
    if (at == self->end || *at == '\n' || *at == self->stops[0]) return true;
    return *at == '\r' && (at + 1 == self->end || at[1] == '\n');
}

/* Reads a cell that starts with a quote. */
static Status cell_quoted(Reader *self) {
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
    if (at_stop(self)) return STATUS_OK;
    return diag_fail(self->diag, STATUS_FORMAT, table_place(self->table, self->line),
                     NULL, "expected a separator or line end behind the quote");
}

static void cell_plain(Reader *self) {
    size_t length = strcspn(self->at, self->stops);
    cell_write(self, self->at, length);
    self->at += length;
    bool last = self->at == self->end || *self->at == '\n';
    if (last && length > 0 && self->at[-1] == '\r') self->write--;
}

/* Reads the cells of a line and steps behind its end; `count` receives their number. */
static Status row_read(Reader *self, int64_t *count) {
    for (*count = 1;; ++*count) {
        if (self->table->quotes && *self->at == '"')
            TRY(cell_quoted(self));
        else
            cell_plain(self);
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
static size_t blank_length(const Reader *self) {
    size_t length = 0, bytes;
    if (!is_lines(self->table)) return *self->at == '\r';
    for (const char *at = self->at; at < self->end && *at != '\n'; at += bytes) {
        if (!char_is_space(utf8_decode(at, &bytes))) break;
        length += bytes;
    }
    return length;
}

/* Steps over empty lines; false at the end of the file. */
static bool skip_empty(Reader *self) {
    while (self->at < self->end) {
        size_t blank = blank_length(self);
        bool ends = self->at + blank == self->end;
        if (!ends && self->at[blank] != '\n') return true;
        self->at += blank + !ends;
        self->line++;
    }
    return false;
}

static Status check_columns(const Reader *self, int64_t count, int64_t line) {
    if (count <= TABLE_COLUMNS_MAX) return STATUS_OK;
    return diag_fail(self->diag, STATUS_FORMAT, table_place(self->table, line), NULL,
                     "expected at most %d columns, found %lld", TABLE_COLUMNS_MAX,
                     (long long)count);
}

/* Reads the header; its cells stay where they are and name the columns, unless names were
 * given. */
static Status header_read(Reader *self) {
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
static Status row_keep(Reader *self, char *start, int64_t count, int64_t line) {
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

static char separator_of(TableFormat format) {
    return format == TABLE_LINES ? '\n' : format == TABLE_CSV ? ',' : '\t';
}

Status table_parse_text(Table *table, char *text, size_t length, Diag *diag) {
    const bool header = !table->options.no_header && !is_lines(table);
    Reader self = {.table = table,
                   .at = text,
                   .end = text + length,
                   .write = text,
                   .line = 1,
                   .stops = {separator_of(table->options.format), '\n'},
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
