/* Tensor: typed, shaped view on a reference-counted buffer that is owned or mapped.
 *
 * Tensors are dense and row-major. Those of types q8 and q4 hold low-bit integers and
 * scales (ir/quantised.h); reading gives real numbers, as for any type. A mapped buffer
 * is read-only: loading a checkpoint maps it and its bytes are touched when something
 * needs them; tensor_writable copies before the first write. */
#ifndef COMPRESS_IR_TENSOR_H
#define COMPRESS_IR_TENSOR_H

#include "ir/status.h"

#include <stddef.h>
#include <stdint.h>

/* Largest rank of a tensor or node. */
#define RANK_MAX 6

/* DTYPE(NAME, text, bytes): every element type; 0 bytes: elements have no individual
 * size, the tensor's bytes are those of its rows and scales. */
#define DTYPE_LIST(DTYPE)                                                                \
    DTYPE(F32, "f32", 4)                                                                 \
    DTYPE(F64, "f64", 8)                                                                 \
    DTYPE(F16, "f16", 2)                                                                 \
    DTYPE(BF16, "bf16", 2)                                                               \
    DTYPE(I64, "i64", 8)                                                                 \
    DTYPE(I32, "i32", 4)                                                                 \
    DTYPE(I8, "i8", 1)                                                                   \
    DTYPE(U8, "u8", 1)                                                                   \
    DTYPE(BOOL, "bool", 1)                                                               \
    DTYPE(Q8, "q8", 0)                                                                   \
    DTYPE(Q4, "q4", 0)

typedef enum DType {
#define DTYPE(name, text, bytes) DTYPE_##name,
    DTYPE_LIST(DTYPE)
#undef DTYPE
        DTYPE_COUNT
} DType;

/* Name as printed in IR text ("f32"). */
const char *dtype_name(DType dtype);

/* Bytes of one element; 0 for the quantised types, whose sizes only a tensor has. */
size_t dtype_bytes(DType dtype);

/* Whether elements are low-bit integers with scales. */
bool dtype_is_quantised(DType dtype);

/* Finds a dtype by its printed name. False if there is none. */
bool dtype_parse(const char *name, DType *out);

/* Whether the dtype holds real numbers. */
bool dtype_is_real(DType dtype);

/* Buf: reference-counted bytes. Retain and release are atomic. */
typedef struct Buf Buf;

/* Allocates `bytes` zeroed bytes aligned to 64, with huge pages requested if large.
 * Fails with STATUS_MEMORY. */
Status buf_create(Buf **out, size_t bytes, Diag *diag);

/* Wraps read-only memory, for instance a mapped file; `release(data, bytes)` runs when
 * the last reference is dropped (NULL: nothing to do). */
Buf *buf_wrap(const void *data, size_t bytes, void (*release)(void *data, size_t bytes));

/* Adds a reference and returns `buf`. NULL is allowed. */
Buf *buf_retain(Buf *buf);

/* Drops a reference. NULL is allowed. */
void buf_release(Buf *buf);

/* The bytes; writable only if buf_is_owned and there is no other reference. */
const void *buf_data(const Buf *buf);
size_t buf_bytes(const Buf *buf);
bool buf_is_owned(const Buf *buf);

/* Whether the buffer is owned and this is its only reference: it may be written. */
bool buf_is_exclusive(const Buf *buf);

/* The hash of bytes [offset, offset + bytes), kept with the buffer from buf_keep_digest
 * on until tensor_writable gives the buffer to someone to write; NULL if none is kept.
 * Writing without tensor_writable is allowed only before the first hash. */
enum { HASH_BYTES = 16 };
const unsigned char *buf_digest(const Buf *buf, size_t offset, size_t bytes);
void buf_keep_digest(Buf *buf, size_t offset, size_t bytes,
                     const unsigned char digest[HASH_BYTES]);
void buf_drop_digests(Buf *buf);

typedef struct Tensor {
    Buf *buf;      /* NULL: shape only, no data (planning) */
    size_t offset; /* bytes into buf */
    DType dtype;
    int rank;
    int64_t dim[RANK_MAX];
    int64_t group; /* quantised: elements along a row that share a scale; otherwise 0 */
    bool zeros;    /* q4: groups have zero points (asymmetric) */
} Tensor;

/* Number of elements; shapes are checked when tensors are made, so this cannot
 * overflow. */
int64_t tensor_count(const Tensor *tensor);

/* Bytes of the data in memory. */
size_t tensor_bytes(const Tensor *tensor);

/* Bytes of the elements, scales and zero points, as in a file: without the padding that
 * aligns the parts of a quantised tensor in memory. */
size_t tensor_stored_bytes(const Tensor *tensor);

/* Computes the size of a shape with overflow checks. False when a dimension is negative,
 * the byte size does not fit, or the type is quantised (tensor_size). `count` and
 * `bytes` may be NULL. */
bool shape_size(DType dtype, int rank, const int64_t *dim, int64_t *count, size_t *bytes);

/* The same for a tensor of any type, from its type, shape and groups alone: also false
 * for a quantised one that is not of the form described in ir/quantised.h. */
bool tensor_size(const Tensor *tensor, int64_t *count, size_t *bytes);

/* Shape-only tensor. The shape must pass shape_size. */
Tensor tensor_shape(DType dtype, int rank, const int64_t *dim);

/* Shape-only tensor with this shape and the type of another one, including groups. */
Tensor tensor_shape_like(const Tensor *like, int rank, const int64_t *dim);

/* Whether the types are the same, for q4 including groups and zero points. */
bool tensor_same_type(const Tensor *a, const Tensor *b);

/* Whether type, groups, rank and dimensions are the same: then every byte has the same
 * meaning. */
bool tensor_same_form(const Tensor *a, const Tensor *b);

/* The type with its groups as one word: "f32", "q8", "q4_64", "q4z_64" with zero points.
 * Returns `out`. */
#define FORM_TEXT_BYTES 32
const char *tensor_form_text(char out[FORM_TEXT_BYTES], const Tensor *tensor);

/* Sets type and groups by such a word, and drops the shape. False if it is malformed. */
bool tensor_form_parse(const char *word, Tensor *out);

/* Whether rank and dimensions are the same, whatever the dtype. */
bool tensor_same_shape(const Tensor *a, const Tensor *b);

/* Allocates zeroed data for a new tensor. Fails with STATUS_MEMORY. */
Status tensor_create(Tensor *out, DType dtype, int rank, const int64_t *dim, Diag *diag);

/* The same for a shape-only tensor of any type, in place. */
Status tensor_allocate(Tensor *shape, Diag *diag);

/* Drops the tensor's reference to its buffer and clears it. */
void tensor_release(Tensor *tensor);

/* Drops only the data, leaving the shape with `dtype` (groups stay if it is the tensor's
 * own type). */
void tensor_drop_data(Tensor *tensor, DType dtype);

/* Another reference to the same data. */
Tensor tensor_retain(const Tensor *tensor);

/* The data, NULL for shape-only tensors. */
const void *tensor_data(const Tensor *tensor);

/* Makes the data writable: copies it first if it is mapped or shared. Fails with
 * STATUS_MEMORY. */
Status tensor_writable(Tensor *tensor, void **data, Diag *diag);

/* Converts elements [first, first + count) to float (or double) at `out`; any dtype. */
void tensor_read_f32(const Tensor *tensor, int64_t first, int64_t count, float *out);
void tensor_read_f64(const Tensor *tensor, int64_t first, int64_t count, double *out);

/* Keeps entries keep[0..count) of the middle axis of a tensor seen as [outer, dim,
 * inner]. `out` gets type and shape of the result, and its data if `in` has any. The
 * type is that of `in`, except for columns of a q4, which become float32, since groups
 * would be cut. Fails with STATUS_MEMORY. */
Status tensor_keep(Tensor *out, const Tensor *in, int64_t outer, int64_t dim,
                   const int64_t *keep, int64_t count, Diag *diag);

/* Writes elements [first, first + count) of a tensor of F32 or F64, which is copied
 * first if its data is shared. Fails with STATUS_MEMORY. */
Status tensor_write_f64(Tensor *tensor, int64_t first, int64_t count,
                        const double *values, Diag *diag);

/* Float32 copy of any tensor with the same shape. F32 data that is aligned is shared, not
 * copied: call tensor_writable before writing. Fails with STATUS_MEMORY. */
Status tensor_to_f32(Tensor *out, const Tensor *in, Diag *diag);

/* Index of the first NaN or infinity, -1 if all elements are finite (or not real). */
int64_t tensor_find_nonfinite(const Tensor *tensor);

/* Prints a shape as "[2, 3]" into `out` and returns `out`. */
#define SHAPE_TEXT_BYTES 160
const char *shape_text(char out[SHAPE_TEXT_BYTES], int rank, const int64_t *dim);

/* 16-byte content hash (XXH3, 128 bits) as 32 hexadecimal digits, including dtype and
 * shape, so equal hashes mean equal tensors. */
#define HASH_TEXT_BYTES 33
void tensor_hash(const Tensor *tensor, char out[HASH_TEXT_BYTES]);

/* The same from the bytes themselves: tensor_hash reads them once and keeps the result
 * with the buffer until it is written. */
void tensor_hash_fresh(const Tensor *tensor, char out[HASH_TEXT_BYTES]);

/* Hash of plain bytes, the same function. */
void bytes_hash(const void *data, size_t bytes, char out[HASH_TEXT_BYTES]);

#endif
