/* Stock architectures: what a model is in terms of transformers, if it is one of its
 * models.
 *
 * A model is stock when its current configuration (io/formats/model_config.h) builds a
 * graph equal to its own, up to the names of storages and places, nodes that do nothing
 * outside training, and matrices stored transposed. The built graph then names every
 * weight as a checkpoint does. */
#ifndef COMPRESS_IO_FORMATS_STOCK_H
#define COMPRESS_IO_FORMATS_STOCK_H

#include "io/families/family.h"

typedef struct Stock {
    const Family *family;
    const Tree *config;      /* in the arena: the model's current configuration */
    Model *built;            /* owned: the graph of that configuration, shapes only */
    const Storage **weights; /* in the arena: the model's storage for each of built's */
    bool *turned;            /* in the arena, by built's: the model's is the transpose */
    int turns;               /* how many are */
    int copies; /* further storages of built's, beyond the first, for one of the model's
                 */
    int64_t copied_bytes; /* bytes they take in the model's types */
} Stock;

/* Finds out what the model is; its shapes suffice. With `may_copy`, layers may share
 * weights that the architecture keeps separate for each: they are then copied. Fails
 * with STATUS_MODEL: the first difference, for instance that layer 2 has 5 heads and
 * layer 0 has 6. */
Status stock_match(Stock *out, Arena *arena, const Model *model, bool may_copy,
                   Diag *diag);

/* Appends what a graph has that no stock architecture has, as far as the graph alone
 * shows it: "layer 0 of the decoder mixes its heads"; false when there is nothing. */
bool stock_explain(Text *why, const Graph *graph);

/* Frees what stock_match made, except the arena. */
void stock_release(Stock *stock);

#endif
