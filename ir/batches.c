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
