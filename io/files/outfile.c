/* OutFile: a file written beside its target and renamed into place. */
#include "io/files/outfile.h"

#include "io/files/file.h"
#include "io/files/folder.h"
#include "io/files/path.h"
#include "io/files/unfinished.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct OutFile {
    Arena *arena;
    const char *path, *folder, *base, *temporary;
    int fd; /* of the temporary file; its lock tells others that it is written */
    FileIdentity identity;
    int slot; /* among the unfinished ones */
    /* Bytes, of them those that are on their way to disk, and those that memory has no
     * copy of any more. */
    off_t written, started, given;
};

/* As many bytes are sent to disk at a time while more are written, so that making a large
 * file durable is not left for its end. */
#define START_BYTES ((off_t)16 << 20)

/* The last part of a file that stays in memory until it ends. */
#define KEPT_BYTES ((off_t)256 << 20)

void outfile_abandon_all(void) {
    unfinished_remove_all();
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
    const bool is_there = stat(path, &info) == 0;
    if (is_there && !S_ISREG(info.st_mode))
        return diag_fail(diag, STATUS_IO, LOC_FILE(path), NULL,
                         "expected a regular file to replace, found %s",
                         S_ISDIR(info.st_mode) ? "a folder" : "something else");
    Arena *arena = arena_create();
    OutFile *file = ARENA_NEW(arena, OutFile);
    *file = (OutFile){
        .arena = arena, .fd = -1, .slot = -1, .path = arena_strdup(arena, path)};
    file->base = arena_strdup(arena, base);
    file->folder = path_folder(arena, path);
    unfinished_remove_stale(file->folder, file->base, path, diag);
    /* As private as before: never less, and as open where fchmod is allowed, which a
     * confined process is not. */
    const mode_t mode = is_there ? info.st_mode & 0777 : 0666;
    const int code = unfinished_make(&file->temporary, &file->fd, &file->identity, arena,
                                     file->folder, file->base, false, mode);
    if (code != 0) {
        const Status status =
            file_fail(path, "create a temporary file beside it", code, diag);
        outfile_free(file);
        return status;
    }
    if (is_there) fchmod(file->fd, mode); /* what the mask took */
    file->slot = unfinished_add(file->temporary);
    *out = file;
    if (temporary) *temporary = file->temporary;
    return STATUS_OK;
}

/* Lets the kernel's copy of a large file go, but for its last part, once it is on the
 * disk: so it does not push out what was in memory before, the input above all. What
 * cannot be written is told here, as fsync tells an error only to who waits first. */
static Status give_back(OutFile *file, Diag *diag) {
    const off_t bytes = file->written - KEPT_BYTES - file->given;
    if (bytes < START_BYTES) return STATUS_OK;
    if (sync_file_range(file->fd, file->given, bytes,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                            SYNC_FILE_RANGE_WAIT_AFTER) == 0)
        posix_fadvise(file->fd, file->given, bytes, POSIX_FADV_DONTNEED);
    else if (errno == EIO || errno == ENOSPC || errno == EDQUOT)
        return file_fail(file->path, "make the data durable", errno, diag);
    file->given += bytes;
    return STATUS_OK;
}

Status outfile_write(OutFile *file, const void *data, size_t length, Diag *diag) {
    const char *bytes = data;
    while (length) {
        ssize_t n = write(file->fd, bytes, length);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return file_fail(file->path, "write", errno, diag);
        bytes += n;
        length -= (size_t)n;
        file->written += n;
    }
    if (file->written - file->started < START_BYTES) return STATUS_OK;
    sync_file_range(file->fd, file->started, file->written - file->started,
                    SYNC_FILE_RANGE_WRITE); /* a wish; fsync tells what goes wrong */
    file->started = file->written;
    return give_back(file, diag);
}

Status outfile_rewrite(OutFile *file, size_t offset, const void *data, size_t length,
                       Diag *diag) {
    const char *bytes = data;
    while (length) {
        ssize_t n = pwrite(file->fd, bytes, length, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return file_fail(file->path, "write", errno, diag);
        bytes += n;
        offset += (size_t)n;
        length -= (size_t)n;
    }
    return STATUS_OK;
}

/* Makes the names in an open folder durable; some file systems cannot, and say EINVAL. */
static bool folder_sync(int folder) {
    return fsync(folder) == 0 || errno == EINVAL;
}

/* All that can fail before the rename. */
static Status make_durable(const OutFile *file, int folder, Diag *diag) {
    if (fsync(file->fd) != 0)
        return file_fail(file->path, "make the data durable", errno, diag);
    if (folder < 0 || !folder_sync(folder))
        return file_fail(file->path, "make the folder durable", errno, diag);
    if (path_same(file->temporary, &file->identity)) return STATUS_OK;
    return diag_fail(diag, STATUS_IO, LOC_FILE(file->path), NULL,
                     "another program has removed or replaced the temporary file beside "
                     "it, %s, before it was complete",
                     file->temporary);
}

/* Once the file is in place a warning is all there is to tell. */
static Status put_in_place(const OutFile *file, int folder, Diag *diag) {
    if (rename(file->temporary, file->path) != 0)
        return file_fail(file->path, "put the file in place", errno, diag);
    if (!folder_sync(folder))
        diag_warn(diag, LOC_FILE(file->path), NULL,
                  "the file is in place, but a loss of power may undo that: cannot make "
                  "the folder durable: %s",
                  strerror(errno));
    return STATUS_OK;
}

/* Removes the temporary file, if it is still there, and nobody else's. */
static void remove_own(const OutFile *file) {
    if (path_same(file->temporary, &file->identity)) unlink(file->temporary);
}

/* Frees a file that is in place, or removes it. */
static void end(OutFile *file, Status status) {
    if (status != STATUS_OK) remove_own(file);
    outfile_free(file);
}

Status outfile_commit(OutFile *file, Diag *diag) {
    const int folder = open(file->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    Status status = make_durable(file, folder, diag);
    if (status == STATUS_OK) status = put_in_place(file, folder, diag);
    if (folder >= 0) close(folder);
    end(file, status);
    return status;
}

/* ---- pairs ---- */

static bool is_beside(const char *name, const char *stem) {
    const size_t length = strlen(stem);
    if (strncmp(name, stem, length) != 0) return false;
    name += length;
    return !*name || (*name == '-' && strlen(name + 1) == BESIDE_DIGITS &&
                      strspn(name + 1, "0123456789abcdef") == BESIDE_DIGITS);
}

/* Whether a file's bytes hold a name that is not the beginning of a longer one. */
static bool holds_name(const Buf *file, const char *name) {
    const size_t length = strlen(name);
    const char *at = buf_data(file), *end = at + buf_bytes(file);
    while ((at = memmem(at, (size_t)(end - at), name, length))) {
        at += length;
        if (at == end || *at != '-') return true;
    }
    return false;
}

/* Files beside the one that is replaced, which that names; their number. */
static int find_replaced(const char ***out, const OutFile *file, const char *stem) {
    const char **names;
    int64_t count = 0;
    int found = 0;
    Buf *old = NULL;
    Diag *none = diag_create();
    if (folder_names(&names, &count, file->arena, file->folder, none) != STATUS_OK)
        count = 0;
    *out = ARENA_ARRAY(file->arena, const char *, (size_t)count + 1);
    for (int64_t i = 0; i < count; i++) {
        if (!is_beside(names[i], stem)) continue;
        if (!old && file_map(&old, file->path, none) != STATUS_OK) break;
        if (holds_name(old, names[i])) (*out)[found++] = names[i];
    }
    buf_release(old);
    diag_destroy(none);
    return found;
}

/* Puts both in place, or neither. */
static Status put_pair(OutFile *beside, OutFile *file, int folder, Diag *diag) {
    if (!beside) return put_in_place(file, folder, diag);
    const bool is_new = access(beside->path, F_OK) != 0;
    TRY(put_in_place(beside, folder, diag));
    const Status status = put_in_place(file, folder, diag);
    if (status != STATUS_OK && is_new) unlink(beside->path);
    return status;
}

/* Within the folder's lock, where the file system has such. */
static Status replace_pair(OutFile *beside, const char *name, OutFile *file,
                           const char *stem, int folder, Diag *diag) {
    const char **replaced;
    flock(folder, LOCK_EX);
    const int count = find_replaced(&replaced, file, stem);
    TRY(put_pair(beside, file, folder, diag));
    for (int i = 0; i < count; i++)
        if (!name || strcmp(replaced[i], name) != 0) unlinkat(folder, replaced[i], 0);
    return STATUS_OK;
}

Status outfile_commit_pair(OutFile *beside, const char *name, OutFile *file,
                           const char *stem, Diag *diag) {
    const int folder = open(file->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    Status status = beside ? make_durable(beside, folder, diag) : STATUS_OK;
    if (status == STATUS_OK) status = make_durable(file, folder, diag);
    if (beside) beside->path = path_join(beside->arena, beside->folder, name);
    if (status == STATUS_OK)
        status = replace_pair(beside, name, file, stem, folder, diag);
    if (folder >= 0) close(folder);
    if (beside) end(beside, status);
    end(file, status);
    return status;
}

void outfile_abandon(OutFile *file) {
    if (!file) return;
    remove_own(file);
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
