/* OutFolder: a folder, written beside its target and renamed into place. */
#include "io/files/outfolder.h"

#include "io/files/file.h"
#include "io/files/unfinished.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RENAMES_MAX = 10 };

struct OutFolder {
    Arena *arena;
    const char *name; /* as it was given; both without a slash at the end */
    const char *path; /* without links */
    const char *parent, *base, *temporary;
    int lock; /* open file in the temporary folder that tells others that it is written */
    FileIdentity identity;
    int slot; /* of the temporary folder, among the unfinished ones */
    bool (*is_ours)(const char *name);
};

static bool is_entry(const char *name) {
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* Whether what a folder holds may go: it knows the names of all files, and of folders in
 * it with a slash behind them. `within`: the folder's own such name, "" for the target.
 */
static Status check_entries(const OutFolder *folder, Arena *scratch, const char *path,
                            const char *within, Diag *diag) {
    DIR *list = opendir(path);
    if (!list) return file_fail(path, "read the folder", errno, diag);
    Status status = STATUS_OK;
    for (struct dirent *entry; status == STATUS_OK && (entry = readdir(list));) {
        if (!is_entry(entry->d_name)) continue;
        struct stat info;
        const bool inner =
            fstatat(dirfd(list), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISDIR(info.st_mode);
        const char *name =
            arena_printf(scratch, "%s%s%s", within, entry->d_name, inner ? "/" : "");
        if (folder->is_ours(name)) {
            if (inner)
                status = check_entries(
                    folder, scratch, path_join(scratch, path, entry->d_name), name, diag);
            continue;
        }
        status = diag_fail(diag, STATUS_IO, LOC_FILE(folder->path), NULL,
                           "the folder holds '%s%.100s', which would be lost: expected a "
                           "new folder, or one with such an output and nothing else",
                           within, entry->d_name);
        diag_hint(diag, "name another folder, or move that file away");
    }
    closedir(list);
    return status;
}

/* Whether a file system begins at a folder: then nothing else can take its place. */
static bool is_mounted(Arena *scratch, const char *path, const struct stat *info) {
    struct stat above;
    return stat(path_join(scratch, path, ".."), &above) == 0 &&
           (above.st_dev != info->st_dev || above.st_ino == info->st_ino);
}

Status outfolder_check(const char *path, bool (*is_ours)(const char *name), Diag *diag) {
    const OutFolder folder = {.path = path, .is_ours = is_ours};
    struct stat info;
    if (stat(path, &info) != 0) return STATUS_OK;
    if (!S_ISDIR(info.st_mode))
        return diag_fail(diag, STATUS_IO, LOC_FILE(path), NULL,
                         "expected a folder to replace, found a file");
    Arena *scratch = arena_create();
    if (is_mounted(scratch, path, &info)) {
        arena_destroy(scratch);
        diag_fail(diag, STATUS_IO, LOC_FILE(path), NULL,
                  "expected a folder that can be replaced, found one where a file system "
                  "is mounted");
        diag_hint(diag, "name a folder in it");
        return STATUS_IO;
    }
    const Status status = check_entries(&folder, scratch, path, "", diag);
    arena_destroy(scratch);
    return status;
}

/* The mode of the folder that is to be replaced, with what writing into it needs. */
static mode_t mode_before(const OutFolder *folder) {
    struct stat info;
    const bool is_there = stat(folder->path, &info) == 0 && S_ISDIR(info.st_mode);
    return is_there ? (info.st_mode & 0777) | S_IRWXU : 0777;
}

Status outfolder_open(OutFolder **out, const char **temporary, const char *path,
                      bool (*is_ours)(const char *name), Diag *diag) {
    Arena *arena = arena_create();
    OutFolder *folder = ARENA_NEW(arena, OutFolder);
    char *resolved = realpath(path, NULL); /* a link stays one */
    const char *plain = path_trim(arena, resolved ? resolved : path);
    free(resolved);
    const char *slash = strrchr(plain, '/');
    *folder = (OutFolder){.arena = arena,
                          .name = path_trim(arena, path),
                          .path = plain,
                          .parent = path_folder(arena, plain),
                          .base = slash ? slash + 1 : plain,
                          .lock = -1,
                          .slot = -1,
                          .is_ours = is_ours};
    Status status = STATUS_OK;
    if (!folder->base[0] || !is_entry(folder->base))
        status = diag_fail(diag, STATUS_IO, LOC_FILE(path), NULL,
                           "expected the name of a folder");
    if (status == STATUS_OK) status = outfolder_check(folder->path, is_ours, diag);
    if (status == STATUS_OK) {
        unfinished_remove_stale(folder->parent, folder->base, path, diag);
        const int code =
            unfinished_make(&folder->temporary, &folder->lock, &folder->identity, arena,
                            folder->parent, folder->base, true, mode_before(folder));
        if (code != 0)
            status = file_fail(path, "create a temporary folder beside it", code, diag);
    }
    if (status != STATUS_OK) {
        arena_destroy(arena);
        return status;
    }
    folder->slot = unfinished_add(folder->temporary);
    *out = folder;
    *temporary = folder->temporary;
    return STATUS_OK;
}

static void measure(const char *path, int64_t *bytes, int *files) {
    DIR *list = opendir(path);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        struct stat info;
        if (!is_entry(entry->d_name) || strcmp(entry->d_name, UNFINISHED_LOCK) == 0 ||
            fstatat(dirfd(list), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (S_ISREG(info.st_mode)) {
            *bytes += info.st_size;
            ++*files;
        } else if (S_ISDIR(info.st_mode)) {
            Arena *scratch = arena_create();
            measure(path_join(scratch, path, entry->d_name), bytes, files);
            arena_destroy(scratch);
        }
    }
    if (list) closedir(list);
}

void outfolder_measure(const OutFolder *folder, int64_t *bytes, int *files) {
    *bytes = *files = 0;
    measure(folder->temporary, bytes, files);
}

/* Puts the temporary folder where the target is and the target where that was. Returns
 * errno's value, 0 = done. */
static int swap_folders(OutFolder *folder) {
    if (renameat2(AT_FDCWD, folder->temporary, AT_FDCWD, folder->path, RENAME_EXCHANGE) ==
        0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS) return errno;
    /* a file system without exchanges: for a moment there is none, and what was written
     * is all there is */
    unfinished_drop(folder->slot);
    folder->slot = -1;
    const char *old = arena_printf(folder->arena, "%s.old", folder->temporary);
    if (rename(folder->path, old) != 0) return errno;
    if (rename(folder->temporary, folder->path) != 0) {
        const int code = errno;
        rename(old, folder->path);
        return code;
    }
    rename(old, folder->temporary);
    return 0;
}

/* Removes what the folder was before. It is not in the way, so that this is no error; the
 * next program that writes there removes it. */
static void remove_earlier(OutFolder *folder, Diag *diag) {
    struct stat info;
    path_remove(folder->temporary);
    const int code = errno;
    if (lstat(folder->temporary, &info) == 0)
        diag_warn(diag, LOC_FILE(folder->path), NULL,
                  "what it held before is left beside it as %s: cannot remove it: %s",
                  folder->temporary, strerror(code));
}

/* Fails as the folder, which is complete, cannot be put in place: it stays beside that
 * under a name that can be found. */
static Status keep_complete(OutFolder *folder, int code, Diag *diag) {
    const Status status = file_fail(folder->path, "put the folder in place", code, diag);
    for (int i = 1; i <= RENAMES_MAX; i++) {
        const char *name = arena_printf(folder->arena, "%s.new%d", folder->path, i);
        if (renameat2(AT_FDCWD, folder->temporary, AT_FDCWD, name, RENAME_NOREPLACE) != 0)
            continue;
        diag_hint(diag, "what was written is there as %s", name);
        break;
    }
    return status;
}

/* Keeps the folder as private as the one that it replaces: it was made so, but for what
 * the process's mask took, writing needed and others have changed since. A confined
 * process does not get this. */
static void keep_mode(const OutFolder *folder) {
    struct stat info;
    const int fd = open(folder->temporary, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && stat(folder->path, &info) == 0) fchmod(fd, info.st_mode & 0777);
    if (fd >= 0) close(fd);
}

/* Another program may put its folder there, or take it away, at any moment. `is_swapped`:
 * whether what was there is now in the temporary's place. */
static Status rename_folder(OutFolder *folder, bool *is_swapped, Diag *diag) {
    int code = EEXIST;
    for (int i = 0; i < RENAMES_MAX; i++) {
        struct stat info;
        const bool is_there = lstat(folder->path, &info) == 0;
        if (is_there) {
            TRY(outfolder_check(folder->path, folder->is_ours,
                                diag)); /* it may have got files meanwhile */
            keep_mode(folder);
            code = swap_folders(folder);
        } else {
            code = rename(folder->temporary, folder->path) == 0 ? 0 : errno;
        }
        *is_swapped = code == 0 && is_there;
        if (code != EEXIST && code != ENOTEMPTY && code != ENOENT) break;
    }
    return code == 0 ? STATUS_OK : keep_complete(folder, code, diag);
}

/* Makes the names in an open folder durable; some file systems cannot, and say EINVAL. */
static bool folder_sync(int fd) {
    return fsync(fd) == 0 || errno == EINVAL;
}

/* The same of the folder at `path`. */
static bool names_sync(const char *path) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool done = fd >= 0 && folder_sync(fd);
    const int code = errno;
    if (fd >= 0) close(fd);
    errno = code;
    return done;
}

/* Removes the lock, for good: the folder that is put in place has none. */
static Status remove_lock(OutFolder *folder, Diag *diag) {
    const char *lock = path_join(folder->arena, folder->temporary, UNFINISHED_LOCK);
    const bool same = path_same(folder->temporary, &folder->identity);
    const int code = same && unlink(lock) != 0 ? errno : 0;
    if (code != 0 && code != ENOENT)
        return file_fail(folder->path, "put the folder in place", code, diag);
    if (!same || code != 0)
        return diag_fail(diag, STATUS_IO, LOC_FILE(folder->path), NULL,
                         "another program has removed or replaced the temporary folder "
                         "beside it, %s, before it was complete",
                         folder->temporary);
    return names_sync(folder->temporary)
               ? STATUS_OK
               : file_fail(folder->path, "make the folder durable", errno, diag);
}

/* All that can fail comes before the rename, but for its becoming durable. Without its
 * lock the folder is taken by nobody for stale: there are files in it. What was in its
 * place goes when nothing can bring it back. */
static Status put_in_place(OutFolder *folder, int parent, Diag *diag) {
    bool is_swapped = false;
    if (parent < 0 || !folder_sync(parent))
        return file_fail(folder->path, "make the folder durable", errno, diag);
    TRY(remove_lock(folder, diag));
    TRY(rename_folder(folder, &is_swapped, diag));
    if (!folder_sync(parent))
        diag_warn(diag, LOC_FILE(folder->path), NULL,
                  "the folder is in place, but a loss of power may undo that: cannot "
                  "make it durable: %s%s%s",
                  strerror(errno), is_swapped ? "; what it held before is kept as " : "",
                  is_swapped ? folder->temporary : "");
    else if (is_swapped)
        remove_earlier(folder, diag);
    return STATUS_OK;
}

static void outfolder_free(OutFolder *folder) {
    unfinished_drop(folder->slot);
    if (folder->lock >= 0) close(folder->lock);
    arena_destroy(folder->arena);
}

Status outfolder_commit(OutFolder *folder, Diag *diag) {
    const int parent = open(folder->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const Status status = put_in_place(folder, parent, diag);
    if (parent >= 0) close(parent);
    if (status != STATUS_OK) {
        outfolder_abandon(folder);
        return status;
    }
    outfolder_free(folder);
    return STATUS_OK;
}

void outfolder_abandon(OutFolder *folder) {
    if (!folder) return;
    if (path_same(folder->temporary, &folder->identity)) path_remove(folder->temporary);
    outfolder_free(folder);
}

Status outfolder_end(OutFolder *folder, Status status, Diag *diag) {
    if (status == STATUS_OK) return outfolder_commit(folder, diag);
    diag_rename_folder(diag, folder->temporary, folder->name);
    outfolder_abandon(folder);
    return status;
}
