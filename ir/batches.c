/* Batches: what every data set has in common. */
#include "ir/batches.h"

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
