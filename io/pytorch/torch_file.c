/* Torch file: see torch_file.h. The list of storages, the layout as a zip archive, the
 * layout as a stream. */
#include "io/pytorch/torch_file.h"

#include "io/files/file.h"
#include "io/pytorch/pickle.h"
#include "io/pytorch/zip.h"

#include <stdlib.h>
#include <string.h>

static const char OBJECT_NAME[] = "/data.pkl";
static const int64_t STREAM_VERSION = 1001;

/* The number that streams begin with, 0x1950a86a20f9469cfc6c, little end first. */
static const unsigned char MAGIC[] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                      0x20, 0x6a, 0xa8, 0x50, 0x19};

enum { TAR_MAGIC_OFFSET = 257, PROBE_BYTES = 512 };

#define FAIL(file, name, ...)                                                            \
    diag_fail((file)->diag, STATUS_FORMAT, LOC_FILE((file)->path), name, __VA_ARGS__)

static const unsigned char *file_data(const TorchFile *file) {
    return buf_data(file->buf);
}

static bool is_tar(const unsigned char *data, size_t bytes) {
    return bytes >= TAR_MAGIC_OFFSET + 5 &&
           memcmp(data + TAR_MAGIC_OFFSET, "ustar", 5) == 0;
}

static bool is_pickle(const unsigned char *data, size_t bytes) {
    return bytes >= 2 && data[0] == 0x80 && data[1] >= 2 && data[1] <= 5;
}

bool torch_file_probe(const char *path) {
    unsigned char head[PROBE_BYTES];
    const size_t bytes = file_start(head, sizeof head, path);
    return zip_probe(head, bytes) || is_pickle(head, bytes) || is_tar(head, bytes);
}

/* --- storages --- */

static int part_order(const void *a, const void *b) {
    return strcmp(((const TorchPart *)a)->key, ((const TorchPart *)b)->key);
}

static TorchPart *find_part(const TorchFile *file, const char *key) {
    const TorchPart wanted = {.key = key};
    return file->part_count == 0 ? NULL
                                 : bsearch(&wanted, file->parts, (size_t)file->part_count,
                                           sizeof wanted, part_order);
}

/* Lists the storages that the object tells of, each key once. */
static Status list_parts(TorchFile *file, const PickleSource *source) {
    int count = 0, kept = 0;
    for (const PickleStorage *s = source->storages; s; s = s->next) count++;
    TorchPart *parts = ARENA_ARRAY(file->arena, TorchPart, (size_t)count);
    count = 0;
    for (const PickleStorage *s = source->storages; s; s = s->next)
        parts[count++] = (TorchPart){.key = s->key, .dtype = s->dtype, .whole = s->whole};
    if (count > 0) qsort(parts, (size_t)count, sizeof *parts, part_order);
    for (int i = 0; i < count; i++) {
        const TorchPart *last = kept > 0 ? &parts[kept - 1] : NULL;
        if (last && strcmp(last->key, parts[i].key) == 0) {
            if (last->dtype == parts[i].dtype && last->whole == parts[i].whole) continue;
            return FAIL(file, source->name,
                        "storage '%.100s' is told of as %s[%lld] and as %s[%lld]",
                        last->key, dtype_name(last->dtype), (long long)last->whole,
                        dtype_name(parts[i].dtype), (long long)parts[i].whole);
        }
        parts[kept++] = parts[i];
    }
    file->parts = parts;
    file->part_count = kept;
    return STATUS_OK;
}

/* Sizes passed shape_size when the pickle was read. */
static size_t part_bytes(const TorchPart *part) {
    return (size_t)part->whole * dtype_bytes(part->dtype);
}

Status torch_file_bytes(TorchFile *file, const PickleStorage *storage, Buf **buf,
                        size_t *offset) {
    TorchPart *part = find_part(file, storage->key);
    const size_t bytes = part_bytes(part);
    const unsigned char *data = file_data(file) + part->offset;
    *buf = file->buf;
    *offset = part->offset;
    if (bytes > 0 && (uintptr_t)data % dtype_bytes(part->dtype) != 0) {
        void *copy;
        if (!part->aligned.buf) {
            TRY(tensor_create(&part->aligned, part->dtype, 1, &part->whole, file->diag));
            TRY(tensor_writable(&part->aligned, &copy, file->diag));
            memcpy(copy, data, bytes);
        }
        *buf = part->aligned.buf;
        *offset = 0;
    }
    *offset += (size_t)storage->offset * dtype_bytes(storage->dtype);
    return STATUS_OK;
}

void torch_file_close(TorchFile *file) {
    for (int i = 0; i < file->part_count; i++) tensor_release(&file->parts[i].aligned);
    buf_release(file->buf);
}

/* --- the zip archive --- */

/* The folder of the archive, with its '/': that of the one data.pkl. */
static Status find_folder(const TorchFile *file, const Zip *zip, const char **folder) {
    const size_t tail = strlen(OBJECT_NAME);
    *folder = NULL;
    for (int i = 0; i < zip->count; i++) {
        const char *name = zip->entries[i].name, *slash = strchr(name, '/');
        if (!slash || strcmp(slash, OBJECT_NAME) != 0) continue;
        if (*folder) return FAIL(file, name, "expected one data.pkl, found two");
        *folder = arena_strndup(file->arena, name, strlen(name) - tail + 1);
    }
    if (*folder) return STATUS_OK;
    FAIL(file, NULL, "expected an archive of torch.save with a data.pkl, found none");
    return STATUS_FORMAT;
}

static const ZipEntry *find_entry(const TorchFile *file, const Zip *zip,
                                  const char *folder, const char *name) {
    return zip_find(zip, arena_printf(file->arena, "%s%s", folder, name));
}

/* What is an archive of PyTorch and yet cannot be read. */
static Status check_kind(const TorchFile *file, const Zip *zip, const char *folder) {
    const ZipEntry *order = find_entry(file, zip, folder, "byteorder");
    if (find_entry(file, zip, folder, "constants.pkl")) {
        FAIL(file, NULL, "expected the weights of a model, found a TorchScript program");
        diag_hint(file->diag, "save the weights alone: torch.save(torch.jit.load(path)"
                              ".state_dict(), path)");
        return STATUS_FORMAT;
    }
    if (order &&
        (order->bytes != 6 || memcmp(file_data(file) + order->offset, "little", 6) != 0))
        return FAIL(file, order->name, "expected numbers with their little end first");
    return STATUS_OK;
}

static Status place_parts(TorchFile *file, const Zip *zip, const char *folder) {
    for (int i = 0; i < file->part_count; i++) {
        TorchPart *part = &file->parts[i];
        const char *name = arena_printf(file->arena, "data/%s", part->key);
        const ZipEntry *entry = find_entry(file, zip, folder, name);
        if (!entry)
            return FAIL(file, name, "the archive lacks the bytes of this storage");
        if (entry->bytes != part_bytes(part))
            return FAIL(file, entry->name, "%s[%lld] needs %zu bytes, found %zu",
                        dtype_name(part->dtype), (long long)part->whole, part_bytes(part),
                        entry->bytes);
        part->offset = entry->offset;
    }
    return STATUS_OK;
}

static Status read_archive(TorchFile *file) {
    Zip zip;
    const char *folder;
    TRY(zip_read(&zip, file->arena, &file->buf, file->path, file->diag));
    TRY(find_folder(file, &zip, &folder));
    TRY(check_kind(file, &zip, folder));
    const ZipEntry *object = find_entry(file, &zip, folder, "data.pkl");
    PickleSource source = {.data = file_data(file) + object->offset,
                           .length = object->bytes,
                           .base = object->offset,
                           .path = file->path,
                           .name = object->name,
                           .arena = file->arena,
                           .diag = file->diag};
    const size_t checked = object->bytes < PICKLE_BYTES_MAX ? object->bytes : 0;
    if (checked && zip_crc(source.data, checked) != object->crc)
        diag_warn(file->diag, LOC_FILE(file->path), object->name,
                  "the archive says another checksum: the file may be damaged");
    TRY(pickle_read(&file->root, &source, NULL));
    TRY(list_parts(file, &source));
    return place_parts(file, &zip, folder);
}

/* --- the stream --- */

/* Reads the stream's next pickle. */
static Status next_pickle(TorchFile *file, PickleSource *source, size_t *at,
                          const PickleValue **out) {
    size_t used;
    *source = (PickleSource){.data = file_data(file) + *at,
                             .length = buf_bytes(file->buf) - *at,
                             .base = *at,
                             .path = file->path,
                             .arena = file->arena,
                             .diag = file->diag};
    TRY(pickle_read(out, source, &used));
    *at += used;
    return STATUS_OK;
}

static Status check_head(TorchFile *file, const PickleValue *version,
                         const PickleValue *system) {
    const PickleValue *little = pickle_get(system, "little_endian");
    if (version->kind != PICKLE_INT || version->integer != STREAM_VERSION)
        return FAIL(file, NULL, "expected version %lld of torch.save's stream",
                    (long long)STREAM_VERSION);
    if (!little || little->kind != PICKLE_BOOL || !little->boolean)
        return FAIL(file, NULL, "expected numbers with their little end first");
    return STATUS_OK;
}

/* The bytes of a storage: its number of elements, then those. Moves `at` behind them. */
static Status place_part(TorchFile *file, const char *key, size_t *at) {
    TorchPart *part = find_part(file, key);
    const size_t left = buf_bytes(file->buf) - *at;
    if (!part || part->found)
        return FAIL(file, NULL, "storage '%.100s' is listed %s", key,
                    part ? "twice" : "and no tensor looks at it");
    uint64_t count = 0;
    for (int i = 0; i < 8 && left >= 8; i++)
        count |= (uint64_t)file_data(file)[*at + (size_t)i] << (8 * i);
    if (left < 8 || left - 8 < part_bytes(part))
        return FAIL(file, NULL,
                    "storage '%.100s' of %zu bytes goes beyond the file's end", key,
                    part_bytes(part));
    if (count != (uint64_t)part->whole)
        return FAIL(file, NULL, "storage '%.100s': expected %lld elements, found %llu",
                    key, (long long)part->whole, (unsigned long long)count);
    part->offset = *at + 8;
    part->found = true;
    *at = part->offset + part_bytes(part);
    return STATUS_OK;
}

static Status place_stream(TorchFile *file, const PickleValue *keys, size_t at) {
    for (size_t i = 0; keys->kind == PICKLE_LIST && i < keys->list.count; i++) {
        const PickleValue *key = keys->list.items[i];
        if (key->kind != PICKLE_TEXT)
            return FAIL(file, NULL, "expected a list of the storages' keys");
        TRY(place_part(file, arena_strndup(file->arena, key->text.text, key->text.length),
                       &at));
    }
    for (int i = 0; i < file->part_count; i++)
        if (!file->parts[i].found)
            return FAIL(file, NULL, "the bytes of storage '%.100s' are missing",
                        file->parts[i].key);
    if (at != buf_bytes(file->buf))
        return FAIL(file, NULL, "%zu bytes after the last storage",
                    buf_bytes(file->buf) - at);
    return STATUS_OK;
}

static Status read_stream(TorchFile *file) {
    const PickleValue *magic, *version, *system, *keys;
    PickleSource source, object;
    size_t at = 0;
    TRY(next_pickle(file, &source, &at, &magic));
    if (magic->kind != PICKLE_LONG || magic->text.length != sizeof MAGIC ||
        memcmp(magic->text.text, MAGIC, sizeof MAGIC) != 0)
        return FAIL(file, NULL, "expected a file of torch.save, found another pickle");
    TRY(next_pickle(file, &source, &at, &version));
    TRY(next_pickle(file, &source, &at, &system));
    TRY(check_head(file, version, system));
    TRY(next_pickle(file, &object, &at, &file->root));
    TRY(next_pickle(file, &source, &at, &keys));
    TRY(list_parts(file, &object));
    return place_stream(file, keys, at);
}

Status torch_file_open(TorchFile *file, Arena *arena, const char *path, Diag *diag) {
    *file = (TorchFile){.arena = arena, .path = path, .diag = diag};
    TRY(file_map(&file->buf, path, diag));
    const size_t bytes = buf_bytes(file->buf);
    if (zip_probe(file_data(file), bytes)) return read_archive(file);
    if (is_pickle(file_data(file), bytes)) return read_stream(file);
    if (is_tar(file_data(file), bytes)) {
        FAIL(file, NULL,
             "tar files, as PyTorch wrote them before version 0.2, are not "
             "read");
        diag_hint(diag, "load it with PyTorch and save it again");
        return STATUS_FORMAT;
    }
    return FAIL(file, NULL, "expected a file of torch.save, found something else");
}
