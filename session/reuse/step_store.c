/* The folder of finished steps: entries, models, and what goes when there are too many.
 */
#include "session/reuse/step_store.h"

#include "io/files/file.h"
#include "io/files/json.h"
#include "io/formats/modelfile.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ENTRY_LIMIT ((size_t)64 << 20)
#define STALE_SECONDS                                                                    \
    ((time_t)24 * 60 * 60) /* age of unfinished files that are removed */

static const char STEPS[] = "steps", MODELS[] = "models", LOCK[] = "lock";

/* ---- paths ---- */

static const char *store_path(const StepStore *store, Arena *arena, const char *part,
                              const char *name, const char *ending) {
    return arena_printf(arena, "%s/%s/%s%s", store->folder, part, name, ending);
}

/* Makes a file one that was used now. */
static bool touch(const char *path) {
    return utimensat(AT_FDCWD, path, NULL, 0) == 0 || path_is_file(path);
}

Status step_store_open(StepStore **out, const char *folder, int64_t limit, bool create,
                       Diag *diag) {
    if (create) TRY(path_make_folder(folder, diag));
    if (!path_is_folder(folder))
        return diag_fail(diag, STATUS_IO, LOC_FILE(folder), NULL,
                         "expected a folder, found %s",
                         access(folder, F_OK) == 0 ? "something else" : "nothing");
    Arena *arena = arena_create();
    StepStore *store = ARENA_NEW(arena, StepStore);
    *store = (StepStore){arena, arena_strdup(arena, folder), limit};
    *out = store;
    return STATUS_OK;
}

void step_store_close(StepStore *store) {
    if (store) arena_destroy(store->arena);
}

/* ---- entries ---- */

/* Hash over what an entry's file holds beside its hash. */
static void entry_hash(const Tree *file, char out[HASH_TEXT_BYTES]) {
    Text text = {0};
    tree_print_json(&text, tree_get(file, "parts"), 0);
    text_add(&text, "\n");
    tree_print_json(&text, tree_get(file, "entry"), 0);
    bytes_hash(text.data, text.length, out);
    text_free(&text);
}

static Status entry_read(StepEntry *entry, const Tree **parts, Arena *arena,
                         const char *path, Diag *diag) {
    Tree *file = NULL;
    char hash[HASH_TEXT_BYTES];
    TRY(json_read(&file, arena, path, ENTRY_LIMIT, diag));
    const Tree *told = tree_get(file, "hash");
    if (!tree_get(file, "parts") || !tree_get(file, "entry") || !told ||
        told->kind != TREE_STRING)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                         "expected a map with hash, parts and entry");
    entry_hash(file, hash);
    if (strcmp(hash, told->string) != 0)
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                         "the hash is that of other content");
    if (parts) *parts = tree_get(file, "parts");
    return step_entry_read(entry, tree_get(file, "entry"), diag);
}

/* Tells why a file cannot be used, and makes room for a sound one; nothing where another
 * program has removed it. */
static void leave_out(const char *path, const char *what, Diag *own, Diag *diag) {
    if (access(path, F_OK) != 0) return;
    if (diag_status(own) == STATUS_FORMAT) unlink(path);
    diag_take_warnings(diag, own, what);
}

bool step_store_find(StepStore *store, const char *key, Arena *arena, StepEntry *entry,
                     const Tree **parts, Diag *diag) {
    const char *path = store_path(store, arena, STEPS, key, ".json");
    if (access(path, F_OK) != 0) return false;
    Diag *own = diag_create();
    const bool found = entry_read(entry, parts, arena, path, own) == STATUS_OK;
    if (found)
        touch(path);
    else
        leave_out(path, "a kept step is left out", own, diag);
    diag_destroy(own);
    return found;
}

/* Ends a write: what failed is told to `diag`, and no warning of `own`. That others write
 * the same entry at the same time is what a store is for. */
static Status end_write(Status status, Diag *own, Diag *diag) {
    if (status != STATUS_OK) diag_take(diag, own);
    diag_destroy(own);
    return status;
}

Status step_store_put(StepStore *store, const char *key, const Tree *parts,
                      StepEntry *entry, Diag *diag) {
    Arena *arena = arena_create();
    Diag *own = diag_create();
    const char *path = store_path(store, arena, STEPS, key, ".json");
    Tree *file = tree_new(arena, TREE_MAP, LOC_NONE);
    char hash[HASH_TEXT_BYTES];
    Status status = STATUS_OK;
    if (!touch(path)) {
        tree_put(arena, file, "parts", tree_copy(arena, parts));
        tree_put(arena, file, "entry", step_entry_tree(arena, entry));
        entry_hash(file, hash);
        tree_put_string(arena, file, "hash", hash);
        status =
            path_make_folder(arena_printf(arena, "%s/%s", store->folder, STEPS), own);
        if (status == STATUS_OK) status = json_write(file, path, own);
    }
    arena_destroy(arena);
    return end_write(status, own, diag);
}

/* ---- models ---- */

/* Reads a model and compares its state with the one in its name. */
static Status model_read(Model **out, const char *path, const char *state,
                         const OpTable *ops, Diag *diag) {
    char found[HASH_TEXT_BYTES];
    TRY(modelfile_read(out, path, ops, true, diag));
    model_state_hash(*out, found);
    if (strcmp(found, state) == 0) return STATUS_OK;
    model_destroy(*out);
    *out = NULL;
    return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                     "the model is another one than its name says");
}

const char *step_store_model_path(const StepStore *store, Arena *arena,
                                  const char *state) {
    return store_path(store, arena, MODELS, state, ".h5");
}

Model *step_store_model(StepStore *store, const char *state, const OpTable *ops,
                        Diag *diag) {
    Arena *arena = arena_create();
    const char *path = step_store_model_path(store, arena, state);
    Model *model = NULL;
    Diag *own = diag_create();
    if (touch(path) && model_read(&model, path, state, ops, own) != STATUS_OK)
        leave_out(path, "a kept model is left out", own, diag);
    diag_destroy(own);
    arena_destroy(arena);
    return model;
}

Status step_store_put_model(StepStore *store, const char *state, Model *model,
                            Diag *diag) {
    Arena *arena = arena_create();
    const char *path = step_store_model_path(store, arena, state);
    Diag *own = diag_create();
    Status status = STATUS_OK;
    if (!touch(path)) {
        Model *kept = model_state_copy(model);
        status =
            path_make_folder(arena_printf(arena, "%s/%s", store->folder, MODELS), own);
        if (status == STATUS_OK) status = modelfile_write(kept, path, NULL, own);
        model_destroy(kept);
    }
    arena_destroy(arena);
    return end_write(status, own, diag);
}

/* ---- removing ---- */

/* Whether a file is ours by its name: a hash, then something that is no letter or digit.
 * Nobody else's files are removed from a folder that somebody took for a store. */
static bool is_ours(const char *name) {
    const size_t length = strspn(name, "0123456789abcdef");
    return length == HASH_TEXT_BYTES - 1 && (name[length] == '.' || name[length] == '-');
}

typedef struct StoredFile {
    const char *path;
    struct timespec used;
    int64_t bytes;
} StoredFile;

typedef struct StoredFiles {
    Arena *arena;
    StoredFile *items;
    int count, capacity;
    int64_t bytes;
} StoredFiles;

static void files_add(StoredFiles *files, const char *path, const struct stat *info) {
    if (files->count == files->capacity) {
        const int capacity = files->capacity ? 2 * files->capacity : 64;
        StoredFile *items = ARENA_ARRAY(files->arena, StoredFile, (size_t)capacity);
        if (files->count)
            memcpy(items, files->items, (size_t)files->count * sizeof *items);
        files->items = items;
        files->capacity = capacity;
    }
    files->items[files->count++] = (StoredFile){path, info->st_mtim, info->st_size};
    files->bytes += info->st_size;
}

/* Collects our files in one folder; unfinished ones that nobody has written to for
 * `stale` seconds are removed. */
static void files_collect(StoredFiles *files, const char *path, time_t stale) {
    DIR *folder = opendir(path);
    if (!folder) return;
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *name = entry->d_name, *file = path_join(files->arena, path, name);
        const bool unfinished = name[0] == '.' && is_ours(name + 1);
        struct stat info;
        if (!unfinished && !is_ours(name)) continue;
        if (lstat(file, &info) != 0 || !S_ISREG(info.st_mode)) continue;
        if (!unfinished)
            files_add(files, file, &info);
        else if (time(NULL) - info.st_mtime >= stale)
            unlink(file);
    }
    closedir(folder);
}

/* Oldest use first; of the same time, by name. */
static int use_order(const void *a, const void *b) {
    const StoredFile *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec) return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec)
        return x->used.tv_nsec < y->used.tv_nsec ? -1 : 1;
    return strcmp(x->path, y->path);
}

static void evict_oldest(const StepStore *store) {
    StoredFiles files = {.arena = arena_create()};
    files_collect(&files, path_join(files.arena, store->folder, STEPS), STALE_SECONDS);
    files_collect(&files, path_join(files.arena, store->folder, MODELS), STALE_SECONDS);
    if (files.count)
        qsort(files.items, (size_t)files.count, sizeof *files.items, use_order);
    for (int i = 0; i < files.count && files.bytes > store->limit; i++) {
        if (unlink(files.items[i].path) == 0) files.bytes -= files.items[i].bytes;
    }
    arena_destroy(files.arena);
}

void step_store_evict(StepStore *store) {
    if (store->limit <= 0) return;
    Arena *arena = arena_create();
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const int lock =
        open(path_join(arena, store->folder, LOCK), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock >= 0 && fcntl(lock, F_SETLK, &whole) == 0) evict_oldest(store);
    if (lock >= 0) close(lock);
    arena_destroy(arena);
}

void hashed_files_remove(const char *folder, const char *const *keep, int count) {
    StoredFiles files = {.arena = arena_create()};
    files_collect(&files, folder, 0);
    for (int i = 0; i < files.count; i++) {
        const char *name = strrchr(files.items[i].path, '/') + 1;
        bool wanted = false;
        for (int k = 0; k < count; k++)
            wanted |= strncmp(name, keep[k], HASH_TEXT_BYTES - 1) == 0;
        if (!wanted) unlink(files.items[i].path);
    }
    arena_destroy(files.arena);
}

void step_store_keep_models(StepStore *store, const char *const *states, int count) {
    Arena *arena = arena_create();
    hashed_files_remove(path_join(arena, store->folder, MODELS), states, count);
    arena_destroy(arena);
}

void step_store_clear(StepStore *store) {
    static const char *const parts[] = {STEPS, MODELS};
    Arena *arena = arena_create();
    for (int i = 0; i < 2; i++) {
        const char *folder = path_join(arena, store->folder, parts[i]);
        hashed_files_remove(folder, NULL, 0);
        rmdir(folder);
    }
    arena_destroy(arena);
}
