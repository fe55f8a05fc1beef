/* safetensors: reading and writing a file. */
#include "io/formats/safetensors.h"

#include "io/files/file.h"
#include "io/files/json.h"
#include "ir/mapped.h"
#include "ir/text.h"

#include <stdlib.h>
#include <string.h>

static const size_t HEADER_BYTES_MAX = 100000000;
enum { LENGTH_BYTES = 8 };

static const char *const DTYPE_NAMES[DTYPE_COUNT] = {
    [DTYPE_F64] = "F64",   [DTYPE_F32] = "F32", [DTYPE_F16] = "F16",
    [DTYPE_BF16] = "BF16", [DTYPE_I64] = "I64", [DTYPE_I32] = "I32",
    [DTYPE_I8] = "I8",     [DTYPE_U8] = "U8",   [DTYPE_BOOL] = "BOOL"};

/* --- reading a file --- */

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
    const Tree *metadata;
    Diag *diag;
} Source;

#define FAIL(source, name, ...)                                                          \
    diag_fail((source)->diag, STATUS_FORMAT, LOC_FILE((source)->path), name, __VA_ARGS__)

/* How the text begins that stands for a large file in a Git repository. */
static const char LFS_POINTER[] = "version https://git-lfs";

/* Checks the length before the header, and that the header is where it says. */
static Status check_length(Source *source) {
    size_t bytes = buf_bytes(source->buf);
    const unsigned char *data = buf_data(source->buf);
    if (bytes < LENGTH_BYTES)
        return FAIL(source, NULL, "expected a safetensors file, found only %zu bytes",
                    bytes);
    if (bytes > sizeof LFS_POINTER &&
        memcmp(data, LFS_POINTER, sizeof LFS_POINTER - 1) == 0) {
        FAIL(source, NULL,
             "expected a safetensors file, found a pointer of Git LFS to one");
        diag_hint(source->diag, "`git lfs pull` in the folder brings the file");
        return STATUS_FORMAT;
    }
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
    int type = 0;
    while (type < DTYPE_COUNT &&
           (!DTYPE_NAMES[type] || strcmp(dtype->string, DTYPE_NAMES[type]) != 0))
        type++;
    span->dtype = (DType)type;
    if (type == DTYPE_COUNT)
        return FAIL(source, span->name, "unknown dtype '%.20s'", dtype->string);
    TRY(parse_shape(source, shape, span));
    TRY(parse_offsets(source, offsets, span));
    return check_size(source, span);
}

static Status parse_spans(Source *source, Arena *arena) {
    const char *text = (const char *)buf_data(source->buf) + LENGTH_BYTES;
    Tree *header;
    TRY(json_parse(&header, arena, source->path, text, source->header_bytes,
                   source->diag));
    source->spans = ARENA_ARRAY(arena, ByteRange, (size_t)header->count);
    for (const Tree *entry = header->first; entry; entry = entry->next) {
        if (strcmp(entry->key, "__metadata__") != 0) {
            TRY(parse_span(source, entry, &source->spans[source->count++]));
            continue;
        }
        bool strings = entry->kind == TREE_MAP;
        for (const Tree *item = entry->first; strings && item; item = item->next)
            strings = item->kind == TREE_STRING;
        if (!strings) return FAIL(source, entry->key, "expected a map of strings");
        source->metadata = entry;
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

static Status bind_tensors(const Source *source, Checkpoint *checkpoint) {
    const size_t data = LENGTH_BYTES + source->header_bytes;
    for (int i = 0; i < source->count; i++) {
        const ByteRange *span = &source->spans[i];
        NamedTensor *named = &checkpoint->tensors[checkpoint->count++];
        named->name = arena_strdup(checkpoint->arena, span->name);
        TRY(checkpoint_view(&named->tensor, source->buf, data + span->begin, span->dtype,
                            span->rank, span->dim, source->diag));
    }
    checkpoint_sort(checkpoint);
    return STATUS_OK;
}

static Status source_read(Source *source, Arena *scratch, Checkpoint **out) {
    TRY(check_length(source));
    TRY(parse_spans(source, scratch));
    TRY(check_cover(source));
    Checkpoint *checkpoint = checkpoint_create(source->path, source->count);
    checkpoint->file_bytes = (int64_t)buf_bytes(source->buf);
    if (source->metadata)
        checkpoint->metadata = tree_copy(checkpoint->arena, source->metadata);
    const Status status = bind_tensors(source, checkpoint);
    if (status == STATUS_OK)
        *out = checkpoint;
    else
        checkpoint_destroy(checkpoint);
    return status;
}

Status safetensors_read(Checkpoint **out, const char *path, Diag *diag) {
    Source source = {.path = path, .diag = diag};
    TRY(file_map(&source.buf, path, diag));
    Arena *scratch = arena_create();
    const Status status = source_read(&source, scratch, out);
    arena_destroy(scratch);
    buf_release(source.buf);
    return status;
}

/* --- writing --- */

/* The JSON header, padded with spaces so that the data starts at a multiple of 8. */
static void header_print(Text *text, const NamedTensor *tensors, int count,
                         const Tree *metadata) {
    size_t begin = 0;
    text_add(text, "{");
    if (metadata) {
        text_add(text, "\"__metadata__\":");
        tree_print_json(text, metadata, 0);
    }
    for (int i = 0; i < count; i++) {
        const Tensor *tensor = &tensors[i].tensor;
        if (i || metadata) text_add(text, ",");
        text_quoted(text, tensors[i].name);
        text_add(text, ":{\"dtype\":\"%s\",\"shape\":[", DTYPE_NAMES[tensor->dtype]);
        for (int d = 0; d < tensor->rank; d++)
            text_add(text, "%s%lld", d ? "," : "", (long long)tensor->dim[d]);
        size_t end = begin + tensor_bytes(tensor);
        text_add(text, "],\"data_offsets\":[%zu,%zu]}", begin, end);
        begin = end;
    }
    text_add(text, "}");
    while (text->length % 8) text_add(text, " ");
}

/* So many bytes are written before they are read back: what the kernel still has. */
#define STRETCH_BYTES ((size_t)64 << 20)

typedef struct SafetensorsFile {
    OutFile *file;
    const char *path, *temporary;
    const NamedTensor *tensors;
    int count;
    const Tree *metadata;
    Text header;
} SafetensorsFile;

static Status print_header(SafetensorsFile *f, Diag *diag) {
    text_free(&f->header);
    header_print(&f->header, f->tensors, f->count, f->metadata);
    if (f->header.length <= HEADER_BYTES_MAX) return STATUS_OK;
    return diag_fail(diag, STATUS_MODEL, LOC_FILE(f->path), NULL,
                     "expected a header of at most %zu bytes, found %zu",
                     HEADER_BYTES_MAX, f->header.length);
}

static Status put_header(SafetensorsFile *f, Diag *diag) {
    unsigned char length[LENGTH_BYTES];
    TRY(print_header(f, diag));
    for (int i = 0; i < LENGTH_BYTES; i++)
        length[i] = (unsigned char)((uint64_t)f->header.length >> 8 * i);
    TRY(outfile_write(f->file, length, sizeof length, diag));
    return outfile_write(f->file, f->header.data, f->header.length, diag);
}

/* Prints the header anew, of sealed metadata, over the first. */
static Status seal_header(SafetensorsFile *f, const SafetensorsSeal *seal, Diag *diag) {
    const size_t length = f->header.length;
    TRY(seal->put(seal->self, diag));
    TRY(print_header(f, diag));
    if (f->header.length != length)
        return diag_fail(diag, STATUS_INTERNAL, LOC_FILE(f->path), NULL,
                         "a header of %zu bytes has %zu when it is sealed", length,
                         f->header.length);
    return outfile_rewrite(f->file, LENGTH_BYTES, f->header.data, length, diag);
}

static Status put_piece(void *self, const void *piece, size_t bytes, Diag *diag) {
    return outfile_write(((SafetensorsFile *)self)->file, piece, bytes, diag);
}

static Status not_equal(const SafetensorsFile *f, const char *name, Diag *diag) {
    return diag_fail(diag, STATUS_IO, LOC_FILE(f->path), name,
                     "what was written does not read back equal");
}

/* Reads tensors [first, end) back, which lie in the file from `offset` on. */
static Status compare_stretch(const SafetensorsFile *f, int first, int end, size_t offset,
                              Diag *diag) {
    Buf *buf;
    TRY(file_map(&buf, f->temporary, diag));
    const size_t count = (size_t)(end - first);
    Tensor *views = memory_alloc(count, sizeof *views);
    const Tensor **all = memory_alloc(count, sizeof *all);
    Status status = STATUS_OK;
    for (size_t i = 0; i < count; i++) {
        const Tensor *wanted = &f->tensors[first + (int)i].tensor;
        views[i] = tensor_shape(wanted->dtype, wanted->rank, wanted->dim);
        views[i].offset = offset;
        offset += tensor_bytes(wanted);
        views[i].buf = offset <= buf_bytes(buf) ? buf : NULL;
        all[i] = &views[i];
    }
    tensors_read_mapped(all, (int)count);
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        const NamedTensor *wanted = &f->tensors[first + (int)i];
        if (!views[i].buf || !tensor_same_bytes(&wanted->tensor, &views[i]))
            status = not_equal(f, wanted->name, diag);
    }
    free(all);
    free(views);
    buf_release(buf);
    return status;
}

/* Writes all tensors, and reads them back right behind. */
static Status put_tensors(SafetensorsFile *f, Diag *diag) {
    size_t offset = LENGTH_BYTES + f->header.length, bytes = 0;
    for (int i = 0, first = 0; i < f->count; i++) {
        TRY(tensor_give_pieces(&f->tensors[i].tensor, put_piece, f, diag));
        bytes += tensor_bytes(&f->tensors[i].tensor);
        if (bytes < STRETCH_BYTES && i + 1 < f->count) continue;
        TRY(compare_stretch(f, first, i + 1, offset, diag));
        offset += bytes;
        bytes = 0;
        first = i + 1;
    }
    return STATUS_OK;
}

/* Reads the header back, which must be what was printed and say what readers believe. */
static Status compare_header(const SafetensorsFile *f, Diag *diag) {
    Checkpoint *back;
    Buf *buf;
    TRY(file_map(&buf, f->temporary, diag));
    const bool equal = buf_bytes(buf) >= LENGTH_BYTES + f->header.length &&
                       memcmp((const char *)buf_data(buf) + LENGTH_BYTES, f->header.data,
                              f->header.length) == 0;
    buf_release(buf);
    if (!equal) return not_equal(f, NULL, diag);
    TRY(safetensors_read(&back, f->temporary, diag));
    checkpoint_destroy(back);
    return STATUS_OK;
}

static Status put_file(SafetensorsFile *f, const SafetensorsSeal *seal, Diag *diag) {
    TRY(put_header(f, diag));
    TRY(put_tensors(f, diag));
    if (seal) TRY(seal_header(f, seal, diag));
    return compare_header(f, diag);
}

Status safetensors_write_sealed(const char *path, const NamedTensor *tensors, int count,
                                const Tree *metadata, const SafetensorsSeal *seal,
                                Diag *diag) {
    SafetensorsFile f = {
        .path = path, .tensors = tensors, .count = count, .metadata = metadata};
    for (int i = 0; i < count; i++)
        if (!tensors[i].tensor.buf)
            return diag_fail(diag, STATUS_MODEL, LOC_FILE(path), tensors[i].name,
                             "the tensor has no data to write");
    TRY(outfile_open(&f.file, &f.temporary, path, diag));
    const Status status = put_file(&f, seal, diag);
    text_free(&f.header);
    if (status == STATUS_OK) return outfile_commit(f.file, diag);
    outfile_abandon(f.file);
    return status;
}

Status safetensors_write(const char *path, const NamedTensor *tensors, int count,
                         Diag *diag) {
    return safetensors_write_sealed(path, tensors, count, NULL, NULL, diag);
}

Status safetensors_write_with(const char *path, const NamedTensor *tensors, int count,
                              const Tree *metadata, Diag *diag) {
    return safetensors_write_sealed(path, tensors, count, metadata, NULL, diag);
}
