/* Table: rows of text cells with named columns, from TSV, CSV and JSON Lines files, or
 * the lines of a plain text.
 *
 * A file is read whole, at most 4 GiB, and must be UTF-8 without NUL. A byte order mark
 * is skipped, CRLF ends a line as LF does, empty lines are skipped. Cells are slices of
 * the one buffer, each terminated by a NUL; further memory is below one byte for each
 * byte of the file. A Table does not change once it is read: any number of threads may
 * use it. */
#ifndef COMPRESS_IO_DATASETS_DATA_TABLE_H
#define COMPRESS_IO_DATASETS_DATA_TABLE_H

#include "ir/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TABLE_COLUMNS_MAX = 4096 };

/* Ends each item of a list in a cell (ASCII's unit separator, which no item may hold). */
#define TABLE_ITEM_END '\x1f'

/* TABLE_BY_NAME: .csv is CSV, .jsonl, .ndjson and .json are JSON Lines, the rest TSV.
 * TABLE_LINES: every line is a row of one cell; there is no header, quotes are text, and
 * lines of only white space are skipped. */
typedef enum TableFormat {
    TABLE_BY_NAME,
    TABLE_TSV,
    TABLE_CSV,
    TABLE_JSONL,
    TABLE_LINES
} TableFormat;

/* Whether cells may be in double quotes. TSV has none by default: GLUE's files contain
 * lone quotes. */
typedef enum TableQuotes {
    TABLE_QUOTES_BY_FORMAT, /* CSV yes, TSV no */
    TABLE_QUOTES_NONE,
    TABLE_QUOTES_RFC4180 /* "" inside is a quote; separators and line ends are text */
} TableQuotes;

/* All zeros: format by name, columns named by the header line. */
typedef struct TableOptions {
    TableFormat format;
    TableQuotes quotes; /* of TSV and CSV */
    bool no_header;     /* TSV, CSV: the first line is a row */
    bool skip_bad; /* leave out rows with a wrong number of cells, or a missing key */
    bool lists;    /* JSON Lines: a list of strings, numbers and booleans is a cell, every
                      item ended by TABLE_ITEM_END; otherwise lists are refused */
    /* Names of the columns, instead of the header's; for JSON Lines, the keys to read.
     * Without names and without a header, columns are found by their number. */
    const char *const *names;
    int name_count;
} TableOptions;

typedef struct Table Table;

/* Reads a file. The keys of a JSON Lines file without `names` are those of its first
 * object; values are strings, numbers (as the shortest text that reads back equal) or
 * booleans, and keys that are not columns are ignored.
 * Fails with STATUS_IO, or with STATUS_FORMAT at the line: wrong number of cells or a
 * missing key (unless skip_bad), a quote that does not end, invalid UTF-8, invalid JSON,
 * names that are not unique, no rows. */
Status table_read(Table **out, const char *path, const TableOptions *options, Diag *diag);

/* Frees the table. NULL is allowed. */
void table_destroy(Table *table);

/* Path of the file. */
const char *table_path(const Table *table);

/* Number of rows, and of columns. */
int64_t table_rows(const Table *table);
int table_columns(const Table *table);

/* Number of rows left out by skip_bad. */
int64_t table_skipped(const Table *table);

/* Name of a column, NULL when it has none. */
const char *table_name(const Table *table, int column);

/* Column of a name, else of a number from 0 given as text; -1 when there is none. */
int table_find(const Table *table, const char *name);

/* As table_find, but fails with STATUS_RECIPE at `at`, about `key`, naming the existing
 * columns. */
Status table_column(int *out, const Table *table, const char *name, Loc at,
                    const char *key, Diag *diag);

/* Text of a cell, terminated, and its length; borrowed. The row and column must
 * exist. */
const char *table_cell(const Table *table, int64_t row, int column, size_t *length);

/* Place of a row, for messages: the line it starts on. Takes time proportional to the
 * length of the file. */
Loc table_loc(const Table *table, int64_t row);

#endif
