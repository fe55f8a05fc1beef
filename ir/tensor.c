/* Tensor: see ir/tensor.h. Buffers, element types and shapes, views on buffers, reading
 * elements. */
#include "ir/tensor.h"

#include "ir/arena.h"
#include "ir/half.h"
#include "ir/mapped.h"
#include "ir/quantised.h"
#include "ir/resident.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- buffers ---- */

#define BUF_ALIGNMENT ((size_t)64)
/* Buffers from this size on are mapped in whole huge pages. */
#define HUGE_LEAST ((size_t)4 << 20)
#define HUGE_PAGE  ((size_t)2 << 20)

/* A hash of some of a buffer's bytes, and as which real type they are known to be finite
 * (-1: none). */
typedef struct Digest {
    size_t offset, bytes;
    unsigned char digest[HASH_BYTES];
    int finite;
} Digest;

struct Buf {
    atomic_int references;
    bool owned, file;
    void *data;
    size_t bytes;
    void (*release)(void *data, size_t bytes);
    Digest *digests; /* a mapped file has one for each storage in it */
    int digest_count, digest_capacity;
};

static size_t round_up(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

static void release_heap(void *data, size_t bytes) {
    (void)bytes;
    free(data);
}

static void release_mapping(void *data, size_t bytes) {
    munmap(data, round_up(bytes, HUGE_PAGE));
}

static void release_spilled(void *data, size_t bytes) {
    munmap(data, bytes);
}

static void *alloc_heap(size_t bytes) {
    size_t rounded = round_up(bytes > 0 ? bytes : 1, BUF_ALIGNMENT);
    void *data = aligned_alloc(BUF_ALIGNMENT, rounded);
    if (data) memset(data, 0, rounded);
    return data;
}

/* Fresh zero pages that start at a huge page: maps one more and cuts the ends off. */
static void *alloc_mapping(size_t bytes) {
    size_t rounded = round_up(bytes, HUGE_PAGE);
    char *start = mmap(NULL, rounded + HUGE_PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return NULL;
    size_t head = (HUGE_PAGE - (uintptr_t)start % HUGE_PAGE) % HUGE_PAGE;
    if (head > 0) munmap(start, head);
    if (head < HUGE_PAGE) munmap(start + head + rounded, HUGE_PAGE - head);
    madvise(start + head, rounded, MADV_HUGEPAGE); /* a wish: refusal is fine */
    return start + head;
}

static Buf *buf_new(void *data, size_t bytes, bool owned,
                    void (*release)(void *data, size_t bytes)) {
    Buf *buf = memory_alloc(1, sizeof *buf);
    atomic_init(&buf->references, 1);
    buf->owned = owned;
    buf->data = data;
    buf->bytes = bytes;
    buf->release = release;
    return buf;
}

/* A buffer in a file that no name leads to. */
static Status create_spilled(Buf **out, size_t bytes, Diag *diag) {
    void *data;
    TRY(resident_spill(&data, bytes, diag));
    resident_add(data, bytes);
    *out = buf_new(data, bytes, true, release_spilled);
    (*out)->file = true;
    return STATUS_OK;
}

Status buf_create(Buf **out, size_t bytes, Diag *diag) {
    if (resident_spills(bytes)) return create_spilled(out, bytes, diag);
    bool large = bytes >= HUGE_LEAST;
    void *data = NULL;
    if (bytes <= PTRDIFF_MAX - 2 * HUGE_PAGE) {
        data = large ? alloc_mapping(bytes) : alloc_heap(bytes);
    }
    if (!data) {
        return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                         "cannot allocate %zu bytes (%.1f MiB)", bytes,
                         (double)bytes / (1 << 20));
    }
    resident_own(bytes);
    *out = buf_new(data, bytes, true, large ? release_mapping : release_heap);
    return STATUS_OK;
}

Buf *buf_wrap(const void *data, size_t bytes, void (*release)(void *data, size_t bytes)) {
    return buf_new((void *)(uintptr_t)data, bytes, false, release);
}

Buf *buf_wrap_file(const void *data, size_t bytes,
                   void (*release)(void *data, size_t bytes)) {
    Buf *buf = buf_wrap(data, bytes, release);
    buf->file = true;
    resident_add(data, bytes);
    return buf;
}

bool buf_is_file(const Buf *buf) {
    return buf && buf->file;
}

void buf_drop_pages(const Buf *buf, size_t offset, size_t bytes) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t start = (uintptr_t)buf->data + offset, end = start + bytes;
    const uintptr_t first = (start + page - 1) / page * page, last = end / page * page;
    if (buf->file && first < last)
        madvise((void *)first, last - first, MADV_DONTNEED); /* a wish */
}

Buf *buf_retain(Buf *buf) {
    if (buf) atomic_fetch_add_explicit(&buf->references, 1, memory_order_relaxed);
    return buf;
}

void buf_release(Buf *buf) {
    if (!buf) return;
    if (atomic_fetch_sub_explicit(&buf->references, 1, memory_order_acq_rel) > 1) return;
    if (buf->file)
        resident_remove(buf->data);
    else if (buf->owned)
        resident_disown(buf->bytes);
    if (buf->release) buf->release(buf->data, buf->bytes);
    free(buf->digests);
    free(buf);
}

static Digest *find_digest(const Buf *buf, size_t offset, size_t bytes) {
    for (int i = 0; i < buf->digest_count; i++)
        if (buf->digests[i].offset == offset && buf->digests[i].bytes == bytes)
            return &buf->digests[i];
    return NULL;
}

const unsigned char *buf_digest(const Buf *buf, size_t offset, size_t bytes) {
    const Digest *kept = find_digest(buf, offset, bytes);
    return kept ? kept->digest : NULL;
}

bool buf_known_finite(const Buf *buf, size_t offset, size_t bytes, DType dtype) {
    const Digest *kept = find_digest(buf, offset, bytes);
    return kept && kept->finite == (int)dtype;
}

void buf_keep_finite(Buf *buf, size_t offset, size_t bytes, DType dtype) {
    Digest *kept = find_digest(buf, offset, bytes);
    if (kept) kept->finite = (int)dtype;
}

void buf_keep_digest(Buf *buf, size_t offset, size_t bytes,
                     const unsigned char digest[HASH_BYTES]) {
    if (buf->digest_count == buf->digest_capacity) {
        const int capacity = buf->digest_capacity ? 2 * buf->digest_capacity : 1;
        Digest *grown = memory_alloc((size_t)capacity, sizeof *grown);
        if (buf->digest_count > 0)
            memcpy(grown, buf->digests, (size_t)buf->digest_count * sizeof *grown);
        free(buf->digests);
        buf->digests = grown;
        buf->digest_capacity = capacity;
    }
    Digest *kept = &buf->digests[buf->digest_count++];
    *kept = (Digest){.offset = offset, .bytes = bytes, .finite = -1};
    memcpy(kept->digest, digest, sizeof kept->digest);
}

void buf_drop_digests(Buf *buf) {
    buf->digest_count = 0;
}

const void *buf_data(const Buf *buf) {
    return buf->data;
}

size_t buf_bytes(const Buf *buf) {
    return buf->bytes;
}

bool buf_is_owned(const Buf *buf) {
    return buf->owned;
}

bool buf_is_exclusive(const Buf *buf) {
    return buf->owned &&
           atomic_load_explicit(&buf->references, memory_order_acquire) == 1;
}

/* ---- element types and shapes ---- */

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

bool dtype_is_quantised(DType dtype) {
    return dtype == DTYPE_Q8 || dtype == DTYPE_Q4;
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
           dtype == DTYPE_BF16 || dtype_is_quantised(dtype);
}

int64_t tensor_count(const Tensor *tensor) {
    int64_t count = 1;
    for (int i = 0; i < tensor->rank; i++) count *= tensor->dim[i];
    return count;
}

size_t tensor_bytes(const Tensor *tensor) {
    if (dtype_is_quantised(tensor->dtype)) return quantised_parts(tensor).bytes;
    return (size_t)tensor_count(tensor) * dtype_bytes(tensor->dtype);
}

size_t tensor_stored_bytes(const Tensor *tensor) {
    if (!dtype_is_quantised(tensor->dtype)) return tensor_bytes(tensor);
    const QuantisedParts parts = quantised_parts(tensor);
    return (size_t)quantised_rows(tensor) *
           (parts.row_values + parts.row_scales + parts.row_zeros);
}

bool shape_size(DType dtype, int rank, const int64_t *dim, int64_t *count,
                size_t *bytes) {
    if (rank < 0 || rank > RANK_MAX || dtype_is_quantised(dtype)) return false;
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

bool tensor_size(const Tensor *tensor, int64_t *count, size_t *bytes) {
    if (!dtype_is_quantised(tensor->dtype))
        return tensor->group == 0 && !tensor->zeros &&
               shape_size(tensor->dtype, tensor->rank, tensor->dim, count, bytes);
    if (!shape_size(DTYPE_F32, tensor->rank, tensor->dim, count, NULL) ||
        !quantised_is_valid(tensor))
        return false;
    /* A float for each element of rows with one more of the largest groups is more than a
     * quantised tensor has of anything. */
    const int64_t width = quantised_width(tensor);
    if (width < 0 || width > INT64_MAX - QUANTISED_GROUP_MAX ||
        !shape_size(DTYPE_F32, 2,
                    (int64_t[]){quantised_rows(tensor), width + QUANTISED_GROUP_MAX},
                    NULL, NULL))
        return false;
    if (bytes) *bytes = quantised_parts(tensor).bytes;
    return true;
}

Tensor tensor_shape(DType dtype, int rank, const int64_t *dim) {
    return tensor_shape_like(&(Tensor){.dtype = dtype}, rank, dim);
}

Tensor tensor_shape_like(const Tensor *like, int rank, const int64_t *dim) {
    Tensor tensor = {
        .dtype = like->dtype, .rank = rank, .group = like->group, .zeros = like->zeros};
    for (int i = 0; i < rank; i++) tensor.dim[i] = dim[i];
    if (tensor.dtype == DTYPE_Q8) tensor.group = quantised_width(&tensor);
    return tensor;
}

bool tensor_same_shape(const Tensor *a, const Tensor *b) {
    return a->rank == b->rank &&
           memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]) == 0;
}

bool tensor_same_type(const Tensor *a, const Tensor *b) {
    const bool same_groups = a->dtype != DTYPE_Q4 || a->group == b->group;
    return a->dtype == b->dtype && a->zeros == b->zeros && same_groups;
}

bool tensor_same_form(const Tensor *a, const Tensor *b) {
    return tensor_same_type(a, b) && a->group == b->group && tensor_same_shape(a, b);
}

const char *tensor_form_text(char out[FORM_TEXT_BYTES], const Tensor *tensor) {
    if (tensor->dtype == DTYPE_Q4)
        snprintf(out, FORM_TEXT_BYTES, "q4%s_%lld", tensor->zeros ? "z" : "",
                 (long long)tensor->group);
    else
        snprintf(out, FORM_TEXT_BYTES, "%s", dtype_name(tensor->dtype));
    return out;
}

bool tensor_form_parse(const char *word, Tensor *out) {
    for (int dtype = 0; dtype < DTYPE_COUNT; dtype++) {
        if (dtype == DTYPE_Q4 || strcmp(dtype_name((DType)dtype), word) != 0) continue;
        *out = (Tensor){.dtype = (DType)dtype};
        return true;
    }
    char text[FORM_TEXT_BYTES];
    for (int g = 0; g < QUANTISED_GROUPS; g++) {
        for (int zeros = 0; zeros < 2; zeros++) {
            *out =
                (Tensor){.dtype = DTYPE_Q4, .group = QUANTISED_GROUP[g], .zeros = zeros};
            if (strcmp(tensor_form_text(text, out), word) == 0) return true;
        }
    }
    return false;
}

Status tensor_create(Tensor *out, DType dtype, int rank, const int64_t *dim, Diag *diag) {
    Tensor tensor = {.dtype = dtype, .rank = RANK_MAX + 1};
    if (rank >= 0 && rank <= RANK_MAX) tensor = tensor_shape(dtype, rank, dim);
    TRY(tensor_allocate(&tensor, diag));
    *out = tensor;
    return STATUS_OK;
}

Status tensor_allocate(Tensor *shape, Diag *diag) {
    size_t bytes;
    if (!tensor_size(shape, NULL, &bytes)) {
        return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                         "expected a tensor of rank 0 to %d that fits into memory, found "
                         "rank %d and type %s",
                         RANK_MAX, shape->rank, dtype_name(shape->dtype));
    }
    return buf_create(&shape->buf, bytes, diag);
}

void tensor_release(Tensor *tensor) {
    buf_release(tensor->buf);
    *tensor = (Tensor){0};
}

void tensor_drop_data(Tensor *tensor, DType dtype) {
    const Tensor other = {.dtype = dtype};
    const Tensor shape = tensor_shape_like(dtype == tensor->dtype ? tensor : &other,
                                           tensor->rank, tensor->dim);
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
    const char *data = (const char *)buf_data(tensor->buf) + tensor->offset;
    if (tensor->buf->file && resident_bounded()) resident_use(data, tensor_bytes(tensor));
    return data;
}

/* How far ahead of a piece a mapped file is read. */
#define AHEAD_BYTES (2 * PIECE_BYTES)

const void *tensor_piece(const Tensor *tensor, size_t offset, size_t bytes) {
    if (!tensor->buf) return NULL;
    const size_t from = tensor->offset + offset;
    const char *data = (const char *)tensor->buf->data + from;
    if (bytes == 0 || !tensor->buf->file || !resident_bounded()) return data;
    resident_use(data, bytes);
    const size_t left = tensor->buf->bytes - from - bytes;
    if (!tensor->buf->owned)
        resident_ahead(data + bytes, left < AHEAD_BYTES ? left : AHEAD_BYTES);
    return data;
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
        Tensor copy = tensor_shape_like(tensor, tensor->rank, tensor->dim);
        TRY(tensor_allocate(&copy, diag));
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

/* Copies blocks keep[0..count) of `dim` of `inner` bytes each, `outer` times. */
static void keep_blocks(char *to, const char *from, int64_t outer, int64_t dim,
                        size_t inner, const int64_t *keep, int64_t count) {
    for (int64_t o = 0; inner > 0 && o < outer; o++)
        for (int64_t k = 0; k < count; k++, to += inner)
            memcpy(to, from + (size_t)(o * dim + keep[k]) * inner, inner);
}

/* Rows keep[0..count) of a quantised tensor with all that belongs to them. */
static void keep_quantised_rows(Tensor *out, const Tensor *in, const int64_t *keep,
                                int64_t count) {
    const QuantisedParts from = quantised_parts(in), to = quantised_parts(out);
    const char *source = tensor_data(in);
    char *target = writable_data(out);
    const int64_t rows = quantised_rows(in);
    keep_blocks(target, source, 1, rows, from.row_values, keep, count);
    keep_blocks(target + to.scales, source + from.scales, 1, rows, from.row_scales, keep,
                count);
    keep_blocks(target + to.zeros, source + from.zeros, 1, rows, from.row_zeros, keep,
                count);
}

/* Columns of a q8, whose rows keep their scales. */
static void keep_q8_columns(Tensor *out, const Tensor *in, int64_t outer, int64_t dim,
                            const int64_t *keep, int64_t count) {
    const QuantisedParts from = quantised_parts(in), to = quantised_parts(out);
    const char *source = tensor_data(in);
    char *target = writable_data(out);
    const int64_t blocks = outer * dim;
    keep_blocks(target, source, outer, dim,
                blocks > 0 ? (size_t)(tensor_count(in) / blocks) : 0, keep, count);
    memcpy(target + to.scales, source + from.scales,
           (size_t)quantised_rows(in) * from.row_scales);
}

/* Blocks of any type read as floats. */
static void keep_floats(Tensor *out, const Tensor *in, int64_t outer, int64_t dim,
                        const int64_t *keep, int64_t count) {
    float *to = writable_data(out);
    const int64_t blocks = outer * dim,
                  inner = blocks > 0 ? tensor_count(in) / blocks : 0;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < count; k++, to += inner)
            tensor_read_f32(in, (o * dim + keep[k]) * inner, inner, to);
}

Status tensor_keep(Tensor *out, const Tensor *in, int64_t outer, int64_t dim,
                   const int64_t *keep, int64_t count, Diag *diag) {
    if (!in->buf) return STATUS_OK;
    const int64_t blocks = outer * dim;
    const bool quantised = dtype_is_quantised(in->dtype);
    const bool rows = outer == 1 && out->dim[0] == count && dim == in->dim[0];
    TRY(tensor_allocate(out, diag));
    if (out->dtype != in->dtype)
        keep_floats(out, in, outer, dim, keep, count);
    else if (quantised && rows && quantised_width(in) == quantised_width(out))
        keep_quantised_rows(out, in, keep, count);
    else if (quantised)
        keep_q8_columns(out, in, outer, dim, keep, count);
    else
        keep_blocks(writable_data(out), tensor_data(in), outer, dim,
                    blocks > 0 ? tensor_bytes(in) / (size_t)blocks : 0, keep, count);
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

/* ---- reading elements ----
 *
 * One loop per element type without branches, so that the compiler makes vector code of
 * it. Elements are loaded with memcpy: data in a mapped file may stand anywhere. */

/* Elements looked at together when searching. */
#define BLOCK 2048

#define PLAIN(x) (x)

/* Defines `name`, which converts `count` elements of type S at `in` to type T. */
#define READER(name, S, T, convert)                                                      \
    static void name(const char *restrict in, int64_t count, T *restrict out) {          \
        for (int64_t i = 0; i < count; i++) {                                            \
            S element;                                                                   \
            memcpy(&element, in + (size_t)i * sizeof element, sizeof element);           \
            out[i] = (T)convert(element);                                                \
        }                                                                                \
    }

#define READERS(T)                                                                       \
    READER(T##_from_f32, float, T, PLAIN)                                                \
    READER(T##_from_f64, double, T, PLAIN)                                               \
    READER(T##_from_f16, uint16_t, T, f16_to_float)                                      \
    READER(T##_from_bf16, uint16_t, T, bf16_to_float)                                    \
    READER(T##_from_i64, int64_t, T, PLAIN)                                              \
    READER(T##_from_i32, int32_t, T, PLAIN)                                              \
    READER(T##_from_i8, int8_t, T, PLAIN)                                                \
    READER(T##_from_u8, uint8_t, T, PLAIN)

#define READER_TABLE(T)                                                                  \
    {                                                                                    \
        [DTYPE_F32] = T##_from_f32, [DTYPE_F64] = T##_from_f64,                          \
        [DTYPE_F16] = T##_from_f16, [DTYPE_BF16] = T##_from_bf16,                        \
        [DTYPE_I64] = T##_from_i64, [DTYPE_I32] = T##_from_i32,                          \
        [DTYPE_I8] = T##_from_i8, [DTYPE_U8] = T##_from_u8, [DTYPE_BOOL] = T##_from_u8,  \
    }

/* clang-format off */
READERS(float)
READERS(double)
/* clang-format on */

typedef void ReadFloat(const char *restrict in, int64_t count, float *restrict out);
typedef void ReadDouble(const char *restrict in, int64_t count, double *restrict out);

static ReadFloat *const READ_FLOAT[DTYPE_COUNT] = READER_TABLE(float);
static ReadDouble *const READ_DOUBLE[DTYPE_COUNT] = READER_TABLE(double);

/* Where `count` elements from `index` on lie, which are about to be read. */
static const char *elements_at(const Tensor *tensor, int64_t index, int64_t count) {
    const size_t size = dtype_bytes(tensor->dtype);
    const char *data = (const char *)buf_data(tensor->buf) + tensor->offset;
    data += (size_t)index * size;
    if (tensor->buf->file) resident_use(data, (size_t)count * size);
    return data;
}

void tensor_read_f32(const Tensor *tensor, int64_t first, int64_t count, float *out) {
    if (dtype_is_quantised(tensor->dtype))
        quantised_read_f32(tensor, first, count, out);
    else if (count > 0)
        READ_FLOAT[tensor->dtype](elements_at(tensor, first, count), count, out);
}

void tensor_read_f64(const Tensor *tensor, int64_t first, int64_t count, double *out) {
    if (dtype_is_quantised(tensor->dtype))
        quantised_read_f64(tensor, first, count, out);
    else if (count > 0)
        READ_DOUBLE[tensor->dtype](elements_at(tensor, first, count), count, out);
}

/* Defines `name`: whether one of `count` elements has all bits of the exponent set. */
#define FINDER(name, U, exponent)                                                        \
    static bool name(const char *in, int64_t count) {                                    \
        U found = 0;                                                                     \
        for (int64_t i = 0; i < count; i++) {                                            \
            U bits;                                                                      \
            memcpy(&bits, in + (size_t)i * sizeof bits, sizeof bits);                    \
            found |= (U)((bits & (exponent)) == (exponent));                             \
        }                                                                                \
        return found != 0;                                                               \
    }

/* clang-format off */
FINDER(nonfinite_f32, uint32_t, 0x7f800000u)
FINDER(nonfinite_f64, uint64_t, 0x7ff0000000000000u)
FINDER(nonfinite_f16, uint16_t, 0x7c00)
FINDER(nonfinite_bf16, uint16_t, 0x7f80)
/* clang-format on */

static bool (*const FIND_NONFINITE[DTYPE_COUNT])(const char *in, int64_t count) = {
    [DTYPE_F32] = nonfinite_f32,
    [DTYPE_F64] = nonfinite_f64,
    [DTYPE_F16] = nonfinite_f16,
    [DTYPE_BF16] = nonfinite_bf16,
};

bool elements_finite(DType dtype, const void *data, int64_t count) {
    return !FIND_NONFINITE[dtype] || !FIND_NONFINITE[dtype](data, count);
}

int64_t tensor_find_nonfinite(const Tensor *tensor) {
    if (tensor->buf && dtype_is_quantised(tensor->dtype))
        return quantised_find_nonfinite(tensor);
    if (!tensor->buf || !FIND_NONFINITE[tensor->dtype]) return -1;
    bool (*find)(const char *, int64_t) = FIND_NONFINITE[tensor->dtype];
    int64_t count = tensor_count(tensor);
    for (int64_t first = 0; first < count; first += BLOCK) {
        int64_t length = count - first < BLOCK ? count - first : BLOCK;
        if (!find(elements_at(tensor, first, length), length)) continue;
        while (!find(elements_at(tensor, first, 1), 1)) first++;
        return first;
    }
    return -1;
}
