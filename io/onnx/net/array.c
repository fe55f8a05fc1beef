/* Arrays: see array.h. */
#include "io/onnx/net/array.h"

#include "ir/half.h"

#include <string.h>

Array *array_create(ArrayPool *pool, int32_t type, int rank, const int64_t *dim,
                    bool known) {
    int64_t count;
    if (rank < 0 || rank > NET_RANK_MAX) return NULL;
    if (!net_shape_count(dim, (size_t)rank, &count)) return NULL;
    Array *array = ARENA_NEW(pool->arena, Array);
    *array = (Array){.type = type, .rank = rank, .count = count};
    if (rank > 0) memcpy(array->dim, dim, (size_t)rank * sizeof *dim);
    if (!known || count > ARRAY_COUNT_MAX || count > pool->left) return array;
    pool->left -= count;
    array->data = ARENA_ARRAY(pool->arena, double, (size_t)count + 1);
    return array;
}

Array *array_view(ArrayPool *pool, const Array *from, int rank, const int64_t *dim) {
    Array *array = array_create(pool, from->type, rank, dim, false);
    if (!array || array->count != from->count) return NULL;
    array->data = from->data;
    return array;
}

/* Number `i` of raw bytes, which lie at any alignment. */
#define RAW(T, convert)                                                                  \
    for (int64_t i = 0; i < count; i++) {                                                \
        T x;                                                                             \
        memcpy(&x, (const char *)bytes + (size_t)i * sizeof x, sizeof x);                \
        out[i] = (double)(convert);                                                      \
    }                                                                                    \
    break

static void read_raw(double *out, const void *bytes, int64_t count, int32_t type) {
    switch (type) {
    case ONNX_F32: RAW(float, x);
    case ONNX_F64: RAW(double, x);
    case ONNX_F16: RAW(uint16_t, f16_to_float(x));
    case ONNX_BF16: RAW(uint16_t, bf16_to_float(x));
    case ONNX_I64: RAW(int64_t, x);
    case ONNX_I32: RAW(int32_t, x);
    case ONNX__TENSOR_PROTO__DATA_TYPE__INT16: RAW(int16_t, x);
    case ONNX_I8: RAW(int8_t, x);
    case ONNX__TENSOR_PROTO__DATA_TYPE__UINT64: RAW(uint64_t, x);
    case ONNX__TENSOR_PROTO__DATA_TYPE__UINT32: RAW(uint32_t, x);
    case ONNX__TENSOR_PROTO__DATA_TYPE__UINT16: RAW(uint16_t, x);
    default: RAW(uint8_t, x);
    }
}

#define LISTED(list, convert)                                                            \
    for (int64_t i = 0; i < count; i++) out[i] = (double)(convert((list)[first + i]));   \
    break

static float half_bits(int32_t bits) {
    return f16_to_float((uint16_t)bits);
}

static float bfloat_bits(int32_t bits) {
    return bf16_to_float((uint16_t)bits);
}

static void read_list(double *out, const OnnxTensor *tensor, int64_t first,
                      int64_t count) {
    switch (tensor->data_type) {
    case ONNX_F32: LISTED(tensor->float_data, );
    case ONNX_F64: LISTED(tensor->double_data, );
    case ONNX_I64: LISTED(tensor->int64_data, );
    case ONNX_F16: LISTED(tensor->int32_data, half_bits);
    case ONNX_BF16: LISTED(tensor->int32_data, bfloat_bits);
    case ONNX__TENSOR_PROTO__DATA_TYPE__UINT32:
    case ONNX__TENSOR_PROTO__DATA_TYPE__UINT64: LISTED(tensor->uint64_data, );
    default: LISTED(tensor->int32_data, );
    }
}

void array_read(double *out, const Net *net, const OnnxTensor *tensor, int64_t first,
                int64_t count) {
    Buf *map;
    const char *bytes = net_bytes(net, tensor, &map);
    if (bytes)
        read_raw(out, bytes + (size_t)first * net_element_bytes(tensor->data_type), count,
                 tensor->data_type);
    else
        read_list(out, tensor, first, count);
}

Array *array_stored(ArrayPool *pool, const Net *net, const OnnxTensor *tensor) {
    Array *array =
        array_create(pool, tensor->data_type, (int)tensor->n_dims, tensor->dims, true);
    if (!array || !array->data) return array;
    array_read(array->data, net, tensor, 0, array->count);
    return array;
}

bool array_is_integer(const Array *array) {
    switch (array->type) {
    case ONNX_F32:
    case ONNX_F64:
    case ONNX_F16:
    case ONNX_BF16: return false;
    default: return true;
    }
}

bool array_scalar(const Array *array, double *value) {
    if (!array || !array->data || array->count != 1) return false;
    *value = array->data[0];
    return true;
}

bool array_same_shape(const Array *a, const Array *b) {
    return a->rank == b->rank &&
           memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) == 0;
}

int64_t array_stride(const Array *array, int dim) {
    int64_t stride = 1;
    for (int i = dim + 1; i < array->rank; i++) stride *= array->dim[i];
    return stride;
}

void array_broadcast(const Array *array, int rank, int64_t step[NET_RANK_MAX]) {
    int64_t stride = 1;
    for (int i = 0; i < rank; i++) step[i] = 0;
    for (int i = array->rank - 1, at = rank - 1; i >= 0; i--, at--) {
        step[at] = array->dim[i] == 1 ? 0 : stride;
        stride *= array->dim[i];
    }
}

double array_broadcast_number(const Array *array, const Array *shape, int64_t element) {
    int64_t at = 0, step[NET_RANK_MAX];
    array_broadcast(array, shape->rank, step);
    for (int d = shape->rank - 1; d >= 0; d--) {
        at += element % shape->dim[d] * step[d];
        element /= shape->dim[d];
    }
    return array->data[at];
}

bool array_next(int rank, const int64_t *dim, int64_t *index) {
    for (int i = rank - 1; i >= 0; i--) {
        if (++index[i] < dim[i]) return true;
        index[i] = 0;
    }
    return false;
}
