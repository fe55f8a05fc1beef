/* Disk: see session/bench/disk.h. */
#include "session/bench/disk.h"

#include "exec/run/ticker.h"
#include "io/files/outfile.h"
#include "ir/random.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 1 << 20 };

/* A chunk of numbers that no disk makes smaller. */
static void fill(char *chunk) {
    for (size_t i = 0; i < CHUNK; i += sizeof(uint64_t)) {
        const uint64_t bits = random_u64(1, i);
        memcpy(chunk + i, &bits, sizeof bits);
    }
}

static Status write_chunks(const char *path, const char *chunk, size_t bytes,
                           Diag *diag) {
    OutFile *file;
    TRY(outfile_open(&file, NULL, path, diag));
    for (size_t done = 0; done < bytes; done += CHUNK) {
        const size_t rest = bytes - done;
        const Status status =
            outfile_write(file, chunk, rest < CHUNK ? rest : CHUNK, diag);
        if (status == STATUS_OK) continue;
        outfile_abandon(file);
        return status;
    }
    return outfile_commit(file, diag);
}

static Status fail(const char *path, const char *what, Diag *diag) {
    return diag_fail(diag, STATUS_IO, LOC_FILE(path), NULL, "cannot %s: %s", what,
                     strerror(errno));
}

/* Reads all of an open file that nobody keeps in memory. */
static Status read_chunks(int fd, const char *path, char *chunk, Diag *diag) {
    ssize_t got;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    while ((got = read(fd, chunk, CHUNK)) > 0) {
    }
    return got < 0 ? fail(path, "read", diag) : STATUS_OK;
}

Status disk_trial(Arena *arena, const char *folder, size_t bytes, double *write,
                  double *read, Diag *diag) {
    const char *path =
        arena_printf(arena, "%s/compress-bench-%lld.tmp", folder, (long long)getpid());
    char *chunk = memory_alloc(1, CHUNK);
    fill(chunk);
    const double start = ticker_seconds();
    Status status = write_chunks(path, chunk, bytes, diag);
    *write = ticker_seconds() - start;
    const bool written = status == STATUS_OK;
    const int fd = written ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (written && fd < 0) status = fail(path, "read", diag);
    if (written) unlink(path); /* it can be read all the same */
    const double again = ticker_seconds();
    if (status == STATUS_OK) status = read_chunks(fd, path, chunk, diag);
    *read = ticker_seconds() - again;
    if (fd >= 0) close(fd);
    free(chunk);
    return status;
}
