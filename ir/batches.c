/* Batches: what every data set has in common. */
#include "ir/batches.h"

#include <stdlib.h>
#include <string.h>

void batches_destroy(Batches *batches) {
    if (batches) batches->destroy(batches);
}

int64_t batches_group(const Batches *batches) {
    return batches && batches->group > 1 ? batches->group : 1;
}

int batches_column(const Batches *batches, const char *name) {
    for (int i = 0; i < batches->column_count; i++) {
        if (strcmp(batches->columns[i].name, name) == 0) return i;
    }
    return -1;
}

const char *batches_sample(Arena *arena, const Batches *batches, int64_t index) {
    const char *origin = batches->origin ? batches->origin(batches, index) : NULL;
    return arena_printf(arena, origin ? "sample %lld (%s)" : "sample %lld",
                        (long long)index, origin);
}

typedef int64_t (*LengthOf)(const Batches *self, int64_t index);

/* The longest sample, rounded up, at most `most`; 0 without lengths. */
static int64_t padded(const Batches *batches, LengthOf length_of, int64_t most,
                      const int64_t *index, int64_t n) {
    if (!length_of) return 0;
    int64_t longest = 1;
    for (int64_t i = 0; i < n; i++) {
        const int64_t length = length_of(batches, index[i]);
        if (length > longest) longest = length;
    }
    longest = (longest + 7) / 8 * 8;
    return longest < most ? longest : most;
}

int64_t batches_tokens(const Batches *batches, const int64_t *index, int64_t n) {
    return padded(batches, batches->length, batches->max_tokens, index, n);
}

void batches_pad(const Batches *batches, Fetch *what) {
    what->tokens = batches_tokens(batches, what->index, what->n);
    what->source = padded(batches, batches->source_length, batches->max_source,
                          what->index, what->n);
}

int64_t batches_masked(const Batches *batches, int64_t tokens) {
    if (!batches->masked) return 0;
    return batches->masked(batches, tokens > 0 ? tokens : batches->max_tokens);
}

/* A sample while it is sorted. */
typedef struct Sized {
    int64_t length, source, index, place;
} Sized;

static int compare_sized(const void *a, const void *b) {
    const Sized *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    if (x->source != y->source) return x->source < y->source ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

void batches_sort(const Batches *batches, int64_t *index, int64_t n) {
    if (!batches->length) return;
    const LengthOf source = batches->source_length;
    Sized *sized = memory_alloc((size_t)n, sizeof *sized);
    for (int64_t i = 0; i < n; i++)
        sized[i] = (Sized){batches->length(batches, index[i]),
                           source ? source(batches, index[i]) : 0, index[i], i};
    qsort(sized, (size_t)n, sizeof *sized, compare_sized);
    for (int64_t i = 0; i < n; i++) index[i] = sized[i].index;
    free(sized);
}

/* ---- a data set with further columns ---- */

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

static const char *extended_origin(const Batches *self, int64_t index) {
    return extended(self)->data->origin(extended(self)->data, index);
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
    e->base.answers = NULL;
    e->base.fetch = extended_fetch;
    e->base.destroy = extended_destroy;
    if (data->length) e->base.length = extended_length;
    if (data->source_length) e->base.source_length = extended_source_length;
    if (data->origin) e->base.origin = extended_origin;
    if (data->masked) e->base.masked = extended_masked;
    return &e->base;
}
