/* Stock tensors: a model's weights as the checkpoint of its architecture holds them. */
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
    Tensor shape; /* with the type of the parts, F32 where they have several */
} StockTensor;

/* First row of a part of a tensor whose parts are one after another; else 0. */
int64_t stock_tensor_row(const StockTensor *tensor, int part);

/* All tensors, sorted by name, in the arena; returns their number. */
int stock_tensors(StockTensor **out, Arena *arena, const Stock *stock);

/* The values of a tensor: those of its storage, shared, or a copy of its parts. The
 * storages must have data. Fails with STATUS_MEMORY. */
Status stock_tensor_values(Tensor *out, const StockTensor *tensor, Diag *diag);

/* Whether a checkpoint has each weight of a model as the model has it: none is turned,
 * and none stands with others in one tensor. True, too, where the model is no
 * architecture of transformers. Shapes suffice. */
bool stock_tensors_whole(const Model *model);

#endif
