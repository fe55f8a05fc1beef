/* Table: what it is made of, for its readers (io/datasets/table_text.c,
 * io/datasets/table_json.c). */
#ifndef COMPRESS_IO_DATASETS_TABLE_PARTS_H
#define COMPRESS_IO_DATASETS_TABLE_PARTS_H

#include "io/datasets/table.h"
#include "ir/arena.h"
#include "ir/text.h"

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

/* Makes room for the rows of a text of so many lines. */
void table_reserve(Table *table, const char *text, size_t length);

/* Notes that the next row starts at `offset` of the data and on a line of the file. */
void table_row_add(Table *table, size_t offset, int64_t line);

/* A place in the file; lines beyond what Loc can hold are left out. */
Loc table_place(const Table *table, int64_t line);

/* Takes over the names of the columns; the texts are borrowed. Fails with STATUS_FORMAT
 * when two are equal. */
Status table_set_names(Table *table, const char *const *names, int count, int64_t line,
                       Diag *diag);

/* Fill a table from the text of a file (terminated, checked, without mark). The first
 * changes it and keeps it, the second copies out of it. */
Status table_parse_text(Table *table, char *text, size_t length, Diag *diag);
Status table_parse_json(Table *table, const char *text, size_t length, Diag *diag);

#endif
