/* OutFolder: a folder, written beside its target and renamed into place. */
#include "io/files/outfolder.h"

#include "io/files/path.h"
#include "io/files/unfinished.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct OutFolder {
    Arena *arena;
    const char *path; /* without a slash at the end */
    const char *parent, *base, *temporary;
    int slot; /* of the temporary folder, among the unfinished ones */
    bool (*is_ours)(const char *name);
};

static Status folder_fail(Diag *diag, const char *path, const char *what, int code) {
    return diag_fail(diag, STATUS_IO, LOC_FILE(path), NULL, "cannot %s: %s", what,
                     strerror(code));
}

static bool is_entry(const char *name) {
    return strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* Removes what dead processes, or an earlier one with our number, left for this target.
 */
static void remove_stale(const OutFolder *folder) {
    Arena *scratch = arena_create();
    DIR *list = opendir(folder->parent);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        const pid_t pid = unfinished_owner(entry->d_name, folder->base);
        const char *path = path_join(scratch, folder->parent, entry->d_name);
        if (pid != 0 && path_is_folder(path) &&
            (pid == getpid() || (kill(pid, 0) != 0 && errno == ESRCH)))
            path_remove(path);
    }
    if (list) closedir(list);
    arena_destroy(scratch);
}

/* Whether what a folder holds may go: it knows the names of all files, and of folders in
 * it with a slash behind them. `within`: the folder's own such name, "" for the target.
 */
static Status check_entries(const OutFolder *folder, Arena *scratch, const char *path,
                            const char *within, Diag *diag) {
    DIR *list = opendir(path);
    if (!list) return folder_fail(diag, path, "read the folder", errno);
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

Status outfolder_check(const char *path, bool (*is_ours)(const char *name), Diag *diag) {
    const OutFolder folder = {.path = path, .is_ours = is_ours};
    struct stat info;
    if (stat(path, &info) != 0) return STATUS_OK;
    if (!S_ISDIR(info.st_mode))
        return diag_fail(diag, STATUS_IO, LOC_FILE(path), NULL,
                         "expected a folder to replace, found a file");
    Arena *scratch = arena_create();
    const Status status = check_entries(&folder, scratch, path, "", diag);
    arena_destroy(scratch);
    return status;
}

Status outfolder_open(OutFolder **out, const char **temporary, const char *path,
                      bool (*is_ours)(const char *name), Diag *diag) {
    Arena *arena = arena_create();
    OutFolder *folder = ARENA_NEW(arena, OutFolder);
    char *resolved = realpath(path, NULL); /* a link stays one */
    char *plain = arena_strdup(arena, resolved ? resolved : path);
    free(resolved);
    size_t length = strlen(plain);
    while (length > 1 && plain[length - 1] == '/') plain[--length] = 0;
    const char *slash = strrchr(plain, '/');
    *folder = (OutFolder){.arena = arena,
                          .path = plain,
                          .parent = path_folder(arena, plain),
                          .base = slash ? slash + 1 : plain,
                          .slot = -1,
                          .is_ours = is_ours};
    Status status = STATUS_OK;
    if (!folder->base[0] || !is_entry(folder->base))
        status = diag_fail(diag, STATUS_IO, LOC_FILE(path), NULL,
                           "expected the name of a folder");
    if (status == STATUS_OK) status = outfolder_check(folder->path, is_ours, diag);
    if (status == STATUS_OK) {
        folder->temporary =
            path_join(arena, folder->parent,
                      arena_printf(arena, ".%s.%d.tmp", folder->base, getpid()));
        remove_stale(folder);
        if (mkdir(folder->temporary, 0777) != 0)
            status =
                folder_fail(diag, path, "create a temporary folder beside it", errno);
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
        if (!is_entry(entry->d_name) ||
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

/* Puts the temporary folder where the target is and the target where that was. */
static Status swap_folders(OutFolder *folder, Diag *diag) {
    if (renameat2(AT_FDCWD, folder->temporary, AT_FDCWD, folder->path, RENAME_EXCHANGE) ==
        0)
        return STATUS_OK;
    if (errno != EINVAL && errno != ENOSYS)
        return folder_fail(diag, folder->path, "put the folder in place", errno);
    /* a file system without exchanges: for a moment there is none, and what was written
     * is all there is */
    unfinished_drop(folder->slot);
    folder->slot = -1;
    const char *old = arena_printf(folder->arena, "%s.old", folder->temporary);
    if (rename(folder->path, old) != 0)
        return folder_fail(diag, folder->path, "move the old folder away", errno);
    if (rename(folder->temporary, folder->path) != 0) {
        const int code = errno;
        rename(old, folder->path);
        return folder_fail(diag, folder->path, "put the folder in place", code);
    }
    rename(old, folder->temporary);
    return STATUS_OK;
}

static Status put_in_place(OutFolder *folder, Diag *diag) {
    if (path_is_folder(folder->path)) {
        TRY(outfolder_check(folder->path, folder->is_ours,
                            diag)); /* it may have got files meanwhile */
        TRY(swap_folders(folder, diag));
        path_remove(folder->temporary);
    } else if (rename(folder->temporary, folder->path) != 0) {
        return folder_fail(diag, folder->path, "put the folder in place", errno);
    }
    const int fd = open(folder->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const bool failed = fd < 0 || (fsync(fd) != 0 && errno != EINVAL);
    const int code = errno;
    if (fd >= 0) close(fd);
    return failed ? folder_fail(diag, folder->path, "make the folder durable", code)
                  : STATUS_OK;
}

Status outfolder_commit(OutFolder *folder, Diag *diag) {
    const Status status = put_in_place(folder, diag);
    unfinished_drop(folder->slot);
    folder->slot = -1;
    if (status == STATUS_OK)
        arena_destroy(folder->arena);
    else
        outfolder_abandon(folder);
    return status;
}

void outfolder_abandon(OutFolder *folder) {
    if (!folder) return;
    path_remove(folder->temporary);
    unfinished_drop(folder->slot);
    arena_destroy(folder->arena);
}
