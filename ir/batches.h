/* Batches: random access to the samples of a data set, the only way data reaches passes.
 *
 * A sample is one row of every column. Readers (io) make them, training and evaluation
 * (exec) draw them; neither knows the other. */
#ifndef COMPRESS_IR_BATCHES_H
#define COMPRESS_IR_BATCHES_H

#include "ir/op.h"

/* A named part of a sample, bound to the graph's input of that name. */
typedef struct Column {
    const char *name; /* "pixel_values", "labels", ... */
    Type type;        /* of one sample: F32 or I32, no batch dimension */
} Column;

typedef struct Batches Batches;
struct Batches {
    const char *name; /* for messages: the file or folder */
    int64_t count;    /* samples */
    const Column *columns;
    int column_count;
    int64_t classes; /* labels lie in [0, classes); 0 = no labels */

    /* Copies the samples `index[0..n)` one after another into dst[column] (floats or
     * int32_t). `key` seeds augmentation; 0 = none (evaluation). Safe to call from
     * several threads. */
    Status (*fetch)(const Batches *self, const int64_t *index, int64_t n, uint64_t key,
                    void *const *dst, Diag *diag);
    void (*destroy)(Batches *self);
};

/* Calls self->destroy. NULL is allowed. */
void batches_destroy(Batches *batches);

/* Index of a column by name, -1 when there is none. */
int batches_column(const Batches *batches, const char *name);

#endif
