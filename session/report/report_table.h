/* Report table: reports of runs (`--report`) as rows, to be compared with each other.
 * Reports may come from any source: a value that is missing or of the wrong kind leaves
 * a cell empty. */
#ifndef COMPRESS_SESSION_REPORT_REPORT_TABLE_H
#define COMPRESS_SESSION_REPORT_REPORT_TABLE_H

#include "ir/field.h"

/* Most columns of one table. */
#define REPORT_COLUMNS 48

/* The kind of numbers in a column. */
typedef enum ReportUnit {
    UNIT_NONE,  /* as in the report */
    UNIT_COUNT, /* parameters, bytes */
    UNIT_FLOPS,
    UNIT_METRIC,
    UNIT_SECONDS
} ReportUnit;

typedef struct ReportColumn {
    const char *name;
    ReportUnit unit;
    bool numbers; /* every cell that is not empty is one */
} ReportColumn;

typedef struct ReportCell {
    const char *text; /* as in the report, a string without quotes; NULL = empty */
    bool is_number;
    double number;
} ReportCell;

typedef struct ReportTable {
    ReportColumn columns[REPORT_COLUMNS];
    int column_count;
    ReportCell *cells; /* row by row */
    int rows;
} ReportTable;

typedef struct ReportTableOptions {
    const char *columns; /* names joined by ','; NULL = the default ones */
    const char *sort;    /* a column; with a leading '-' the largest first; NULL = in the
                            order given */
} ReportTableOptions;

/* Reads reports; reports every file that is not one. Fails with STATUS_IO,
 * STATUS_FORMAT. */
Status reports_read(Tree ***out, Arena *arena, const StringList *paths, Diag *diag);

/* Makes the table of reports, which were read from `paths`: by default the report's name,
 * the options that differ if all are from one recipe, status, sizes of the result, the
 * final metrics of evaluate steps, and seconds. A column is one of these, `recipe`, a
 * key of the report (`seed`, `input.parameters`), or a key of the recipe
 * (`passes.0.distill.epochs`). All is in the arena. Fails with STATUS_USAGE for a column
 * that no report has. */
Status report_table_make(ReportTable *out, Arena *arena, const StringList *paths,
                         Tree *const *reports, const ReportTableOptions *options,
                         Diag *diag);

#endif
