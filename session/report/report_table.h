/* Report table: reports of runs (`--report`) as rows, to be compared with each other.
 * Reports are files that anybody may have written: what is not there, or is of another
 * kind than it should be, leaves a cell empty. */
#ifndef COMPRESS_SESSION_REPORT_REPORT_TABLE_H
#define COMPRESS_SESSION_REPORT_REPORT_TABLE_H

#include "ir/field.h"

/* Most columns of one table. */
#define REPORT_COLUMNS 48

/* What the numbers of a column are. */
typedef enum ReportUnit {
    UNIT_NONE,  /* as they stand in the report */
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
    const char *columns; /* names joined by ','; NULL = those that are usual */
    const char *sort;    /* a column, with '-' in front the largest first; NULL = in the
                            order given */
} ReportTableOptions;

/* Reads reports; all that are none are told. Fails with STATUS_IO, STATUS_FORMAT. */
Status reports_read(Tree ***out, Arena *arena, const StringList *paths, Diag *diag);

/* Makes the table of reports, which were read from `paths`: by default the report's name,
 * the options that differ where all are of one recipe, status, sizes of what came out,
 * the metrics that evaluate steps ended with, and seconds. A column is one of these,
 * `recipe`, a key of the report (`seed`, `input.parameters`), or a key of the recipe
 * (`passes.0.distill.epochs`). All is in the arena. Fails with STATUS_USAGE for a column
 * that no report has. */
Status report_table_make(ReportTable *out, Arena *arena, const StringList *paths,
                         Tree *const *reports, const ReportTableOptions *options,
                         Diag *diag);

#endif
