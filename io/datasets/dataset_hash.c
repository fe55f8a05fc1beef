/* Data sets: the hash of their files. See io/datasets/dataset_hash.h. */
#include "io/datasets/dataset_hash.h"

#include "io/files/file.h"
#include "io/formats/assets.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Folders within a folder of data: the format with most has two. */
#define DEPTH_MAX 8

/* Options whose files are the data themselves, and not what it is read with. */
static const char *const DATA_OPTIONS[] = {"path", "files", "images", "labels"};

/* A hash being made: a line for each file, which is hashed at last. */
typedef struct FileHashes {
    Arena *arena;
    Text lines;
} FileHashes;

/* Adds a file under a name that does not depend on where it lies. */
static Status add_file(FileHashes *hashes, const char *name, const char *path,
                       Diag *diag) {
    char hash[HASH_TEXT_BYTES];
    TRY(file_hash(path, hash, diag));
    text_quoted(&hashes->lines, name);
    text_add(&hashes->lines, " %s\n", hash);
    return STATUS_OK;
}

/* For scandir: what a folder has besides itself and the one it lies in; their order. */
static int is_member(const struct dirent *entry) {
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int name_order(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Adds all files of a folder; pipes and devices are no data. */
static Status add_folder(FileHashes *hashes, const char *name, const char *path,
                         int depth, Diag *diag) {
    struct dirent **found = NULL;
    const int count = scandir(path, &found, is_member, name_order);
    if (count < 0)
        return diag_fail(diag, STATUS_IO, LOC_FILE(path), NULL,
                         "cannot list the folder: %s", strerror(errno));
    Status status = STATUS_OK;
    for (int i = 0; i < count; i++) {
        const char *below = path_join(hashes->arena, path, found[i]->d_name);
        const char *called = arena_printf(hashes->arena, "%s/%s", name, found[i]->d_name);
        if (status == STATUS_OK && path_is_file(below))
            status = add_file(hashes, called, below, diag);
        else if (status == STATUS_OK && path_is_folder(below) && depth < DEPTH_MAX)
            status = add_folder(hashes, called, below, depth + 1, diag);
        free(found[i]);
    }
    free(found);
    return status;
}

/* Adds a file and those that readers look for beside it, or these alone of a folder. */
static Status add_known(FileHashes *hashes, const char *name, const char *path,
                        Diag *diag) {
    const bool is_folder = path_is_folder(path);
    const char *folder = is_folder ? path : path_folder(hashes->arena, path);
    if (!is_folder) TRY(add_file(hashes, name, path, diag));
    for (const AssetKind *kind = asset_kinds; kind->name; kind++) {
        const char *beside = path_join(hashes->arena, folder, kind->name);
        const char *called = arena_printf(hashes->arena, "%s/%s", name, kind->name);
        if (kind->read && path_is_file(beside))
            TRY(add_file(hashes, called, beside, diag));
    }
    return STATUS_OK;
}

static bool is_data(const char *option) {
    for (size_t i = 0; i < sizeof DATA_OPTIONS / sizeof *DATA_OPTIONS; i++)
        if (strcmp(DATA_OPTIONS[i], option) == 0) return true;
    return false;
}

/* Adds what an option names; several paths are told apart by their order. */
static Status add_option(FileHashes *hashes, const Field *field, const void *options,
                         Diag *diag) {
    const char *at = (const char *)options + field->offset;
    StringList list = {(const char **)at, 1};
    if (field->kind == FIELD_STRINGS) list = *(const StringList *)at;
    for (int i = 0; i < list.count; i++) {
        const char *path = list.items[i];
        const char *name = arena_printf(hashes->arena, "%s.%d", field->name, i);
        if (!path) continue;
        if (!is_data(field->name))
            TRY(add_known(hashes, name, path, diag));
        else if (path_is_folder(path))
            TRY(add_folder(hashes, name, path, 0, diag));
        else
            TRY(add_file(hashes, name, path, diag));
    }
    return STATUS_OK;
}

Status dataset_hash(char out[HASH_TEXT_BYTES], const DataFormat *format,
                    const void *options, Diag *diag) {
    FileHashes hashes = {.arena = arena_create()};
    Status status = STATUS_OK;
    for (const Field *field = format->fields; field->name; field++)
        if (status == STATUS_OK && dataset_is_path(format, field->name))
            status = add_option(&hashes, field, options, diag);
    bytes_hash(hashes.lines.data, hashes.lines.length, out);
    text_free(&hashes.lines);
    arena_destroy(hashes.arena);
    return status;
}
