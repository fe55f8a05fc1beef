/* Counting words: see word_counts.h. */
#include "passes/embedding/word_counts.h"

#include "exec/run/ticker.h"
#include "ir/model_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 64 }; /* fetched together */

/* The columns that are read, and room for what is fetched. */
typedef struct WordColumns {
    const Batches *data;
    int ids, mask; /* columns; mask -1 = there is none */
    void **values; /* by column */
} WordColumns;

static void free_values(WordColumns *w) {
    for (int i = 0; i < w->data->column_count; i++) {
        free(w->values[i]);
        w->values[i] = NULL;
    }
}

/* Makes room for the samples of `what`, in all columns where the data set wants that;
 * `row` receives the numbers of a sample in the columns that are read. */
static Status make_room(WordColumns *w, const Fetch *what, int64_t *row, Diag *diag) {
    const int64_t sizes[DIM_SYMBOLS] = {[DIM_INDEX(DIM_N)] = 1,
                                        [DIM_INDEX(DIM_T)] = what->tokens,
                                        [DIM_INDEX(DIM_S)] = what->source,
                                        [DIM_INDEX(DIM_M)] =
                                            batches_masked(w->data, what->tokens)};
    for (int i = 0; i < w->data->column_count; i++) {
        Type type;
        if (w->data->partial && i != w->ids && i != w->mask) continue;
        if (!type_bind(&w->data->columns[i].type, sizes, &type))
            return diag_fail(diag, STATUS_MODEL, LOC_FILE(w->data->name), NULL,
                             "expected samples of known size in column \"%s\"",
                             w->data->columns[i].name);
        const int64_t count = type_count(&type);
        if (i == w->ids) *row = count;
        w->values[i] = malloc((size_t)(count * what->n) * sizeof(float) + 1);
        if (!w->values[i])
            return diag_fail(diag, STATUS_MEMORY, LOC_FILE(w->data->name), NULL,
                             "no memory for %lld samples", (long long)what->n);
    }
    return STATUS_OK;
}

/* Tokens of a sample that are no padding, where no mask says so. */
static int64_t sample_length(const WordColumns *w, int64_t sample, int64_t row) {
    const Type *type = &w->data->columns[w->ids].type;
    const int64_t dim = type->rank > 0 ? type->dim[0] : 1;
    if (dim == DIM_T && w->data->length) return w->data->length(w->data, sample);
    if (dim == DIM_S && w->data->source_length)
        return w->data->source_length(w->data, sample);
    return row;
}

static void count_fetched(double *counts, int64_t words, const WordColumns *w,
                          const Fetch *what, int64_t row) {
    const int32_t *ids = w->values[w->ids];
    const int32_t *mask = w->mask < 0 ? NULL : w->values[w->mask];
    for (int64_t i = 0; i < what->n; i++) {
        const int64_t length = mask ? row : sample_length(w, what->index[i], row);
        for (int64_t t = 0; t < length && t < row; t++) {
            const int64_t at = i * row + t;
            if (mask && mask[at] == 0) continue;
            if (ids[at] >= 0 && ids[at] < words) counts[ids[at]]++;
        }
    }
}

/* The column of the mask of some ids, -1 without one of the same shape. */
static int mask_column(const Batches *data, const char *ids) {
    const char *name =
        strcmp(ids, INPUT_TARGET_IDS) == 0 ? INPUT_TARGET_MASK : INPUT_MASK;
    const int mask = batches_column(data, name), column = batches_column(data, ids);
    if (mask < 0 || !type_equal(&data->columns[mask].type, &data->columns[column].type))
        return -1;
    return mask;
}

static Status count_samples(double *counts, int64_t words, WordColumns *w, int64_t first,
                            Diag *diag) {
    int64_t index[SAMPLES], row = 0;
    const int64_t left = w->data->count - first;
    Fetch what = {.index = index, .n = left < SAMPLES ? left : SAMPLES};
    for (int64_t i = 0; i < what.n; i++) index[i] = first + i;
    batches_pad(w->data, &what);
    Status status = make_room(w, &what, &row, diag);
    if (status == STATUS_OK) status = w->data->fetch(w->data, &what, w->values, diag);
    if (status == STATUS_OK) count_fetched(counts, words, w, &what, row);
    free_values(w);
    return status;
}

Status word_counts_add(double *counts, int64_t words, const Batches *data,
                       const char *ids, const Watch *watch, Diag *diag) {
    WordColumns w = {
        .data = data, .ids = batches_column(data, ids), .mask = mask_column(data, ids)};
    Ticker ticker = {.watch = watch};
    Status status = STATUS_OK;
    w.values = memory_alloc((size_t)data->column_count, sizeof *w.values);
    for (int64_t first = 0; first < data->count && status == STATUS_OK;
         first += SAMPLES) {
        ticker_progress(&ticker, first, data->count, NAN, false);
        status = ticker_go_on(&ticker, diag);
        if (status == STATUS_OK) status = count_samples(counts, words, &w, first, diag);
    }
    free(w.values);
    return status;
}
