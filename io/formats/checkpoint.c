/* Checkpoint: the safetensors files of a folder, one or several shards with an index. */
#include "io/formats/safetensors.h"

#include "io/files/file.h"
#include "io/files/json.h"

#include <stdlib.h>
#include <string.h>

static const size_t INDEX_BYTES_MAX = (size_t)64 << 20;

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

static Status shard_read(ShardIndex *index, const char *shard, Checkpoint *into) {
    const char *path = path_join(index->arena, index->folder, shard);
    Checkpoint *from;
    TRY(path_check_inside(index->folder, path, index->diag));
    TRY(safetensors_read(&from, path, index->diag));
    Status status = shard_take(index, shard, from, into);
    checkpoint_destroy(from);
    return status;
}

static Status shards_read(ShardIndex *index, Checkpoint *into) {
    const char **shards = ARENA_ARRAY(index->arena, const char *, (size_t)index->count);
    for (int i = 0; i < index->count; i++) shards[i] = index->places[i].shard;
    qsort(shards, (size_t)index->count, sizeof *shards, name_order);
    for (int i = 0; i < index->count; i++)
        if (i == 0 || strcmp(shards[i], shards[i - 1]) != 0)
            TRY(shard_read(index, shards[i], into));
    for (int i = 0; i < index->count; i++)
        if (!index->places[i].found)
            return diag_fail(index->diag, STATUS_FORMAT, LOC_FILE(index->path),
                             index->places[i].tensor, "expected in %s, which lacks it",
                             index->places[i].shard);
    return STATUS_OK;
}

static int tensor_order(const void *a, const void *b) {
    return strcmp(((const NamedTensor *)a)->name, ((const NamedTensor *)b)->name);
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
          tensor_order);
    *out = checkpoint;
    return STATUS_OK;
}

static Status nothing_found(Arena *arena, const char *folder, Diag *diag) {
    diag_fail(diag, STATUS_IO, LOC_FILE(folder), NULL,
              "expected model.safetensors or model.safetensors.index.json in the folder, "
              "found neither");
    if (path_is_file(path_join(arena, folder, "pytorch_model.bin")))
        diag_hint(diag, "pytorch_model.bin is not read: save the model as safetensors");
    return STATUS_IO;
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
        status = nothing_found(arena, folder, diag);
    }
    arena_destroy(arena);
    return status;
}
