/* Files of a net: see net_files.h. */
#include "io/onnx/net/net_files.h"

#include "io/files/file.h"

#include <stdlib.h>
#include <string.h>

/* A file's mapping. */
typedef struct NetFile {
    const char *location; /* of external data; "" = a file of messages */
    Buf *map;
} NetFile;

/* Where a tensor with external data has its bytes. */
typedef struct NetPlace {
    const OnnxTensor *tensor;
    int file;
    size_t offset;
} NetPlace;

struct NetFiles {
    OnnxFile parsed[2]; /* the model, and the encoder where that is a file of its own */
    int parsed_count;
    NetFile *files;
    int count, capacity;
    NetPlace *places; /* sorted by tensor once all are there */
    int place_count, place_capacity;
};

/* ---- shapes ---- */

static const int64_t ELEMENTS_MAX = (int64_t)1 << 40;

bool net_shape_count(const int64_t *dim, size_t rank, int64_t *count) {
    int64_t all = 1;
    if (rank > NET_RANK_MAX) return false;
    for (size_t i = 0; i < rank; i++) {
        if (dim[i] < 0 || dim[i] > ELEMENTS_MAX) return false;
        if (dim[i] > 0 && all > ELEMENTS_MAX / dim[i]) return false;
        all *= dim[i];
    }
    if (count) *count = all;
    return true;
}

size_t net_element_bytes(int32_t type) {
    static const unsigned char BYTES[] = {0, 4, 1, 1, 2, 2, 4, 8, 0,
                                          1, 2, 8, 4, 8, 0, 0, 2};
    return type >= 0 && type < (int32_t)sizeof BYTES ? BYTES[type] : 0;
}

size_t net_list_length(const OnnxTensor *tensor) {
    switch (tensor->data_type) {
    case ONNX_F32: return tensor->n_float_data;
    case ONNX_F64: return tensor->n_double_data;
    case ONNX_I64: return tensor->n_int64_data;
    case ONNX__TENSOR_PROTO__DATA_TYPE__UINT32:
    case ONNX__TENSOR_PROTO__DATA_TYPE__UINT64: return tensor->n_uint64_data;
    default: return tensor->n_int32_data;
    }
}

/* ---- bytes ---- */

bool net_is_external(const OnnxTensor *tensor) {
    return tensor->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

static int place_order(const void *a, const void *b) {
    const OnnxTensor *x = ((const NetPlace *)a)->tensor,
                     *y = ((const NetPlace *)b)->tensor;
    return x < y ? -1 : x > y;
}

const void *net_bytes(const Net *net, const OnnxTensor *tensor, Buf **map) {
    const NetFiles *files = net->files;
    *map = NULL;
    if (!net_is_external(tensor)) {
        const char *raw = tensor->has_raw_data ? (char *)tensor->raw_data.data : NULL;
        for (int i = 0; i < files->count; i++) {
            const char *start = buf_data(files->files[i].map);
            const char *end = start + buf_bytes(files->files[i].map);
            if (raw >= start && raw < end) *map = files->files[i].map;
        }
        return raw;
    }
    const NetPlace wanted = {.tensor = tensor};
    const NetPlace *place = bsearch(&wanted, files->places, (size_t)files->place_count,
                                    sizeof wanted, place_order);
    *map = files->files[place->file].map;
    return (const char *)buf_data(*map) + place->offset;
}

bool net_view(Tensor *out, const Net *net, const OnnxTensor *tensor) {
    Buf *map;
    const char *bytes = net_bytes(net, tensor, &map);
    if (!bytes || !map || (uintptr_t)bytes % dtype_bytes(out->dtype) != 0) return false;
    out->buf = buf_retain(map);
    out->offset = (size_t)(bytes - (const char *)buf_data(map));
    return true;
}

int64_t net_file_bytes(const Net *net) {
    int64_t bytes = 0;
    for (int i = 0; i < net->files->count; i++)
        bytes += (int64_t)buf_bytes(net->files->files[i].map);
    return bytes;
}

static void *grown(void *items, int count, int *capacity, size_t size) {
    if (count < *capacity) return items;
    *capacity = *capacity ? 2 * *capacity : 16;
    return memory_grow(items, (size_t)*capacity, size);
}

/* Maps a file beside the model, once; the model's folder is all that it may lie in. */
static Status map_external(Net *net, const char *location, int *out, Loc at, Diag *diag) {
    NetFiles *files = net->files;
    const char *folder = path_folder(net->arena, net->path);
    if (!*location || *location == '/' || strstr(location, ".."))
        return diag_fail(diag, STATUS_FORMAT, at, location,
                         "expected external data in the model's folder");
    for (int i = 0; i < files->count; i++)
        if (strcmp(files->files[i].location, location) == 0) return *out = i, STATUS_OK;
    const char *path = path_join(net->arena, folder, location);
    TRY(path_check_inside(folder, path, diag));
    files->files = grown(files->files, files->count, &files->capacity, sizeof(NetFile));
    NetFile *file = &files->files[files->count];
    TRY(file_map(&file->map, path, diag));
    file->location = location;
    *out = files->count++;
    return STATUS_OK;
}

/* A decimal number of external data; false when it is none, or too large. */
static bool read_size(const char *text, size_t *out) {
    char *end;
    if (!text || *text < '0' || *text > '9') return false;
    const unsigned long long value = strtoull(text, &end, 10);
    *out = (size_t)value;
    return *end == '\0' && value <= (unsigned long long)ELEMENTS_MAX * 8;
}

static Status place_external(Net *net, const OnnxTensor *tensor, size_t bytes, Loc at,
                             Diag *diag) {
    const char *location = NULL;
    size_t offset = 0, length = bytes;
    bool good = true;
    for (size_t i = 0; i < tensor->n_external_data; i++) {
        const OnnxEntry *entry = tensor->external_data[i];
        const char *key = entry->key ? entry->key : "";
        if (strcmp(key, "location") == 0) location = entry->value;
        if (strcmp(key, "offset") == 0) good &= read_size(entry->value, &offset);
        if (strcmp(key, "length") == 0) good &= read_size(entry->value, &length);
    }
    if (!location || !good || length != bytes)
        return diag_fail(diag, STATUS_FORMAT, at, tensor->name,
                         "expected external data with a location, an offset and a length "
                         "of %zu bytes",
                         bytes);
    NetPlace place = {.tensor = tensor, .offset = offset};
    TRY(map_external(net, location, &place.file, at, diag));
    NetFiles *files = net->files;
    const size_t end = buf_bytes(files->files[place.file].map);
    if (offset > end || bytes > end - offset)
        return diag_fail(diag, STATUS_FORMAT, at, tensor->name,
                         "expected %zu bytes from byte %zu of '%s', which has %zu", bytes,
                         offset, location, end);
    files->places =
        grown(files->places, files->place_count, &files->place_capacity, sizeof place);
    files->places[files->place_count++] = place;
    return STATUS_OK;
}

Status net_files_check(Net *net, const OnnxTensor *tensor, Loc at, Diag *diag) {
    const size_t each = net_element_bytes(tensor->data_type);
    int64_t count;
    if (!net_shape_count(tensor->dims, tensor->n_dims, &count))
        return diag_fail(diag, STATUS_FORMAT, at, tensor->name,
                         "expected at most %d dimensions of at least 0 whose product "
                         "fits, found %zu dimensions",
                         NET_RANK_MAX, tensor->n_dims);
    if (!each)
        return diag_fail(diag, STATUS_FORMAT, at, tensor->name,
                         "expected a tensor of numbers, found data type %d",
                         (int)tensor->data_type);
    if (net_is_external(tensor))
        return place_external(net, tensor, (size_t)count * each, at, diag);
    const size_t bytes =
        tensor->has_raw_data ? tensor->raw_data.len : net_list_length(tensor) * each;
    if (bytes != (size_t)count * each)
        return diag_fail(diag, STATUS_FORMAT, at, tensor->name,
                         "its shape asks for %zu bytes, found %zu", (size_t)count * each,
                         bytes);
    return STATUS_OK;
}

void net_files_sort(Net *net) {
    NetFiles *files = net->files;
    if (files->place_count > 0)
        qsort(files->places, (size_t)files->place_count, sizeof(NetPlace), place_order);
}

/* ---- files ---- */

NetFiles *net_files_create(Arena *arena) {
    return ARENA_NEW(arena, NetFiles);
}

Status net_files_open(Net *net, const char *path, const OnnxModel **out, Diag *diag) {
    NetFiles *files = net->files;
    OnnxFile *parsed = &files->parsed[files->parsed_count];
    files->files = grown(files->files, files->count, &files->capacity, sizeof(NetFile));
    NetFile *file = &files->files[files->count];
    *file = (NetFile){.location = ""};
    TRY(file_map(&file->map, path, diag));
    files->count++;
    TRY(onnx_parse(parsed, buf_data(file->map), buf_bytes(file->map), LOC_FILE(path),
                   diag));
    files->parsed_count++;
    *out = parsed->model;
    return STATUS_OK;
}

void net_files_close(NetFiles *files) {
    for (int i = 0; i < files->parsed_count; i++) onnx_release(&files->parsed[i]);
    for (int i = 0; i < files->count; i++) buf_release(files->files[i].map);
    free(files->files);
    free(files->places);
}
