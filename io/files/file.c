/* Files: reading and mapping. Writing is in io/files/outfile.c. */
#include "io/files/file.h"

#include "io/files/guard.h"
#include "ir/mapped.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

Status file_fail(const char *path, const char *what, int code, Diag *diag) {
    const Status status = code == ENOMEM ? STATUS_MEMORY : STATUS_IO;
    return diag_fail(diag, status, LOC_FILE(path), NULL, "cannot %s: %s", what,
                     strerror(code));
}

bool file_of_system(int code) {
    return code == EIO || code == ENOMEM || code == EMFILE || code == ENFILE;
}

size_t file_start(void *bytes, size_t most, const char *path) {
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int code = fd < 0 ? errno : 0;
    ssize_t got = 0;
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
        got = read(fd, bytes, most);
    if (got < 0) code = errno;
    if (fd >= 0) close(fd);
    errno = file_of_system(code) ? code : 0;
    return got > 0 ? (size_t)got : 0;
}

/* Opens a regular file for reading. O_NONBLOCK: a pipe without a writer does not hang. */
static Status file_open(int *fd, size_t *bytes, const char *path, Diag *diag) {
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (*fd < 0) return file_fail(path, "open", errno, diag);
    struct stat info;
    Status status = STATUS_OK;
    if (fstat(*fd, &info) != 0)
        status = file_fail(path, "open", errno, diag);
    else if (!S_ISREG(info.st_mode))
        status = diag_fail(
            diag, STATUS_IO, LOC_FILE(path), NULL, "expected a regular file, found %s",
            S_ISDIR(info.st_mode)                            ? "a folder"
            : S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode) ? "a device"
                                                             : "a pipe or socket");
    else
        *bytes = (size_t)info.st_size;
    if (status != STATUS_OK) close(*fd);
    return status;
}

static void file_unmap(void *data, size_t bytes) {
    guard_remove(data);
    munmap(data, bytes);
}

Status file_map(Buf **out, const char *path, Diag *diag) {
    int fd;
    size_t bytes;
    TRY(file_open(&fd, &bytes, path, diag));
    if (bytes == 0) {
        close(fd);
        *out = buf_wrap("", 0, NULL);
        return STATUS_OK;
    }
    void *data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    int code = errno;
    close(fd);
    if (data == MAP_FAILED) return file_fail(path, "map", code, diag);
    guard_add(data, bytes, path);
    *out = buf_wrap_file(data, bytes, file_unmap);
    return STATUS_OK;
}

Status file_hash(const char *path, char hash[HASH_TEXT_BYTES], Diag *diag) {
    Buf *bytes = NULL;
    TRY(file_map(&bytes, path, diag));
    bytes_hash(buf_data(bytes), buf_bytes(bytes), hash);
    buf_release(bytes);
    return STATUS_OK;
}

Status file_read(char **text, size_t *length, Arena *arena, const char *path,
                 size_t limit, Diag *diag) {
    int fd;
    size_t bytes;
    TRY(file_open(&fd, &bytes, path, diag));
    if (bytes > limit) {
        close(fd);
        return diag_fail(diag, STATUS_FORMAT, LOC_FILE(path), NULL,
                         "expected at most %zu bytes, found %zu", limit, bytes);
    }
    char *data = arena_alloc(arena, bytes + 1);
    size_t done = 0;
    ssize_t n = 1;
    while (done < bytes && n != 0) { /* 0: the file ends before its size says */
        n = read(fd, data + done, bytes - done);
        if (n < 0 && errno != EINTR) break;
        if (n > 0) done += (size_t)n;
    }
    int code = errno;
    close(fd);
    if (done < bytes && n < 0) return file_fail(path, "read", code, diag);
    data[done] = 0;
    *text = data;
    *length = done;
    return STATUS_OK;
}

int file_descriptor(const char *path) {
    static const char *const FOLDERS[] = {"/dev/fd/", "/proc/self/fd/"};
    if (strcmp(path, "/dev/stdin") == 0) return STDIN_FILENO;
    for (size_t i = 0; i < sizeof FOLDERS / sizeof *FOLDERS; i++) {
        const size_t length = strlen(FOLDERS[i]);
        const char *number = path + length;
        if (strncmp(path, FOLDERS[i], length) == 0 && *number && strlen(number) < 8 &&
            strspn(number, "0123456789") == strlen(number))
            return atoi(number);
    }
    return -1;
}

Status file_take_stream(int descriptor, size_t limit, const char *path, Diag *diag) {
    const int kept = memfd_create("stream", 0);
    bool sound = kept >= 0;
    char chunk[4096];
    for (size_t total = 0; sound && total <= limit;) {
        const size_t room = limit + 1 - total;
        const ssize_t got =
            read(descriptor, chunk, room < sizeof chunk ? room : sizeof chunk);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) break;
        sound = got > 0 && write(kept, chunk, (size_t)got) == got;
        if (sound) total += (size_t)got;
    }
    sound = sound && lseek(kept, 0, SEEK_SET) == 0 && dup2(kept, descriptor) >= 0;
    const int code = errno;
    if (kept >= 0) close(kept);
    return sound ? STATUS_OK : file_fail(path, "read", code, diag);
}

Status file_keep_stream(int descriptor, size_t limit, const char *path, Diag *diag) {
    struct stat info;
    if (fstat(descriptor, &info) != 0 ||
        !(S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode)))
        return STATUS_OK;
    return file_take_stream(descriptor, limit, path, diag);
}
