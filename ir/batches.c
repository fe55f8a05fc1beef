/* Batches: what every data set has in common. */
#include "ir/batches.h"

#include <stdlib.h>
#include <string.h>

void batches_destroy(Batches *batches) {
    if (batches) batches->destroy(batches);
}

int batches_column(const Batches *batches, const char *name) {
    for (int i = 0; i < batches->column_count; i++) {
        if (strcmp(batches->columns[i].name, name) == 0) return i;
    }
    return -1;
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
