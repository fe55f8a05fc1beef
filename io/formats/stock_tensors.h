/* Stock tensors: a model's weights as stored in the checkpoint of its architecture. */
#ifndef COMPRESS_IO_FORMATS_STOCK_TENSORS_H
#define COMPRESS_IO_FORMATS_STOCK_TENSORS_H

#include "io/formats/checkpoint.h"
#include "io/formats/stock.h"

/* A tensor of the checkpoint: a storage, or several side by side along the last axis, or
 * one after another along the first. */
typedef struct StockTensor {
    const char *name;
    const Storage *parts[SPLIT_MAX]; /* of the model */
    const char *built[SPLIT_MAX];    /* names of these parts in Stock.built */
    int count;                       /* of parts */
    bool by_rows;                    /* parts are one after another */
    Tensor shape;                    /* with the type of the parts, F32 if they differ */
} StockTensor;

/* First row of a part of a tensor whose parts are one after another; else 0. */
int64_t stock_tensor_row(const StockTensor *tensor, int part);

/* All tensors, sorted by name, in the arena; returns their number. */
int stock_tensors(StockTensor **out, Arena *arena, const Stock *stock);

/* The values of a tensor: those of its storage, shared, or a copy of its parts. The
 * storages must have data. Fails with STATUS_MEMORY. */
Status stock_tensor_values(Tensor *out, const StockTensor *tensor, Diag *diag);

/* Whether a checkpoint holds each weight just as the model does: none is transposed, and
 * none shares a tensor with others. Also true if the model is not an architecture of
 * transformers. Shapes suffice. */
bool stock_tensors_whole(const Model *model);

#endif
