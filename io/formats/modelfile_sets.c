/* Native model file, data sets: a child walks the file with HDF5 and says where they lie;
 * the parent checks every word of that against its own mapping. */
#include "io/formats/modelfile_sets.h"
#include "io/files/sandbox.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef struct SetWalk {
    const char *path;
    const Buf *map;
    Arena *arena;
    SetTable *table;
    Diag *diag;
} SetWalk;

Status modelfile_damaged(const char *path, Diag *diag, const char *fmt, ...) {
    char line[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL, "%s", line);
}

const char *modelfile_link(Arena *arena, const char *storage) {
    Text text = {0};
    for (const char *c = storage; *c; c++) {
        bool escape = *c == '%' || *c == '/' || strcmp(storage, ".") == 0;
        if (escape)
            text_add(&text, "%%%02X", (unsigned)(unsigned char)*c);
        else
            text_bytes(&text, c, 1);
    }
    char *link = arena_strndup(arena, text.data ? text.data : "", text.length);
    text_free(&text);
    return link;
}

/* How a data set travels through the pipe; its group and name follow. */
typedef struct Record {
    uint32_t group_length, name_length; /* group 0 = the root */
    int32_t dtype, rank;
    int64_t dim[RANK_MAX];
    uint64_t offset, bytes;
} Record;

static void set_send(const Hdf5Set *set, void *state) {
    Record record = {.group_length = set->group ? (uint32_t)strlen(set->group) : 0,
                     .name_length = (uint32_t)strlen(set->name),
                     .dtype = (int32_t)set->dtype,
                     .rank = set->rank,
                     .offset = set->offset,
                     .bytes = set->bytes};
    memcpy(record.dim, set->dim, sizeof record.dim);
    text_bytes(state, (const char *)&record, sizeof record);
    if (set->group) text_bytes(state, set->group, record.group_length);
    text_bytes(state, set->name, record.name_length);
}

static bool walk_work(void *state, Text *reply) {
    const SetWalk *w = state;
    const Hdf5Source source = {buf_data(w->map), buf_bytes(w->map)};
    Text fault = {0};
    if (hdf5_walk(&source, set_send, reply, &fault)) return true;
    text_free(reply);
    *reply = fault;
    return false;
}

/* Checks one set against the mapping. */
static Status set_check(SetWalk *w, const Hdf5Set *set) {
    size_t bytes = 0, file = buf_bytes(w->map);
    if ((int)set->dtype < 0 || set->dtype >= DTYPE_COUNT || set->rank < 0 ||
        set->rank > RANK_MAX ||
        !shape_size(set->dtype, set->rank, set->dim, NULL, &bytes))
        return DAMAGED(w, "data set '%s' has an impossible shape", set->name);
    if (set->bytes != bytes || set->bytes > file || set->offset > file - set->bytes)
        return DAMAGED(w, "data set '%s' does not lie within the file", set->name);
    if (set->offset % dtype_bytes(set->dtype) != 0)
        return DAMAGED(w, "data set '%s' is not aligned", set->name);
    return STATUS_OK;
}

/* Takes the next set out of the reply and checks it. */
static Status set_receive(SetWalk *w, Hdf5Set *set, const char **at, const char *end) {
    Record record;
    size_t left = (size_t)(end - *at);
    if (left < sizeof record) return DAMAGED(w, "damaged HDF5 file (cut list)");
    memcpy(&record, *at, sizeof record);
    left -= sizeof record;
    if ((uint64_t)record.group_length + record.name_length > left)
        return DAMAGED(w, "damaged HDF5 file (cut list)");
    const char *group = *at + sizeof record, *name = group + record.group_length;
    *at = name + record.name_length;
    *set = (Hdf5Set){.name = arena_strndup(w->arena, name, record.name_length),
                     .dtype = (DType)record.dtype,
                     .rank = record.rank,
                     .offset = record.offset,
                     .bytes = record.bytes};
    memcpy(set->dim, record.dim, sizeof set->dim);
    if (record.group_length)
        set->group = arena_strndup(w->arena, group, record.group_length);
    return set_check(w, set);
}

static int set_by_offset(const void *a, const void *b) {
    const Hdf5Set *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->bytes == y->bytes ? 0 : x->bytes < y->bytes ? -1 : 1;
}

static int set_by_name(const void *a, const void *b) {
    const Hdf5Set *x = a, *y = b;
    int order = strcmp(x->group ? x->group : "", y->group ? y->group : "");
    return order ? order : strcmp(x->name, y->name);
}

static Status sets_check_overlap(SetWalk *w) {
    qsort(w->table->sets, (size_t)w->table->count, sizeof *w->table->sets, set_by_offset);
    uint64_t end = 0;
    for (int i = 0; i < w->table->count; i++) {
        const Hdf5Set *set = &w->table->sets[i];
        if (set->bytes == 0) continue;
        if (set->offset < end)
            return DAMAGED(w, "data set '%s' overlaps another", set->name);
        end = set->offset + set->bytes;
    }
    return STATUS_OK;
}

static Status sets_receive(SetWalk *w, const Text *reply) {
    const char *at = reply->data ? reply->data : "", *end = at + reply->length;
    size_t most = reply->length / sizeof(Record);
    w->table->sets = ARENA_ARRAY(w->arena, Hdf5Set, most + 1);
    while (at < end) TRY(set_receive(w, &w->table->sets[w->table->count++], &at, end));
    TRY(sets_check_overlap(w));
    qsort(w->table->sets, (size_t)w->table->count, sizeof *w->table->sets, set_by_name);
    return STATUS_OK;
}

/* The file's own idea of its layout and size: superblock version 2, 8-byte offsets and
 * lengths, base address 0, end of file (HDF5 File Format Specification, II.A). */
static Status check_superblock(SetWalk *w) {
    const uint8_t *head = buf_data(w->map);
    uint64_t base, end;
    if (buf_bytes(w->map) < 48 || memcmp(head, HDF5_SIGNATURE, 8) != 0)
        return DAMAGED(w, "expected a model file, found something else than HDF5");
    if (head[8] != 2 || head[9] != 8 || head[10] != 8)
        return DAMAGED(w, "an HDF5 file, but not one that this program wrote");
    memcpy(&base, head + 12, sizeof base);
    memcpy(&end, head + 28, sizeof end);
    if (base != 0 || end != buf_bytes(w->map))
        return DAMAGED(w, "the file holds %zu bytes, its header declares %llu",
                       buf_bytes(w->map), (unsigned long long)end);
    return STATUS_OK;
}

static Status file_walk(SetWalk *w) {
    size_t file = buf_bytes(w->map);
    SandboxLimits limits = {.cpu_seconds = 1 + (int)(file >> 28),
                            .wall_seconds = 60,
                            .memory = (size_t)256 << 20,
                            .reply = file + (1 << 20),
                            .closed = true};
    Text reply = {0};
    Status status = STATUS_OK;
    const SandboxEnd end = sandbox_run(&reply, walk_work, w, &limits);
    switch (end) {
    case SANDBOX_DONE: status = sets_receive(w, &reply); break;
    case SANDBOX_FAULT: status = DAMAGED(w, "%s", reply.data ? reply.data : "?"); break;
    case SANDBOX_DIED:
        status = sandbox_died(&reply, STATUS_FORMAT, LOC_FILE(w->path), "read", w->diag);
        break;
    case SANDBOX_LATE:
    case SANDBOX_MEMORY:
    case SANDBOX_NONE: status = sandbox_fail(end, LOC_FILE(w->path), "read", w->diag);
    }
    text_free(&reply);
    return status;
}

Status modelfile_sets(SetTable *out, Arena *arena, const char *path, const Buf *map,
                      Diag *diag) {
    SetWalk walk = {.path = path, .map = map, .arena = arena, .table = out, .diag = diag};
    *out = (SetTable){0};
    TRY(check_superblock(&walk));
    return file_walk(&walk);
}

const Hdf5Set *sets_find(const SetTable *table, const char *group, const char *name) {
    Hdf5Set key = {.group = group, .name = name};
    return bsearch(&key, table->sets, (size_t)table->count, sizeof key, set_by_name);
}
