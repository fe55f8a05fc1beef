/* safetensors: reading one file; reading a folder, of one file or of shards with an
 * index; writing a file. */
#include "io/formats/safetensors.h"

#include "io/files/file.h"
#include "io/files/json.h"
#include "ir/text.h"

#include <stdlib.h>
#include <string.h>

static const size_t HEADER_BYTES_MAX = 100000000, INDEX_BYTES_MAX = (size_t)64 << 20;
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
    Diag *diag;
} Source;

#define FAIL(source, name, ...)                                                          \
    diag_fail((source)->diag, STATUS_FORMAT, LOC_FILE((source)->path), name, __VA_ARGS__)

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
    int type = 0;
    while (type < DTYPE_COUNT && strcmp(dtype->string, DTYPE_NAMES[type]) != 0) type++;
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

/* --- reading a folder --- */

/* One line of the index: which file holds a tensor. */
typedef struct IndexEntry {
    const char *tensor, *shard;
    bool found;
} IndexEntry;

typedef struct ShardIndex {
    Arena *arena; /* of the places; freed when all is read */
    const char *folder, *path;
    IndexEntry *places; /* sorted by tensor */
    int count;
    Diag *diag;
} ShardIndex;

static int place_by_tensor(const void *a, const void *b) {
    return strcmp(((const IndexEntry *)a)->tensor, ((const IndexEntry *)b)->tensor);
}

static int name_order(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Shards are plain names: nothing that could lead out of the folder. */
static Status check_shard(const ShardIndex *index, const Tree *item) {
    Loc at = LOC_FILE(index->path);
    if (item->kind != TREE_STRING)
        return diag_fail(index->diag, STATUS_FORMAT, at, item->key,
                         "expected a file name, found %s", tree_kind_name(item->kind));
    const char *name = item->string;
    if (!*name || strpbrk(name, "/\\") || !strcmp(name, ".") || !strcmp(name, ".."))
        return diag_fail(index->diag, STATUS_FORMAT, at, item->key,
                         "expected a plain file name, found '%.100s'", name);
    return STATUS_OK;
}

static Status index_read(ShardIndex *index) {
    Tree *root;
    TRY(path_check_inside(index->folder, index->path, index->diag));
    TRY(json_read(&root, index->arena, index->path, INDEX_BYTES_MAX, index->diag));
    const Tree *map = tree_get(root, "weight_map");
    if (!map || map->kind != TREE_MAP || map->count == 0)
        return diag_fail(index->diag, STATUS_FORMAT, LOC_FILE(index->path), "weight_map",
                         "expected a map from tensors to files");
    index->places = ARENA_ARRAY(index->arena, IndexEntry, (size_t)map->count);
    for (const Tree *item = map->first; item; item = item->next) {
        TRY(check_shard(index, item));
        index->places[index->count++] = (IndexEntry){item->key, item->string, false};
    }
    qsort(index->places, (size_t)index->count, sizeof(IndexEntry), place_by_tensor);
    return STATUS_OK;
}

/* Moves one shard's tensors into the checkpoint, checking that they belong there. */
static Status shard_take(ShardIndex *index, const char *shard, Checkpoint *from,
                         Checkpoint *into) {
    for (int i = 0; i < from->count; i++) {
        NamedTensor *named = &from->tensors[i];
        IndexEntry wanted = {.tensor = named->name};
        IndexEntry *place = bsearch(&wanted, index->places, (size_t)index->count,
                                    sizeof wanted, place_by_tensor);
        if (!place || strcmp(place->shard, shard) != 0)
            return diag_fail(index->diag, STATUS_FORMAT, LOC_FILE(from->path),
                             named->name, "the index says that this tensor is %s%s",
                             place ? "in " : "nowhere", place ? place->shard : "");
        place->found = true;
        NamedTensor *taken = &into->tensors[into->count++];
        taken->name = arena_strdup(into->arena, named->name);
        taken->tensor = tensor_retain(&named->tensor);
    }
    return STATUS_OK;
}

static Status shards_read(ShardIndex *index, Checkpoint *into) {
    const char **shards = ARENA_ARRAY(index->arena, const char *, (size_t)index->count);
    for (int i = 0; i < index->count; i++) shards[i] = index->places[i].shard;
    qsort(shards, (size_t)index->count, sizeof *shards, name_order);
    for (int i = 0; i < index->count; i++) {
        Checkpoint *from;
        if (i > 0 && strcmp(shards[i], shards[i - 1]) == 0) continue;
        const char *path = path_join(index->arena, index->folder, shards[i]);
        TRY(path_check_inside(index->folder, path, index->diag));
        TRY(safetensors_read(&from, path, index->diag));
        Status status = shard_take(index, shards[i], from, into);
        checkpoint_destroy(from);
        TRY(status);
    }
    for (int i = 0; i < index->count; i++)
        if (!index->places[i].found)
            return diag_fail(index->diag, STATUS_FORMAT, LOC_FILE(index->path),
                             index->places[i].tensor, "expected in %s, which lacks it",
                             index->places[i].shard);
    return STATUS_OK;
}

/* Reads the index and all shards. Each place is filled at most once, because names are
 * unique in the index and in each shard. */
static Status sharded_read(Checkpoint **out, ShardIndex *index) {
    TRY(index_read(index));
    Arena *arena = arena_create();
    Checkpoint *checkpoint = ARENA_NEW(arena, Checkpoint);
    *checkpoint = (Checkpoint){.arena = arena, .path = arena_strdup(arena, index->path)};
    checkpoint->tensors = ARENA_ARRAY(arena, NamedTensor, (size_t)index->count);
    Status status = shards_read(index, checkpoint);
    if (status != STATUS_OK) {
        checkpoint_destroy(checkpoint);
        return status;
    }
    qsort(checkpoint->tensors, (size_t)checkpoint->count, sizeof(NamedTensor),
          tensor_by_name);
    *out = checkpoint;
    return STATUS_OK;
}

Status checkpoint_read(Checkpoint **out, const char *folder, Diag *diag) {
    Arena *arena = arena_create();
    const char *single = path_join(arena, folder, "model.safetensors");
    const char *path = path_join(arena, folder, "model.safetensors.index.json");
    ShardIndex index = {.arena = arena, .folder = folder, .path = path, .diag = diag};
    Status status;
    if (path_is_file(single)) {
        status = path_check_inside(folder, single, diag);
        if (status == STATUS_OK) status = safetensors_read(out, single, diag);
    } else if (path_is_file(path)) {
        status = sharded_read(out, &index);
    } else {
        status = diag_fail(
            diag, STATUS_IO, LOC_FILE(folder), NULL,
            "expected model.safetensors or model.safetensors.index.json in the folder, "
            "found neither");
        if (path_is_file(path_join(arena, folder, "pytorch_model.bin")))
            diag_hint(diag,
                      "pytorch_model.bin is not read: save the model as safetensors");
    }
    arena_destroy(arena);
    return status;
}

/* --- writing --- */

/* The JSON header, padded with spaces so that the data starts at a multiple of 8. */
static void header_print(Text *text, const NamedTensor *tensors, int count) {
    size_t begin = 0;
    text_add(text, "{");
    for (int i = 0; i < count; i++) {
        const Tensor *tensor = &tensors[i].tensor;
        if (i) text_add(text, ",");
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

static Status file_put(OutFile *file, const Text *header, const NamedTensor *tensors,
                       int count, Diag *diag) {
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)header->length >> 8 * i);
    TRY(outfile_write(file, length, sizeof length, diag));
    TRY(outfile_write(file, header->data, header->length, diag));
    for (int i = 0; i < count; i++) {
        const Tensor *tensor = &tensors[i].tensor;
        TRY(outfile_write(file, tensor_data(tensor), tensor_bytes(tensor), diag));
    }
    return STATUS_OK;
}

static Status file_verify(const char *path, const NamedTensor *tensors, int count,
                          Diag *diag) {
    Checkpoint *back;
    Status status = STATUS_OK;
    TRY(safetensors_read(&back, path, diag));
    for (int i = 0; i < count && status == STATUS_OK; i++) {
        const Tensor *wanted = &tensors[i].tensor;
        const Tensor *found = checkpoint_find(back, tensors[i].name);
        const size_t bytes = tensor_bytes(wanted);
        if (!found || wanted->dtype != found->dtype ||
            !tensor_same_shape(wanted, found) ||
            (bytes > 0 && memcmp(tensor_data(wanted), tensor_data(found), bytes) != 0))
            status = diag_fail(diag, STATUS_IO, LOC_FILE(path), tensors[i].name,
                               "what was written does not read back equal");
    }
    checkpoint_destroy(back);
    return status;
}

Status safetensors_write(const char *path, const NamedTensor *tensors, int count,
                         Diag *diag) {
    for (int i = 0; i < count; i++)
        if (!tensors[i].tensor.buf)
            return diag_fail(diag, STATUS_MODEL, LOC_FILE(path), tensors[i].name,
                             "the tensor has no data to write");
    OutFile *file;
    const char *temporary;
    TRY(outfile_open(&file, &temporary, path, diag));
    Text header = {0};
    header_print(&header, tensors, count);
    Status status = file_put(file, &header, tensors, count, diag);
    text_free(&header);
    if (status == STATUS_OK) status = file_verify(temporary, tensors, count, diag);
    if (status == STATUS_OK) return outfile_commit(file, diag);
    outfile_abandon(file);
    return status;
}
