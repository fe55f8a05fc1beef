/* What the shim and those who read its file agree on: counts, and a log of what was done
 * to files. Loaded by LD_PRELOAD, it makes calls of a program fail, or kills the program
 * before one, and tells what the program asked of files. Environment:
 *
 *   FAULTS_FILE   the file of counts and of the log, made anew; without it nothing is
 * kept FAULTS_KIND   which calls: a name of FAULT_KINDS below, or `files`, all but memory
 *   FAULTS_AT     which one of them fails, from 1; 0 or absent = none: they are counted
 *   FAULTS_FOR    `once`, or `good`: all from that one on
 *   FAULTS_ERROR  what errno becomes: ENOMEM, ENOSPC, EIO, EDQUOT, EROFS, EMFILE, EAGAIN;
 *                 or KILL: the program and the process that makes the call end by SIGKILL
 *   FAULTS_LOG    1 = the log is kept as well
 *
 * Calls count from `main` on, in the program and in the processes that it forks together,
 * whoever makes them: the program or a library that it is linked with. What the C library
 * does inside itself goes past the shim; files that it opens (fopen, opendir) and what it
 * flushes (fflush, fclose) are calls of their own here. */
#ifndef COMPRESS_TESTS_FAULTS_SHIM_H
#define COMPRESS_TESTS_FAULTS_SHIM_H

#include <stdatomic.h>
#include <stdint.h>

/* KIND(NAME, name, calls) */
#define FAULT_KINDS(KIND)                                                                \
    KIND(MEMORY, memory, "malloc, calloc, realloc, aligned_alloc, posix_memalign")       \
    KIND(OPEN, open, "open, openat, fopen, opendir, pipe2, memfd_create, mkdir, dup2")   \
    KIND(READ, read, "read, pread, fread")                                               \
    KIND(WRITE, write, "write, pwrite, fwrite, fflush, ftruncate, posix_fallocate")      \
    KIND(SYNC, sync, "fsync, fdatasync")                                                 \
    KIND(RENAME, rename, "rename, renameat, renameat2, link, linkat")                    \
    KIND(REMOVE, remove, "unlink, unlinkat, rmdir")                                      \
    KIND(MAP, map, "mmap")                                                               \
    KIND(FORK, fork, "fork")                                                             \
    KIND(THREAD, thread, "pthread_create")

typedef enum FaultKind {
#define FAULT_KIND(name, text, calls) FAULT_##name,
    FAULT_KINDS(FAULT_KIND)
#undef FAULT_KIND
        FAULT_KIND_COUNT
} FaultKind;

#define FAULT_FILE_BYTES ((uint64_t)256 << 20)

/* The start of the file; the log follows it. */
typedef struct FaultFile {
    _Atomic uint64_t counts[FAULT_KIND_COUNT];
    _Atomic uint64_t files;  /* calls of all kinds but memory */
    _Atomic uint64_t struck; /* calls that failed by the shim */
    _Atomic uint64_t used;   /* bytes of the log */
} FaultFile;

/* One line of the log, in the order in which the calls ended well. Files and folders are
 * told by their inodes; paths are absolute or relative to the program's folder. */
typedef enum LogKind {
    LOG_WRITE,    /* `bytes` at `at` of `inode`: they follow the paths */
    LOG_TRUNCATE, /* `inode` has `at` bytes */
    LOG_SYNC,     /* what was written to `inode`, or the names in it, is durable */
    LOG_CREATE,   /* path: a file or folder `inode` was made */
    LOG_RENAME,   /* path becomes path2 */
    LOG_EXCHANGE, /* path and path2 are exchanged */
    LOG_REMOVE    /* path is gone */
} LogKind;

/* Followed by path, path2 and the bytes; the next record begins at a multiple of 8. */
typedef struct LogRecord {
    uint32_t kind, is_folder;
    uint64_t inode, folder,
        folder2; /* folder: of `path`, folder2 of `path2`, for names */
    uint64_t at, bytes;
    uint32_t path, path2; /* lengths, NUL included, 0 = none */
} LogRecord;

#endif
