/* Stock tensors: see stock_tensors.h. */
#include "io/formats/stock_tensors.h"

#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b) {
    return strcmp(((const StockTensor *)a)->name, ((const StockTensor *)b)->name);
}

/* Whether a checkpoint holds the storage as [1, n]. */
static bool is_row(const Family *family, const char *storage) {
    for (const char *const *row = family->rows; row && *row; row++)
        if (strcmp(*row, storage) == 0) return true;
    return false;
}

/* Adds a storage to the tensor that it is a slice of; returns the number of tensors. */
static int add_slice(StockTensor *tensors, int count, const TensorSlice *slice,
                     bool by_rows, const Storage *storage, const char *built) {
    StockTensor *tensor = tensors + count;
    for (int i = count - 1; i >= 0 && slice->parts > 1; i--)
        if (strcmp(tensors[i].name, slice->tensor) == 0) tensor = tensors + i;
    const Tensor *part = &storage->tensor;
    const bool first = tensor->count == 0;
    if (first) {
        *tensor = (StockTensor){.name = slice->tensor, .count = slice->parts};
        tensor->by_rows = by_rows && slice->parts > 1;
        tensor->shape = tensor_shape(part->dtype, part->rank, part->dim);
        if (part->rank > 0 && !tensor->by_rows)
            tensor->shape.dim[part->rank - 1] *= slice->parts;
    } else if (tensor->by_rows) {
        tensor->shape.dim[0] += part->dim[0];
    }
    if (part->dtype != tensor->shape.dtype) tensor->shape.dtype = DTYPE_F32;
    tensor->parts[slice->part] = storage;
    tensor->built[slice->part] = built;
    return count + first;
}

int stock_tensors(StockTensor **out, Arena *arena, const Stock *stock) {
    const Graph *built = stock->built->graph;
    const Family *family = stock->family;
    StockTensor *tensors =
        ARENA_ARRAY(arena, StockTensor, (size_t)built->storage_count + 1);
    int count = 0;
    for (int i = 0; i < built->storage_count; i++) {
        const char *name = arena_strdup(arena, built->storages[i]->name);
        const TensorSlice slice = family_join(family, arena, name);
        count = add_slice(tensors, count, &slice, family->joined_rows, stock->weights[i],
                          name);
        Tensor *shape = &tensors[count - 1].shape;
        if (shape->rank == 1 && is_row(family, name))
            *shape = tensor_shape(shape->dtype, 2, (int64_t[]){1, shape->dim[0]});
    }
    qsort(tensors, (size_t)count, sizeof *tensors, by_name);
    *out = tensors;
    return count;
}

int64_t stock_tensor_row(const StockTensor *tensor, int part) {
    int64_t row = 0;
    for (int p = 0; p < part && tensor->by_rows; p++)
        row += tensor->parts[p]->tensor.dim[0];
    return row;
}

/* Copies the parts side by side, row by row; or one after another. */
static Status join_parts(Tensor *out, const StockTensor *tensor, Diag *diag) {
    void *data;
    TRY(tensor_create(out, tensor->shape.dtype, tensor->shape.rank, tensor->shape.dim,
                      diag));
    TRY(tensor_writable(out, &data, diag));
    const size_t bytes = tensor_bytes(out);
    const size_t width = tensor->by_rows
                             ? bytes
                             : (size_t)out->dim[out->rank - 1] * dtype_bytes(out->dtype);
    const size_t row = out->dim[0] ? bytes / (size_t)out->dim[0] : 0;
    for (int p = 0; p < tensor->count; p++) {
        Tensor part = tensor_retain(&tensor->parts[p]->tensor);
        if (part.dtype != out->dtype) {
            tensor_release(&part);
            const Status status = tensor_to_f32(&part, &tensor->parts[p]->tensor, diag);
            if (status != STATUS_OK) {
                tensor_release(out);
                return status;
            }
        }
        const char *from = tensor_data(&part);
        const size_t slice =
            tensor->by_rows ? tensor_bytes(&part) : width / (size_t)tensor->count;
        char *to =
            (char *)data + (tensor->by_rows ? (size_t)stock_tensor_row(tensor, p) * row
                                            : (size_t)p * slice);
        for (size_t at = 0; slice > 0 && at < bytes; at += width, from += slice)
            memcpy(to + at, from, slice);
        tensor_release(&part);
    }
    return STATUS_OK;
}

Status stock_tensor_values(Tensor *out, const StockTensor *tensor, Diag *diag) {
    if (tensor->count > 1) return join_parts(out, tensor, diag);
    *out = tensor_retain(&tensor->parts[0]->tensor);
    out->rank = tensor->shape.rank;
    memcpy(out->dim, tensor->shape.dim, sizeof out->dim);
    return STATUS_OK;
}

bool stock_tensors_whole(const Model *model) {
    Diag *aside = diag_create();
    Arena *arena = arena_create();
    Stock stock;
    bool whole = true;
    if (stock_match(&stock, arena, model, true, aside) == STATUS_OK) {
        StockTensor *tensors;
        const int count = stock_tensors(&tensors, arena, &stock);
        whole = stock.turns == 0;
        for (int i = 0; i < count; i++) whole = whole && tensors[i].count == 1;
        stock_release(&stock);
    }
    arena_destroy(arena);
    diag_destroy(aside);
    return whole;
}
