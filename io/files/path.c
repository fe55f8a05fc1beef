/* Paths: see path.h. */
#include "io/files/path.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

bool path_is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool path_is_file(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

bool path_has_ending(const char *path, const char *ending) {
    const size_t length = strlen(path), bytes = strlen(ending);
    return length >= bytes && strcasecmp(path + length - bytes, ending) == 0;
}

bool path_is_json_lines(const char *path) {
    return path_has_ending(path, ".jsonl") || path_has_ending(path, ".ndjson");
}

bool path_identify(FileIdentity *identity, const char *path) {
    struct stat info;
    *identity = (FileIdentity){0};
    if (lstat(path, &info) != 0) return false;
    *identity = (FileIdentity){info.st_dev, info.st_ino};
    return true;
}

static bool is_one(const FileIdentity *a, const FileIdentity *b) {
    return a->device == b->device && a->inode == b->inode;
}

bool path_same(const char *path, const FileIdentity *identity) {
    FileIdentity now;
    return path_identify(&now, path) && is_one(&now, identity);
}

FileState path_state(const char *path) {
    struct stat info;
    if (lstat(path, &info) != 0) return (FileState){0};
    return (FileState){{info.st_dev, info.st_ino}, info.st_size, info.st_mtim};
}

bool file_state_same(const FileState *a, const FileState *b) {
    return is_one(&a->identity, &b->identity) && a->bytes == b->bytes &&
           a->modified.tv_sec == b->modified.tv_sec &&
           a->modified.tv_nsec == b->modified.tv_nsec;
}

const char *path_join(Arena *arena, const char *folder, const char *name) {
    if (name[0] == '/') return arena_strdup(arena, name);
    size_t length = strlen(folder);
    const char *slash = length && folder[length - 1] != '/' ? "/" : "";
    return arena_printf(arena, "%s%s%s", folder, slash, name);
}

const char *path_folder(Arena *arena, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return ".";
    if (slash == path) return "/";
    return arena_strndup(arena, path, (size_t)(slash - path));
}

const char *path_trim(Arena *arena, const char *path) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    return arena_strndup(arena, path, length);
}

const char *path_base(Arena *arena, const char *path) {
    const char *trimmed = path_trim(arena, path), *slash = strrchr(trimmed, '/');
    const char *base = slash && slash[1] ? slash + 1 : trimmed;
    if (strcmp(base, ".") != 0 && strcmp(base, "..") != 0) return base;
    char *real = realpath(trimmed, NULL);
    slash = real ? strrchr(real, '/') : NULL;
    if (slash && slash[1]) base = arena_strdup(arena, slash + 1);
    free(real);
    return base;
}

Status path_make_folder(const char *path, Diag *diag) {
    Arena *arena = arena_create();
    const char *above = path_folder(arena, path);
    Status status = STATUS_OK;
    if (!path_is_folder(above) && strcmp(above, path) != 0)
        status = path_make_folder(above, diag);
    arena_destroy(arena);
    TRY(status);
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && path_is_folder(path)))
        return STATUS_OK;
    return diag_fail(diag, STATUS_IO, LOC_FILE(path), NULL, "cannot make the folder: %s",
                     strerror(errno == EEXIST ? ENOTDIR : errno));
}

/* Whether `path` lies below `folder`; both resolved. */
static bool path_below(const char *path, const char *folder) {
    size_t length = strlen(folder);
    if (strncmp(path, folder, length) != 0) return false;
    return path[length] == '/' || (length && folder[length - 1] == '/');
}

/* Replaces .../snapshots/<revision> by .../blobs; false when it is another folder. */
static bool path_to_blobs(char *folder) {
    char *slash = strrchr(folder, '/');
    if (!slash) return false;
    *slash = 0;
    slash = strrchr(folder, '/');
    if (!slash || strcmp(slash, "/snapshots") != 0) return false;
    strcpy(slash, "/blobs"); /* shorter than "/snapshots" */
    return true;
}

Status path_check_inside(const char *folder, const char *path, Diag *diag) {
    char *inner = realpath(path, NULL);
    if (!inner)
        return diag_fail(diag, STATUS_IO, LOC_FILE(path), NULL, "cannot open: %s",
                         strerror(errno));
    char *outer = realpath(folder, NULL);
    bool inside = outer && (path_below(inner, outer) ||
                            (path_to_blobs(outer) && path_below(inner, outer)));
    free(outer);
    free(inner);
    if (inside) return STATUS_OK;
    diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
              "expected a file inside the folder, found a link that leads out of it");
    diag_hint(diag, "replace the link by a copy of the file");
    return STATUS_FORMAT;
}
