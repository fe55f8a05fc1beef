/* GGUF: reading the container. See gguf.h. */
#include "io/gguf/gguf.h"

#include "io/files/file.h"

#include <stdlib.h>
#include <string.h>

/* Least bytes of a pair (key length, kind, a byte) and of a tensor (name length, rank,
 * one dimension, type, offset), so that counts cannot ask for more than a file holds. */
enum { PAIR_BYTES = 13, TENSOR_BYTES = 32, NAME_BYTES_MAX = 512, STRING_BYTES = 8 };
enum { PAIRS_MAX = 1 << 16, TENSORS_MAX = 1 << 20 };
enum { ALIGNMENT = 32, ALIGNMENT_MAX = 1 << 20 };

static const char MAGIC[4] = {'G', 'G', 'U', 'F'};

/* What stands in the file: 0 = no fixed size. */
static const unsigned char KIND_BYTES[GGUF_KIND_COUNT] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2,  [GGUF_I16] = 2,    [GGUF_U32] = 4,
    [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_STRING] = 0, [GGUF_ARRAY] = 0,
    [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8};

/* A file being read: what is left of it. */
typedef struct Cursor {
    GgufFile *file;
    const unsigned char *at;
    size_t left;
    Diag *diag;
} Cursor;

#define FAIL(cursor, name, ...)                                                          \
    diag_fail((cursor)->diag, STATUS_FORMAT, LOC_FILE((cursor)->file->path), name,       \
              __VA_ARGS__)

static uint64_t take_bits(const unsigned char *data, int bytes) {
    uint64_t bits = 0;
    for (int i = 0; i < bytes; i++) bits |= (uint64_t)data[i] << (8 * i);
    return bits;
}

/* ---- pieces ---- */

static Status take_bytes(Cursor *in, const unsigned char **out, uint64_t bytes,
                         const char *what) {
    if (bytes > in->left)
        return FAIL(in, what, "expected %llu more bytes, found %zu before the end",
                    (unsigned long long)bytes, in->left);
    *out = in->at;
    in->at += bytes;
    in->left -= (size_t)bytes;
    return STATUS_OK;
}

static Status take_integer(Cursor *in, uint64_t *out, int bytes, const char *what) {
    const unsigned char *data = NULL;
    TRY(take_bytes(in, &data, (uint64_t)bytes, what));
    *out = take_bits(data, bytes);
    return STATUS_OK;
}

static Status take_string(Cursor *in, TextSpan *out, const char *what) {
    uint64_t length;
    const unsigned char *data = NULL;
    TRY(take_integer(in, &length, STRING_BYTES, what));
    TRY(take_bytes(in, &data, length, what));
    *out = (TextSpan){(const char *)data, (size_t)length};
    return STATUS_OK;
}

/* A key or a tensor's name: not empty, UTF-8, without NUL. */
static Status take_name(Cursor *in, const char **out, const char *what) {
    TextSpan span;
    TRY(take_string(in, &span, what));
    if (span.length == 0 || span.length > NAME_BYTES_MAX)
        return FAIL(in, what, "expected a name of 1 to %d bytes, found %zu",
                    NAME_BYTES_MAX, span.length);
    const char *name = arena_strndup(in->file->arena, span.text, span.length);
    if (strlen(name) != span.length || !utf8_is_valid(name))
        return FAIL(in, what, "expected a name in UTF-8");
    *out = name;
    return STATUS_OK;
}

/* How many there are: at most `most`, and `least` bytes of the file for each. */
static Status take_count(Cursor *in, int64_t *out, uint64_t least, uint64_t most,
                         const char *what) {
    uint64_t count;
    TRY(take_integer(in, &count, 8, what));
    if (count > most || count > in->left / least)
        return FAIL(
            in, what, "expected at most %llu, which there is room for, found %llu",
            (unsigned long long)(most < in->left / least ? most : in->left / least),
            (unsigned long long)count);
    *out = (int64_t)count;
    return STATUS_OK;
}

/* ---- pairs ---- */

static Status take_kind(Cursor *in, GgufKind *out, const char *key) {
    uint64_t kind;
    TRY(take_integer(in, &kind, 4, key));
    if (kind >= GGUF_KIND_COUNT)
        return FAIL(in, key, "expected a kind of value from 0 to %d, found %llu",
                    GGUF_KIND_COUNT - 1, (unsigned long long)kind);
    *out = (GgufKind)kind;
    return STATUS_OK;
}

static Status take_pair(Cursor *in, GgufPair *pair) {
    TRY(take_name(in, &pair->key, "key"));
    TRY(take_kind(in, &pair->kind, pair->key));
    pair->count = 1;
    pair->array = pair->kind == GGUF_ARRAY;
    if (pair->array) {
        TRY(take_kind(in, &pair->kind, pair->key));
        if (pair->kind == GGUF_ARRAY)
            return FAIL(in, pair->key,
                        "expected an array of numbers, flags or strings, "
                        "found one of arrays");
        const int bytes = KIND_BYTES[pair->kind];
        TRY(take_count(in, &pair->count, bytes ? (uint64_t)bytes : STRING_BYTES,
                       UINT64_MAX, pair->key));
    }
    if (pair->kind != GGUF_STRING)
        return take_bytes(in, &pair->data, (uint64_t)pair->count * KIND_BYTES[pair->kind],
                          pair->key);
    TextSpan *strings = ARENA_ARRAY(in->file->arena, TextSpan, (size_t)pair->count);
    for (int64_t i = 0; i < pair->count; i++)
        TRY(take_string(in, &strings[i], pair->key));
    pair->strings = strings;
    return STATUS_OK;
}

static int order_of_pairs(const void *a, const void *b) {
    return strcmp(((const GgufPair *)a)->key, ((const GgufPair *)b)->key);
}

static Status take_pairs(Cursor *in) {
    GgufFile *file = in->file;
    file->pairs = ARENA_ARRAY(file->arena, GgufPair, (size_t)file->pair_count);
    for (int64_t i = 0; i < file->pair_count; i++) TRY(take_pair(in, &file->pairs[i]));
    if (file->pair_count)
        qsort(file->pairs, (size_t)file->pair_count, sizeof(GgufPair), order_of_pairs);
    for (int64_t i = 1; i < file->pair_count; i++)
        if (strcmp(file->pairs[i].key, file->pairs[i - 1].key) == 0)
            return FAIL(in, file->pairs[i].key, "the key is there twice");
    return STATUS_OK;
}

const GgufPair *gguf_find(const GgufFile *file, const char *key) {
    const GgufPair wanted = {.key = key};
    return file->pair_count ? bsearch(&wanted, file->pairs, (size_t)file->pair_count,
                                      sizeof wanted, order_of_pairs)
                            : NULL;
}

bool gguf_integer(const GgufPair *pair, int64_t i, int64_t *out) {
    const GgufKind kind = pair->kind;
    if (kind == GGUF_STRING || kind == GGUF_F32 || kind == GGUF_F64) return false;
    const int bytes = KIND_BYTES[kind];
    uint64_t bits = take_bits(pair->data + i * bytes, bytes);
    const bool negative = bits >> (8 * bytes - 1);
    if (negative && kind == GGUF_U64) return false;
    const bool is_signed =
        kind == GGUF_I8 || kind == GGUF_I16 || kind == GGUF_I32 || kind == GGUF_I64;
    if (negative && is_signed && bytes < 8) bits |= UINT64_MAX << (8 * bytes);
    memcpy(out, &bits, sizeof bits);
    return true;
}

bool gguf_real(const GgufPair *pair, int64_t i, double *out) {
    int64_t integer;
    if (pair->kind == GGUF_F64) {
        const uint64_t bits = take_bits(pair->data + i * 8, 8);
        memcpy(out, &bits, sizeof bits);
        return true;
    }
    if (pair->kind == GGUF_F32) {
        const uint32_t bits = (uint32_t)take_bits(pair->data + i * 4, 4);
        float value;
        memcpy(&value, &bits, sizeof value);
        *out = value;
        return true;
    }
    if (!gguf_integer(pair, i, &integer)) return false;
    *out = (double)integer;
    return true;
}

/* ---- tensors ---- */

/* Dimensions, fastest first in the file, and the bytes that they need. */
static Status take_shape(Cursor *in, GgufTensor *tensor) {
    uint64_t rank, dim;
    int64_t count;
    size_t bytes;
    TRY(take_integer(in, &rank, 4, tensor->name));
    if (rank < 1 || rank > GGUF_RANK_MAX)
        return FAIL(in, tensor->name, "expected 1 to %d dimensions, found %llu",
                    GGUF_RANK_MAX, (unsigned long long)rank);
    tensor->rank = (int)rank;
    for (int i = tensor->rank - 1; i >= 0; i--) {
        TRY(take_integer(in, &dim, 8, tensor->name));
        if (dim < 1 || dim > INT64_MAX)
            return FAIL(in, tensor->name, "expected dimensions of at least 1, found %llu",
                        (unsigned long long)dim);
        tensor->dim[i] = (int64_t)dim;
    }
    if (!shape_size(DTYPE_F32, tensor->rank, tensor->dim, &count, &bytes))
        return FAIL(in, tensor->name, "the shape is too large");
    uint64_t type;
    TRY(take_integer(in, &type, 4, tensor->name));
    tensor->type = type <= UINT32_MAX ? block_type_by_id((uint32_t)type) : NULL;
    if (!tensor->type)
        return FAIL(in, tensor->name, "type %llu of tensors is not known",
                    (unsigned long long)type);
    if (tensor->dim[tensor->rank - 1] % tensor->type->values)
        return FAIL(in, tensor->name,
                    "%s: expected rows of whole blocks of %d, found "
                    "%lld numbers",
                    tensor->type->name, tensor->type->values,
                    (long long)tensor->dim[tensor->rank - 1]);
    /* a block has at most as many bytes as its numbers in f64, which count * 8 bounds */
    if (count > INT64_MAX / 8) return FAIL(in, tensor->name, "the shape is too large");
    tensor->bytes = (size_t)(count / tensor->type->values) * (size_t)tensor->type->bytes;
    return STATUS_OK;
}

static Status take_tensor(Cursor *in, GgufTensor *tensor, size_t alignment) {
    uint64_t offset;
    TRY(take_name(in, &tensor->name, "tensor"));
    TRY(take_shape(in, tensor));
    TRY(take_integer(in, &offset, 8, tensor->name));
    if (offset % alignment)
        return FAIL(in, tensor->name, "expected an offset that %zu divides, found %llu",
                    alignment, (unsigned long long)offset);
    if (offset > SIZE_MAX / 2) return FAIL(in, tensor->name, "the offset is too large");
    tensor->offset = (size_t)offset;
    return STATUS_OK;
}

static int order_of_offsets(const void *a, const void *b) {
    const GgufTensor *x = a, *y = b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static int order_of_tensors(const void *a, const void *b) {
    return strcmp(((const GgufTensor *)a)->name, ((const GgufTensor *)b)->name);
}

/* Data starts at a multiple of the alignment behind the list: tensors lie there, apart
 * from each other. */
static Status place_tensors(Cursor *in, size_t alignment) {
    GgufFile *file = in->file;
    const size_t whole = buf_bytes(file->buf), head = whole - in->left;
    const size_t start = (head + alignment - 1) / alignment * alignment;
    size_t end = 0; /* of the tensor before, from the start of the data */
    qsort(file->tensors, (size_t)file->tensor_count, sizeof(GgufTensor),
          order_of_offsets);
    for (int64_t i = 0; i < file->tensor_count; i++) {
        GgufTensor *tensor = &file->tensors[i];
        if (tensor->offset < end)
            return FAIL(in, tensor->name, "overlaps with '%s'", tensor[-1].name);
        if (start > whole || tensor->offset > whole - start ||
            tensor->bytes > whole - start - tensor->offset)
            return FAIL(in, tensor->name,
                        "expected %zu bytes at %zu, found %zu bytes of data",
                        tensor->bytes, tensor->offset, start > whole ? 0 : whole - start);
        end = tensor->offset + tensor->bytes;
        tensor->offset += start;
    }
    qsort(file->tensors, (size_t)file->tensor_count, sizeof(GgufTensor),
          order_of_tensors);
    for (int64_t i = 1; i < file->tensor_count; i++)
        if (strcmp(file->tensors[i].name, file->tensors[i - 1].name) == 0)
            return FAIL(in, file->tensors[i].name, "the tensor is there twice");
    return STATUS_OK;
}

static Status take_tensors(Cursor *in) {
    GgufFile *file = in->file;
    int64_t alignment = ALIGNMENT;
    const GgufPair *pair = gguf_find(file, "general.alignment");
    if (pair && (pair->array || !gguf_integer(pair, 0, &alignment) || alignment < 8 ||
                 alignment > ALIGNMENT_MAX || (alignment & (alignment - 1))))
        return FAIL(in, pair->key, "expected a power of two from 8 to %d", ALIGNMENT_MAX);
    file->tensors = ARENA_ARRAY(file->arena, GgufTensor, (size_t)file->tensor_count);
    for (int64_t i = 0; i < file->tensor_count; i++)
        TRY(take_tensor(in, &file->tensors[i], (size_t)alignment));
    return file->tensor_count ? place_tensors(in, (size_t)alignment) : STATUS_OK;
}

const GgufTensor *gguf_find_tensor(const GgufFile *file, const char *name) {
    const GgufTensor wanted = {.name = name};
    return file->tensor_count
               ? bsearch(&wanted, file->tensors, (size_t)file->tensor_count,
                         sizeof wanted, order_of_tensors)
               : NULL;
}

void gguf_rows(const GgufFile *file, const GgufTensor *tensor, int64_t first,
               int64_t count, float *out) {
    const int64_t width = tensor->dim[tensor->rank - 1];
    const size_t row =
        (size_t)(width / tensor->type->values) * (size_t)tensor->type->bytes;
    const unsigned char *data = buf_data(file->buf);
    blocks_decode(tensor->type, data + tensor->offset + (size_t)first * row, out,
                  count * width);
}

/* ---- the file ---- */

static Status take_file(Cursor *in) {
    const unsigned char *magic;
    uint64_t version;
    GgufFile *file = in->file;
    if (in->left < sizeof MAGIC || memcmp(in->at, MAGIC, sizeof MAGIC) != 0)
        return FAIL(in, NULL, "expected a GGUF file");
    TRY(take_bytes(in, &magic, sizeof MAGIC, NULL));
    TRY(take_integer(in, &version, 4, "version"));
    if (version != 2 && version != 3)
        return FAIL(in, "version", "expected version 2 or 3, little-endian, found %s",
                    version == 1           ? "version 1"
                    : version & 0xff000000 ? "another order of bytes"
                                           : "a later version");
    TRY(take_count(in, &file->tensor_count, TENSOR_BYTES, TENSORS_MAX,
                   "number of tensors"));
    TRY(take_count(in, &file->pair_count, PAIR_BYTES, PAIRS_MAX, "number of keys"));
    TRY(take_pairs(in));
    return take_tensors(in);
}

Status gguf_read(GgufFile **out, const char *path, Diag *diag) {
    Buf *buf;
    TRY(file_map(&buf, path, diag));
    Arena *arena = arena_create();
    GgufFile *file = ARENA_NEW(arena, GgufFile);
    *file = (GgufFile){.arena = arena, .path = arena_strdup(arena, path), .buf = buf};
    Cursor in = {file, buf_data(buf), buf_bytes(buf), diag};
    const Status status = take_file(&in);
    if (status == STATUS_OK)
        *out = file;
    else
        gguf_destroy(file);
    return status;
}

void gguf_destroy(GgufFile *file) {
    if (!file) return;
    buf_release(file->buf);
    arena_destroy(file->arena);
}

bool gguf_probe(const char *path) {
    char start[sizeof MAGIC];
    return file_start(start, sizeof start, path) == sizeof start &&
           memcmp(start, MAGIC, sizeof MAGIC) == 0;
}
