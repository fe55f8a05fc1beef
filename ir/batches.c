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

int64_t batches_tokens(const Batches *batches, const int64_t *index, int64_t n) {
    if (!batches->length) return 0;
    int64_t longest = 1;
    for (int64_t i = 0; i < n; i++) {
        const int64_t length = batches->length(batches, index[i]);
        if (length > longest) longest = length;
    }
    longest = (longest + 7) / 8 * 8;
    return longest < batches->max_tokens ? longest : batches->max_tokens;
}

int64_t batches_masked(const Batches *batches, int64_t tokens) {
    if (!batches->masked) return 0;
    return batches->masked(batches, tokens > 0 ? tokens : batches->max_tokens);
}

/* A sample while it is sorted. */
typedef struct Sized {
    int64_t length, index, place;
} Sized;

static int compare_sized(const void *a, const void *b) {
    const Sized *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

void batches_sort(const Batches *batches, int64_t *index, int64_t n) {
    if (!batches->length) return;
    Sized *sized = memory_alloc((size_t)n, sizeof *sized);
    for (int64_t i = 0; i < n; i++)
        sized[i] = (Sized){batches->length(batches, index[i]), index[i], i};
    qsort(sized, (size_t)n, sizeof *sized, compare_sized);
    for (int64_t i = 0; i < n; i++) index[i] = sized[i].index;
    free(sized);
}
