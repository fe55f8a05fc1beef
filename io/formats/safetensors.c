/* safetensors: reading one file. Writing is in io/formats/safetensors_write.c, folders
 * and shards in io/formats/checkpoint.c. */
#include "io/formats/safetensors.h"

#include "io/files/file.h"
#include "io/files/json.h"

#include <stdlib.h>
#include <string.h>

static const size_t HEADER_BYTES_MAX = 100000000;
enum { LENGTH_BYTES = 8 };

/* One tensor as the header tells it; begin and end count from the start of the data. */
typedef struct ByteRange {
    const char *name;
    DType dtype;
    int rank;
    int64_t dim[RANK_MAX];
    size_t begin, end;
} ByteRange;

typedef struct Source {
    const char *path;
    Buf *buf;
    size_t header_bytes, data_bytes;
    ByteRange *spans;
    int count;
    Diag *diag;
} Source;

#define FAIL(source, name, ...)                                                          \
    diag_fail((source)->diag, STATUS_FORMAT, LOC_FILE((source)->path), name, __VA_ARGS__)

static bool parse_dtype(const char *text, DType *out) {
    static const struct {
        const char *name;
        DType dtype;
    } NAMES[] = {{"F64", DTYPE_F64},   {"F32", DTYPE_F32}, {"F16", DTYPE_F16},
                 {"BF16", DTYPE_BF16}, {"I64", DTYPE_I64}, {"I32", DTYPE_I32},
                 {"I8", DTYPE_I8},     {"U8", DTYPE_U8},   {"BOOL", DTYPE_BOOL}};
    for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
        if (strcmp(text, NAMES[i].name) != 0) continue;
        *out = NAMES[i].dtype;
        return true;
    }
    return false;
}

/* Checks the length before the header, and that the header is where it says. */
static Status check_length(Source *source) {
    size_t bytes = buf_bytes(source->buf);
    const unsigned char *data = buf_data(source->buf);
    if (bytes < LENGTH_BYTES)
        return FAIL(source, NULL, "expected a safetensors file, found only %zu bytes",
                    bytes);
    uint64_t length = 0;
    for (int i = 0; i < LENGTH_BYTES; i++) length |= (uint64_t)data[i] << (8 * i);
    if (length > HEADER_BYTES_MAX)
        return FAIL(source, NULL, "expected a header of at most %zu bytes, found %llu",
                    HEADER_BYTES_MAX, (unsigned long long)length);
    if (length > bytes - LENGTH_BYTES)
        return FAIL(source, NULL, "the header of %llu bytes goes beyond the file's %zu",
                    (unsigned long long)length, bytes);
    if (length == 0 || data[LENGTH_BYTES] != '{')
        return FAIL(source, NULL, "expected a header that starts with '{'");
    source->header_bytes = (size_t)length;
    source->data_bytes = bytes - LENGTH_BYTES - (size_t)length;
    return STATUS_OK;
}

static Status parse_shape(const Source *source, const Tree *shape, ByteRange *span) {
    if (shape->count > RANK_MAX)
        return FAIL(source, span->name, "expected at most %d dimensions, found %d",
                    RANK_MAX, shape->count);
    for (const Tree *dim = shape->first; dim; dim = dim->next) {
        if (dim->kind != TREE_INT || dim->integer < 0)
            return FAIL(source, span->name, "shape: expected integers >= 0");
        span->dim[span->rank++] = dim->integer;
    }
    return STATUS_OK;
}

static Status parse_offsets(const Source *source, const Tree *offsets, ByteRange *span) {
    const Tree *begin = offsets->first;
    if (offsets->count != 2 || begin->kind != TREE_INT || begin->next->kind != TREE_INT)
        return FAIL(source, span->name, "data_offsets: expected two integers");
    int64_t first = begin->integer, last = begin->next->integer;
    if (first < 0 || last < first || (uint64_t)last > source->data_bytes)
        return FAIL(source, span->name,
                    "data_offsets: expected a range within 0 and %zu, found [%lld, %lld]",
                    source->data_bytes, (long long)first, (long long)last);
    span->begin = (size_t)first;
    span->end = (size_t)last;
    return STATUS_OK;
}

static Status check_size(const Source *source, const ByteRange *span) {
    size_t bytes;
    char text[SHAPE_TEXT_BYTES];
    if (!shape_size(span->dtype, span->rank, span->dim, NULL, &bytes))
        return FAIL(source, span->name, "the shape %s is too large",
                    shape_text(text, span->rank, span->dim));
    if (bytes != span->end - span->begin)
        return FAIL(source, span->name, "%s%s needs %zu bytes, found %zu",
                    dtype_name(span->dtype), shape_text(text, span->rank, span->dim),
                    bytes, span->end - span->begin);
    return STATUS_OK;
}

static Status parse_span(const Source *source, const Tree *entry, ByteRange *span) {
    const Tree *dtype = tree_get(entry, "dtype"), *shape = tree_get(entry, "shape"),
               *offsets = tree_get(entry, "data_offsets");
    span->name = entry->key;
    if (!dtype || dtype->kind != TREE_STRING || !shape || shape->kind != TREE_LIST ||
        !offsets || offsets->kind != TREE_LIST || entry->count != 3)
        return FAIL(source, span->name,
                    "expected a map of dtype, shape and data_offsets, and nothing else");
    if (!parse_dtype(dtype->string, &span->dtype))
        return FAIL(source, span->name, "unknown dtype '%.20s'", dtype->string);
    TRY(parse_shape(source, shape, span));
    TRY(parse_offsets(source, offsets, span));
    return check_size(source, span);
}

static Status check_metadata(const Source *source, const Tree *metadata) {
    bool good = metadata->kind == TREE_MAP;
    for (const Tree *item = metadata->first; good && item; item = item->next)
        good = item->kind == TREE_STRING;
    if (good) return STATUS_OK;
    return FAIL(source, metadata->key, "expected a map of strings");
}

static Status parse_spans(Source *source, Arena *arena) {
    const char *text = (const char *)buf_data(source->buf) + LENGTH_BYTES;
    Tree *header;
    TRY(json_parse(&header, arena, source->path, text, source->header_bytes,
                   source->diag));
    source->spans = ARENA_ARRAY(arena, ByteRange, (size_t)header->count);
    for (const Tree *entry = header->first; entry; entry = entry->next) {
        if (strcmp(entry->key, "__metadata__") == 0)
            TRY(check_metadata(source, entry));
        else
            TRY(parse_span(source, entry, &source->spans[source->count++]));
    }
    return STATUS_OK;
}

static int span_by_offset(const void *a, const void *b) {
    const ByteRange *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Every byte of the data belongs to exactly one tensor. */
static Status check_cover(const Source *source) {
    if (source->count)
        qsort(source->spans, (size_t)source->count, sizeof(ByteRange), span_by_offset);
    size_t end = 0;
    for (int i = 0; i < source->count; i++) {
        const ByteRange *span = &source->spans[i];
        if (span->begin != end)
            return FAIL(source, span->name,
                        "data_offsets: expected to start at %zu, found "
                        "%zu: tensors must not overlap or leave holes",
                        end, span->begin);
        end = span->end;
    }
    if (end != source->data_bytes)
        return FAIL(source, NULL, "%zu bytes after the last tensor",
                    source->data_bytes - end);
    return STATUS_OK;
}

/* View of the mapped file; a copy where the data is not aligned to its type. */
static Status bind_tensor(const Source *source, const ByteRange *span, Tensor *out) {
    size_t offset = LENGTH_BYTES + source->header_bytes + span->begin;
    size_t bytes = span->end - span->begin;
    const char *data = (const char *)buf_data(source->buf) + offset;
    if (bytes && (uintptr_t)data % dtype_bytes(span->dtype) != 0) {
        void *copy;
        TRY(tensor_create(out, span->dtype, span->rank, span->dim, source->diag));
        TRY(tensor_writable(out, &copy, source->diag));
        memcpy(copy, data, bytes);
        return STATUS_OK;
    }
    *out = tensor_shape(span->dtype, span->rank, span->dim);
    out->buf = buf_retain(source->buf);
    out->offset = bytes ? offset : 0;
    return STATUS_OK;
}

static int tensor_by_name(const void *a, const void *b) {
    return strcmp(((const NamedTensor *)a)->name, ((const NamedTensor *)b)->name);
}

static Status bind_tensors(const Source *source, Checkpoint *checkpoint) {
    checkpoint->tensors =
        ARENA_ARRAY(checkpoint->arena, NamedTensor, (size_t)source->count);
    for (int i = 0; i < source->count; i++) {
        NamedTensor *named = &checkpoint->tensors[checkpoint->count++];
        named->name = arena_strdup(checkpoint->arena, source->spans[i].name);
        TRY(bind_tensor(source, &source->spans[i], &named->tensor));
    }
    if (source->count)
        qsort(checkpoint->tensors, (size_t)source->count, sizeof(NamedTensor),
              tensor_by_name);
    return STATUS_OK;
}

static Status source_read(Source *source, Arena *scratch, Checkpoint *checkpoint) {
    TRY(check_length(source));
    TRY(parse_spans(source, scratch));
    TRY(check_cover(source));
    return bind_tensors(source, checkpoint);
}

Status safetensors_read(Checkpoint **out, const char *path, Diag *diag) {
    Source source = {.path = path, .diag = diag};
    TRY(file_map(&source.buf, path, diag));
    Arena *arena = arena_create(), *scratch = arena_create();
    Checkpoint *checkpoint = ARENA_NEW(arena, Checkpoint);
    *checkpoint = (Checkpoint){.arena = arena, .path = arena_strdup(arena, path)};
    Status status = source_read(&source, scratch, checkpoint);
    arena_destroy(scratch);
    buf_release(source.buf);
    if (status == STATUS_OK)
        *out = checkpoint;
    else
        checkpoint_destroy(checkpoint);
    return status;
}

void checkpoint_destroy(Checkpoint *checkpoint) {
    if (!checkpoint) return;
    for (int i = 0; i < checkpoint->count; i++)
        tensor_release(&checkpoint->tensors[i].tensor);
    arena_destroy(checkpoint->arena);
}

const Tensor *checkpoint_find(const Checkpoint *checkpoint, const char *name) {
    NamedTensor wanted = {.name = name};
    if (checkpoint->count == 0) return NULL;
    const NamedTensor *found =
        bsearch(&wanted, checkpoint->tensors, (size_t)checkpoint->count, sizeof wanted,
                tensor_by_name);
    return found ? &found->tensor : NULL;
}
