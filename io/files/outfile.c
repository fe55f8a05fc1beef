/* OutFile: a file written beside its target and renamed into place. */
#include "io/files/outfile.h"

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

struct OutFile {
    Arena *arena;
    const char *path, *folder, *base, *temporary;
    int fd;
    int slot; /* among the unfinished ones */
};

void outfile_abandon_all(void) {
    unfinished_remove_all();
}

static Status out_fail(Diag *diag, const char *path, const char *what, int code) {
    return diag_fail(diag, STATUS_IO, LOC_FILE(path), NULL, "cannot %s: %s", what,
                     strerror(code));
}

/* Removes what dead processes (or an earlier one with our number) left for this target.
 */
static void remove_stale(const OutFile *file) {
    DIR *folder = opendir(file->folder);
    if (!folder) return; /* opening the temporary file reports what is wrong */
    for (struct dirent *entry; (entry = readdir(folder));) {
        pid_t pid = unfinished_owner(entry->d_name, file->base);
        if (pid == 0) continue;
        bool alive = pid == getpid() ? unfinished_holds(file->temporary)
                                     : kill(pid, 0) == 0 || errno != ESRCH;
        if (!alive) unlinkat(dirfd(folder), entry->d_name, 0);
    }
    closedir(folder);
}

static void outfile_free(OutFile *file) {
    if (file->fd >= 0) close(file->fd);
    unfinished_drop(file->slot);
    arena_destroy(file->arena);
}

Status outfile_open(OutFile **out, const char **temporary, const char *path, Diag *diag) {
    const char *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    struct stat info;
    if (base[0] == 0)
        return diag_fail(diag, STATUS_IO, LOC_FILE(path), NULL, "expected a file name");
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return diag_fail(diag, STATUS_IO, LOC_FILE(path), NULL,
                         "expected a regular file to replace, found %s",
                         S_ISDIR(info.st_mode) ? "a folder" : "something else");
    Arena *arena = arena_create();
    OutFile *file = ARENA_NEW(arena, OutFile);
    *file = (OutFile){.arena = arena, .slot = -1, .path = arena_strdup(arena, path)};
    file->base = arena_strdup(arena, base);
    file->folder = path_folder(arena, path);
    file->temporary =
        path_join(arena, file->folder, arena_printf(arena, ".%s.%d.tmp", base, getpid()));
    remove_stale(file);
    file->fd = open(file->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file->fd < 0) {
        out_fail(diag, path, "create a temporary file beside it", errno);
        outfile_free(file);
        return STATUS_IO;
    }
    file->slot = unfinished_add(file->temporary);
    *out = file;
    if (temporary) *temporary = file->temporary;
    return STATUS_OK;
}

Status outfile_write(OutFile *file, const void *data, size_t length, Diag *diag) {
    const char *bytes = data;
    while (length) {
        ssize_t n = write(file->fd, bytes, length);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return out_fail(diag, file->path, "write", errno);
        bytes += n;
        length -= (size_t)n;
    }
    return STATUS_OK;
}

static Status outfile_finish(OutFile *file, Diag *diag) {
    if (fsync(file->fd) != 0)
        return out_fail(diag, file->path, "make the data durable", errno);
    int closed = close(file->fd);
    file->fd = -1;
    if (closed != 0) return out_fail(diag, file->path, "write", errno);
    if (rename(file->temporary, file->path) != 0)
        return out_fail(diag, file->path, "put the file in place", errno);
    /* The rename itself becomes durable; some file systems cannot, and say EINVAL. */
    int fd = open(file->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return out_fail(diag, file->path, "make the folder durable", errno);
    bool failed = fsync(fd) != 0 && errno != EINVAL;
    int code = errno;
    close(fd);
    return failed ? out_fail(diag, file->path, "make the folder durable", code)
                  : STATUS_OK;
}

Status outfile_commit(OutFile *file, Diag *diag) {
    Status status = outfile_finish(file, diag);
    if (status != STATUS_OK) unlink(file->temporary);
    outfile_free(file);
    return status;
}

void outfile_abandon(OutFile *file) {
    if (!file) return;
    unlink(file->temporary);
    outfile_free(file);
}

Status file_write(const char *path, const void *data, size_t length, Diag *diag) {
    OutFile *file;
    TRY(outfile_open(&file, NULL, path, diag));
    Status status = outfile_write(file, data, length, diag);
    if (status == STATUS_OK) return outfile_commit(file, diag);
    outfile_abandon(file);
    return status;
}
