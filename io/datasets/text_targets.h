/* Text targets: labels other than one class per row, as real numbers: which of several
 * labels a row has, or its values. */
#ifndef COMPRESS_IO_DATASETS_TEXT_TARGETS_H
#define COMPRESS_IO_DATASETS_TEXT_TARGETS_H

#include "io/datasets/text_samples.h"

/* What the labels of a data set of texts are. */
#define TARGET_NAMES "class|labels|values"
typedef enum TargetKind {
    TARGET_CLASS,  /* one class: text_labels_read */
    TARGET_LABELS, /* any number of labels: 1 for each one present, else 0 */
    TARGET_VALUES  /* real numbers */
} TargetKind;

/* Where targets are: in one column, which holds a list (JSON Lines; TABLE_ITEM_END) or
 * items with a separator between them, or in one column each. */
typedef struct TargetColumns {
    TargetKind kind;       /* not TARGET_CLASS */
    int column;            /* of lists; unless `columns` has any */
    const int *columns;    /* of one target each */
    int count;             /* of them */
    const char *separator; /* not empty */
    StringList names;      /* of labels, in order; empty: they are numbers from 0 */
    int64_t
        width; /* targets per row; 0 = the number of names, columns, values in the first
                  row, or 1 + the largest label (which is then below TEXT_NAMES_MAX) */
} TargetColumns;

/* Reads the targets of rows: *out, which the caller frees, has width numbers per row.
 * Columns of labels hold 0 or 1, false or true. Fails with STATUS_FORMAT at the row: an
 * unknown label, an invalid number, a wrong number of values; or with STATUS_MEMORY. */
Status text_targets_read(float **out, int64_t *width, const TextRows *rows,
                         const TargetColumns *where, Diag *diag);

#endif
