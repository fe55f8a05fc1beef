/* Text targets: see text_targets.h. */
#include "io/datasets/text_targets.h"

#include "io/datasets/class_names.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ITEM_BYTES = 256 }; /* of one label or number, with its 0 */

typedef struct TargetReader {
    const TextRows *rows;
    const TargetColumns *where;
    int64_t width;
    float *values; /* NULL: the width is being found */
    Diag *diag;
} TargetReader;

static Status fail_row(const TargetReader *r, int64_t row, const char *expected,
                       const char *found) {
    return diag_fail(r->diag, STATUS_FORMAT, table_loc(r->rows->table, row), NULL,
                     "expected %s, found '%.64s'", expected, found);
}

/* ---- cells ---- */

/* Steps to the next item of a cell and copies it without the spaces around it; *at is
 * NULL behind the last. Items of a list are ended, others are parted. */
static bool item_next(const char **at, const char *separator, char item[ITEM_BYTES]) {
    static const char END[] = {TABLE_ITEM_END, 0};
    if (!*at || !**at) return false;
    const bool list = strchr(*at, TABLE_ITEM_END) != NULL;
    const char *mark = list ? END : separator, *end = strstr(*at, mark);
    size_t length = end ? (size_t)(end - *at) : strlen(*at);
    const size_t spaces = strspn(*at, " \t");
    const char *begin = *at + (spaces < length ? spaces : length);
    length -= (size_t)(begin - *at);
    while (length > 0 && strchr(" \t", begin[length - 1])) length--;
    snprintf(item, ITEM_BYTES, "%.*s", (int)(length < ITEM_BYTES ? length : ITEM_BYTES),
             begin);
    *at = end ? end + strlen(mark) : NULL;
    return true;
}

static bool parse_real(const char *text, float *out) {
    char *end;
    const double value = strtod(text, &end);
    *out = (float)value;
    return end != text && !*end && isfinite(*out);
}

/* ---- labels ---- */

static Status read_label(const TargetReader *r, int64_t row, const char *item,
                         int64_t *label) {
    const StringList *names = &r->where->names;
    const int64_t most = r->where->width ? r->where->width : TEXT_NAMES_MAX;
    if (names->count) {
        *label = class_names_find(names, item);
        if (*label >= 0) return STATUS_OK;
        fail_row(r, row, "the name of a label", item);
        diag_hint(r->diag, "`labels` of the data set names them, `separator` parts them");
        return STATUS_FORMAT;
    }
    *label = text_label_parse(item);
    if (*label >= 0 && *label < most) return STATUS_OK;
    fail_row(r, row, "the number of a label, from 0", item);
    diag_hint(r->diag, "labels: [sports, politics] names labels that are words; "
                       "`classes` says how many there are");
    return STATUS_FORMAT;
}

/* The labels that a row lists; finds 1 + the largest, or sets them. */
static Status list_labels(TargetReader *r, int64_t i, const char *cell) {
    char item[ITEM_BYTES];
    int64_t label;
    while (item_next(&cell, r->where->separator, item)) {
        if (!*item) continue;
        TRY(read_label(r, r->rows->first + i, item, &label));
        if (r->values) r->values[i * r->width + label] = 1;
        if (!r->values && label >= r->width) r->width = label + 1;
    }
    return STATUS_OK;
}

/* ---- values ---- */

static Status list_values(TargetReader *r, int64_t i, const char *cell) {
    char item[ITEM_BYTES];
    const char *at = cell;
    int64_t count = 0;
    for (; item_next(&at, r->where->separator, item); count++) {
        float value;
        if (!parse_real(item, &value))
            return fail_row(r, r->rows->first + i, "a number", item);
        if (r->values && count < r->width) r->values[i * r->width + count] = value;
    }
    if (!r->values) r->width = count;
    if (count == r->width && count > 0) return STATUS_OK;
    char expected[64];
    snprintf(expected, sizeof expected, "%" PRId64 " %s", r->width > 0 ? r->width : 1,
             r->width > 1 ? "numbers" : "number");
    return fail_row(r, r->rows->first + i, expected, cell);
}

/* ---- a column for each ---- */

static Status read_flag(const TargetReader *r, int64_t row, const char *cell,
                        float *value) {
    *value = strcmp(cell, "true") == 0;
    if (*value > 0 || strcmp(cell, "false") == 0) return STATUS_OK;
    if (parse_real(cell, value) && (*value == 0 || *value == 1)) return STATUS_OK;
    return fail_row(r, row, "0 or 1", cell);
}

static Status read_columns(TargetReader *r, int64_t i) {
    const TargetColumns *where = r->where;
    const int64_t row = r->rows->first + i;
    for (int k = 0; k < where->count; k++) {
        size_t length;
        const char *cell = table_cell(r->rows->table, row, where->columns[k], &length);
        float *value = &r->values[i * r->width + k];
        if (where->kind == TARGET_LABELS)
            TRY(read_flag(r, row, cell, value));
        else if (!parse_real(cell, value))
            return fail_row(r, row, "a number", cell);
    }
    return STATUS_OK;
}

static Status read_row(TargetReader *r, int64_t i) {
    size_t length;
    if (r->where->count > 0) return read_columns(r, i);
    const char *cell =
        table_cell(r->rows->table, r->rows->first + i, r->where->column, &length);
    return r->where->kind == TARGET_LABELS ? list_labels(r, i, cell)
                                           : list_values(r, i, cell);
}

/* ---- all ---- */

/* Targets of a row: those that are known beforehand, or as the rows show. */
static Status find_width(TargetReader *r) {
    const TargetColumns *where = r->where;
    r->width = where->count ? where->count : where->names.count;
    if (!r->width) r->width = where->width;
    if (r->width) return STATUS_OK;
    const int64_t rows = where->kind == TARGET_LABELS ? r->rows->count : 1;
    for (int64_t i = 0; i < rows; i++) TRY(read_row(r, i));
    if (r->width > 0) return STATUS_OK;
    return diag_fail(r->diag, STATUS_FORMAT, table_loc(r->rows->table, r->rows->first),
                     NULL, "expected rows with labels, found none");
}

Status text_targets_read(float **out, int64_t *width, const TextRows *rows,
                         const TargetColumns *where, Diag *diag) {
    TargetReader r = {.rows = rows, .where = where, .diag = diag};
    *out = NULL;
    TRY(find_width(&r));
    *width = r.width;
    if (rows->count > 0 && r.width > 0 && r.width <= INT64_MAX / 8 / rows->count)
        r.values = *out = calloc((size_t)rows->count * (size_t)r.width, sizeof(float));
    if (!r.values)
        return diag_fail(diag, STATUS_MEMORY, LOC_FILE(table_path(rows->table)), NULL,
                         "no memory for %" PRId64 " targets of each of %" PRId64 " rows",
                         r.width, rows->count);
    for (int64_t i = 0; i < rows->count; i++) TRY(read_row(&r, i));
    return STATUS_OK;
}
