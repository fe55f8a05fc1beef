/* Tensor: element types, shapes and views on buffers. */
#include "ir/tensor.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} DTYPES[] = {
#define DTYPE(name, text, bytes) {text, bytes},
    DTYPE_LIST(DTYPE)
#undef DTYPE
};

const char *dtype_name(DType dtype) {
    return DTYPES[dtype].name;
}

size_t dtype_bytes(DType dtype) {
    return DTYPES[dtype].bytes;
}

bool dtype_parse(const char *name, DType *out) {
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(DTYPES[i].name, name) == 0) {
            *out = (DType)i;
            return true;
        }
    }
    return false;
}

bool dtype_is_real(DType dtype) {
    return dtype == DTYPE_F32 || dtype == DTYPE_F64 || dtype == DTYPE_F16 ||
           dtype == DTYPE_BF16;
}

int64_t tensor_count(const Tensor *tensor) {
    int64_t count = 1;
    for (int i = 0; i < tensor->rank; i++) count *= tensor->dim[i];
    return count;
}

size_t tensor_bytes(const Tensor *tensor) {
    return (size_t)tensor_count(tensor) * dtype_bytes(tensor->dtype);
}

bool shape_size(DType dtype, int rank, const int64_t *dim, int64_t *count,
                size_t *bytes) {
    if (rank < 0 || rank > RANK_MAX) return false;
    int64_t product = 1, size;
    for (int i = 0; i < rank; i++) {
        if (dim[i] < 0 || __builtin_mul_overflow(product, dim[i], &product)) return false;
    }
    if (__builtin_mul_overflow(product, (int64_t)dtype_bytes(dtype), &size)) return false;
    if (size > PTRDIFF_MAX) return false;
    if (count) *count = product;
    if (bytes) *bytes = (size_t)size;
    return true;
}

Tensor tensor_shape(DType dtype, int rank, const int64_t *dim) {
    Tensor tensor = {.dtype = dtype, .rank = rank};
    for (int i = 0; i < rank; i++) tensor.dim[i] = dim[i];
    return tensor;
}

bool tensor_same_shape(const Tensor *a, const Tensor *b) {
    return a->rank == b->rank &&
           memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) == 0;
}

Status tensor_create(Tensor *out, DType dtype, int rank, const int64_t *dim, Diag *diag) {
    size_t bytes;
    if (!shape_size(dtype, rank, dim, NULL, &bytes)) {
        return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                         "expected a tensor of rank 0 to %d that fits into memory, found "
                         "rank %d and type %s",
                         RANK_MAX, rank, dtype_name(dtype));
    }
    Tensor tensor = tensor_shape(dtype, rank, dim);
    TRY(buf_create(&tensor.buf, bytes, diag));
    *out = tensor;
    return STATUS_OK;
}

void tensor_release(Tensor *tensor) {
    buf_release(tensor->buf);
    *tensor = (Tensor){0};
}

void tensor_drop_data(Tensor *tensor, DType dtype) {
    const Tensor shape = tensor_shape(dtype, tensor->rank, tensor->dim);
    tensor_release(tensor);
    *tensor = shape;
}

Tensor tensor_retain(const Tensor *tensor) {
    Tensor copy = *tensor;
    buf_retain(copy.buf);
    return copy;
}

const void *tensor_data(const Tensor *tensor) {
    if (!tensor->buf) return NULL;
    return (const char *)buf_data(tensor->buf) + tensor->offset;
}

/* The tensor's bytes, when its buffer is its own to write. */
static void *writable_data(const Tensor *tensor) {
    return (void *)(uintptr_t)tensor_data(tensor);
}

Status tensor_writable(Tensor *tensor, void **data, Diag *diag) {
    if (!tensor->buf) {
        return diag_fail(diag, STATUS_INTERNAL, LOC_NONE, NULL,
                         "expected a tensor with data, found a shape");
    }
    if (!buf_is_exclusive(tensor->buf)) {
        Tensor copy;
        TRY(tensor_create(&copy, tensor->dtype, tensor->rank, tensor->dim, diag));
        size_t bytes = tensor_bytes(tensor);
        if (bytes > 0) memcpy(writable_data(&copy), tensor_data(tensor), bytes);
        buf_release(tensor->buf);
        *tensor = copy;
    }
    buf_drop_digests(tensor->buf);
    *data = writable_data(tensor);
    return STATUS_OK;
}

Status tensor_write_f64(Tensor *tensor, int64_t first, int64_t count,
                        const double *values, Diag *diag) {
    void *data = NULL;
    TRY(tensor_writable(tensor, &data, diag));
    if (tensor->dtype == DTYPE_F64 && count > 0)
        memcpy((double *)data + first, values, (size_t)count * sizeof *values);
    for (int64_t i = 0; tensor->dtype == DTYPE_F32 && i < count; i++)
        ((float *)data)[first + i] = (float)values[i];
    return STATUS_OK;
}

Status tensor_to_f32(Tensor *out, const Tensor *in, Diag *diag) {
    bool aligned = (uintptr_t)tensor_data(in) % sizeof(float) == 0;
    if (in->dtype == DTYPE_F32 && aligned) {
        *out = tensor_retain(in);
        return STATUS_OK;
    }
    if (!in->buf) {
        *out = tensor_shape(DTYPE_F32, in->rank, in->dim);
        return STATUS_OK;
    }
    TRY(tensor_create(out, DTYPE_F32, in->rank, in->dim, diag));
    tensor_read_f32(in, 0, tensor_count(in), writable_data(out));
    return STATUS_OK;
}

Status tensor_keep(Tensor *out, const Tensor *in, int64_t outer, int64_t dim,
                   const int64_t *keep, int64_t count, Diag *diag) {
    if (!in->buf) return STATUS_OK;
    TRY(tensor_create(out, out->dtype, out->rank, out->dim, diag));
    const int64_t blocks = outer * dim;
    const size_t inner = blocks > 0 ? tensor_bytes(in) / (size_t)blocks : 0;
    const char *from = tensor_data(in);
    char *to = writable_data(out);
    for (int64_t o = 0; inner > 0 && o < outer; o++)
        for (int64_t k = 0; k < count; k++, to += inner)
            memcpy(to, from + (size_t)(o * dim + keep[k]) * inner, inner);
    return STATUS_OK;
}

const char *shape_text(char out[SHAPE_TEXT_BYTES], int rank, const int64_t *dim) {
    size_t at = 0;
    out[at++] = '[';
    for (int i = 0; i < rank && i < RANK_MAX; i++) {
        at += (size_t)snprintf(out + at, SHAPE_TEXT_BYTES - at, "%s%lld",
                               i > 0 ? ", " : "", (long long)dim[i]);
    }
    out[at++] = ']';
    out[at] = 0;
    return out;
}
