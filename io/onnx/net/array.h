/* Arrays: what is known about a value when the sizes of the inputs are known: its shape,
 * and its numbers if they follow only from constants, shapes and given inputs.
 *
 * Numbers of every type are held as double: integers are exact up to 2^53, what shapes,
 * positions and masks are made of. */
#ifndef COMPRESS_IO_ONNX_NET_ARRAY_H
#define COMPRESS_IO_ONNX_NET_ARRAY_H

#include "io/onnx/net/net.h"

/* Inputs that numbers may depend on. */
typedef enum ArrayDepends {
    DEPENDS_MASK = 1,     /* the mask of the tokens */
    DEPENDS_POSITION = 2, /* the positions, here always 0, 1, 2, ... */
    DEPENDS_CACHE = 4     /* keys and values of earlier tokens, here always none */
} ArrayDepends;

typedef struct Array {
    int32_t type; /* TensorProto.DataType */
    int rank;
    int64_t dim[NET_RANK_MAX];
    int64_t count;
    double *data; /* NULL = the numbers are not known */
    unsigned
        depends; /* OR of ArrayDepends: what the numbers, or the shape, follow from */
} Array;

/* Where arrays live, and how many more numbers they may have in total. */
typedef struct ArrayPool {
    Arena *arena;
    int64_t left;
} ArrayPool;

/* Most numbers of one array, and of all. */
enum { ARRAY_COUNT_MAX = 1 << 22, ARRAY_POOL_MAX = 1 << 26 };

/* New array; with room for its numbers, zeroed, when `known` and the pool has it. NULL
 * when the shape is impossible. */
Array *array_create(ArrayPool *pool, int32_t type, int rank, const int64_t *dim,
                    bool known);

/* Another array with the same numbers, whose count must stay the same; NULL otherwise.
 */
Array *array_view(ArrayPool *pool, const Array *from, int rank, const int64_t *dim);

/* A stored tensor: its shape, and its numbers unless there are more than an array may
 * hold. */
Array *array_stored(ArrayPool *pool, const Net *net, const OnnxTensor *tensor);

/* Reads numbers first .. first + count of a stored tensor of any size. They must
 * exist. */
void array_read(double *out, const Net *net, const OnnxTensor *tensor, int64_t first,
                int64_t count);

/* Whether the type is an integer or boolean type. */
bool array_is_integer(const Array *array);

/* Whether the numbers are known and there is exactly one; `value` receives it. */
bool array_scalar(const Array *array, double *value);

/* Whether two arrays have one shape. */
bool array_same_shape(const Array *a, const Array *b);

/* Distance in elements along a dimension: the product of the dimensions after it. */
int64_t array_stride(const Array *array, int dim);

/* Steps by which an index of `wide`, of rank `rank`, moves through an array that is
 * broadcast to it: 0 along dimensions of size 1. */
void array_broadcast(const Array *array, int rank, int64_t step[NET_RANK_MAX]);

/* Number of an array that is broadcast to a shape, by the index of the element there. */
double array_broadcast_number(const Array *array, const Array *shape, int64_t element);

/* The next index of a shape, last dimension fastest; false after the last one. */
bool array_next(int rank, const int64_t *dim, int64_t *index);

#endif
