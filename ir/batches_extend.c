/* A data set with further columns: see batches_extend in ir/batches.h. */
#include "ir/batches.h"

#include <stdlib.h>
#include <string.h>

typedef struct Extended {
    Batches base;
    const Batches *data;
    Column *columns;
    const float *const *values;
} Extended;

static const Extended *extended(const Batches *self) {
    return (const Extended *)self;
}

static int64_t extended_length(const Batches *self, int64_t index) {
    return extended(self)->data->length(extended(self)->data, index);
}

static int64_t extended_source_length(const Batches *self, int64_t index) {
    return extended(self)->data->source_length(extended(self)->data, index);
}

static int64_t extended_masked(const Batches *self, int64_t tokens) {
    return extended(self)->data->masked(extended(self)->data, tokens);
}

static Status extended_fetch(const Batches *self, const Fetch *what, void *const *dst,
                             Diag *diag) {
    const Extended *e = extended(self);
    const int first = e->data->column_count;
    for (int c = first; c < self->column_count; c++) {
        if (!dst[c]) continue;
        const int64_t size = type_count(&self->columns[c].type);
        float *to = dst[c];
        for (int64_t i = 0; i < what->n; i++, to += size)
            memcpy(to, e->values[c - first] + what->index[i] * size,
                   (size_t)size * sizeof *to);
    }
    return e->data->fetch(e->data, what, dst, diag);
}

static void extended_destroy(Batches *self) {
    Extended *e = (Extended *)self;
    free(e->columns);
    free(e);
}

Batches *batches_extend(const Batches *data, const Column *columns,
                        const float *const *values, int count) {
    Extended *e = memory_alloc(1, sizeof *e);
    const size_t own = (size_t)data->column_count, more = (size_t)count;
    *e = (Extended){.base = *data, .data = data, .values = values};
    e->columns = memory_alloc(own + more, sizeof *e->columns);
    memcpy(e->columns, data->columns, own * sizeof *e->columns);
    memcpy(e->columns + own, columns, more * sizeof *e->columns);
    e->base.columns = e->columns;
    e->base.column_count += count;
    e->base.translations = NULL;
    e->base.fetch = extended_fetch;
    e->base.destroy = extended_destroy;
    if (data->length) e->base.length = extended_length;
    if (data->source_length) e->base.source_length = extended_source_length;
    if (data->masked) e->base.masked = extended_masked;
    return &e->base;
}
