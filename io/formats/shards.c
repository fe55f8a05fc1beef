/* Shards: the files that hold a folder's tensors. See shards.h. */
#include "io/formats/shards.h"

#include "io/files/file.h"
#include "io/files/json.h"
#include "io/formats/safetensors.h"
#include "io/pytorch/pytorch.h"
#include "ir/text.h"

#include <stdlib.h>
#include <string.h>

static const size_t INDEX_BYTES_MAX = (size_t)64 << 20;

/* Files that hold a folder's tensors: one, or shards with an index. The first kind that
 * is there is read. */
typedef struct WeightFiles {
    const char *single, *index;
    Status (*read)(Checkpoint **out, const char *path, Diag *diag);
} WeightFiles;

static const WeightFiles KINDS[] = {
    {"model.safetensors", "model.safetensors.index.json", safetensors_read},
    {"pytorch_model.bin", "pytorch_model.bin.index.json", pytorch_read}};

/* One line of the index: which file holds a tensor. */
typedef struct IndexEntry {
    const char *tensor, *shard;
    bool found;
} IndexEntry;

typedef struct ShardIndex {
    Arena *arena; /* of the places; freed when all is read */
    const char *folder, *path;
    const WeightFiles *files;
    IndexEntry *places; /* sorted by tensor */
    int count;
    Diag *diag;
} ShardIndex;

static int place_by_tensor(const void *a, const void *b) {
    return strcmp(((const IndexEntry *)a)->tensor, ((const IndexEntry *)b)->tensor);
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
    qsort(shards, (size_t)index->count, sizeof *shards, text_order);
    for (int i = 0; i < index->count; i++) {
        Checkpoint *from;
        if (i > 0 && strcmp(shards[i], shards[i - 1]) == 0) continue;
        const char *path = path_join(index->arena, index->folder, shards[i]);
        TRY(path_check_inside(index->folder, path, index->diag));
        TRY(index->files->read(&from, path, index->diag));
        Status status = shard_take(index, shards[i], from, into);
        into->file_bytes += from->file_bytes;
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
    Checkpoint *checkpoint = checkpoint_create(index->path, index->count);
    Status status = shards_read(index, checkpoint);
    if (status != STATUS_OK) {
        checkpoint_destroy(checkpoint);
        return status;
    }
    checkpoint_sort(checkpoint);
    *out = checkpoint;
    return STATUS_OK;
}

static Status folder_read(Checkpoint **out, Arena *arena, const char *folder,
                          Diag *diag) {
    for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++) {
        const WeightFiles *files = &KINDS[i];
        const char *single = path_join(arena, folder, files->single);
        const char *path = path_join(arena, folder, files->index);
        ShardIndex index = {
            .arena = arena, .folder = folder, .path = path, .files = files, .diag = diag};
        if (path_is_file(single)) {
            TRY(path_check_inside(folder, single, diag));
            return files->read(out, single, diag);
        }
        if (path_is_file(path)) return sharded_read(out, &index);
    }
    return diag_fail(diag, STATUS_IO, LOC_FILE(folder), NULL,
                     "expected model.safetensors or pytorch_model.bin, or the index of "
                     "their shards, in the folder, found neither");
}

Status checkpoint_read(Checkpoint **out, const char *folder, Diag *diag) {
    Arena *arena = arena_create();
    const Status status = folder_read(out, arena, folder, diag);
    arena_destroy(arena);
    return status;
}

Status checkpoint_read_path(Checkpoint **out, const char *path, const char *from,
                            Diag *diag) {
    if (pytorch_probe(path)) return pytorch_read_from(out, path, from, diag);
    if (from)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), from,
                         "expected a file of PyTorch, which has a dict under this key");
    return path_is_folder(path) ? checkpoint_read(out, path, diag)
                                : safetensors_read(out, path, diag);
}
