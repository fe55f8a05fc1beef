/* The shim: see shim.h. Works for glibc on 64-bit systems, where open and open64 and
 * their like are the same; with large files asked for, one would stand for the other. */
#undef _FILE_OFFSET_BITS
#include "tests/faults/shim.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* glibc's own, under the names that it keeps for those who put others in place. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

enum { ALL_KINDS = FAULT_KIND_COUNT, KILL = -1 };

static struct {
    bool counting; /* main has begun */
    bool logging, for_good;
    int kind, code; /* code: errno's value, or KILL */
    uint64_t at;
    pid_t program;
    FaultFile *file;
    char *log;
} shim;

/* ---- what happens to a call ---- */

static void end_program(void) {
    syscall(SYS_kill, shim.program, SIGKILL);
    syscall(SYS_kill, getpid(), SIGKILL);
    _exit(1);
}

/* Counts a call; true = it is to fail, errno says with what. */
static bool strikes(FaultKind kind) {
    if (!shim.counting || !shim.file) return false;
    uint64_t number = atomic_fetch_add(&shim.file->counts[kind], 1) + 1;
    if (kind != FAULT_MEMORY) {
        const uint64_t files = atomic_fetch_add(&shim.file->files, 1) + 1;
        if (shim.kind == ALL_KINDS) number = files;
    }
    /* who was killed may have been a child that can kill nobody else */
    if (shim.code == KILL && atomic_load(&shim.file->struck) > 0) end_program();
    const bool meant =
        shim.kind == (int)kind || (shim.kind == ALL_KINDS && kind != FAULT_MEMORY);
    if (!meant || shim.at == 0 || number < shim.at) return false;
    if (number > shim.at && !shim.for_good) return false;
    atomic_fetch_add(&shim.file->struck, 1);
    if (shim.code == KILL) end_program();
    errno = shim.code;
    return true;
}

/* ---- the log ---- */

static uint64_t align8(uint64_t n) {
    return (n + 7) & ~(uint64_t)7;
}

/* Appends a record. Two processes may do so at a time: each takes its room first. */
static void note(LogRecord record, const char *path, const char *path2,
                 const void *bytes) {
    record.path = path ? (uint32_t)strlen(path) + 1 : 0;
    record.path2 = path2 ? (uint32_t)strlen(path2) + 1 : 0;
    const uint64_t room =
        align8(sizeof record + record.path + record.path2 + record.bytes);
    const uint64_t at = atomic_fetch_add(&shim.file->used, room);
    if (sizeof *shim.file + at + room > FAULT_FILE_BYTES) {
        static const char MESSAGE[] = "shim: the log is full\n";
        syscall(SYS_write, STDERR_FILENO, MESSAGE, sizeof MESSAGE - 1);
        _exit(99);
    }
    char *to = shim.log + at;
    memcpy(to, &record, sizeof record);
    to += sizeof record;
    if (path) memcpy(to, path, record.path);
    if (path2) memcpy(to + record.path, path2, record.path2);
    if (bytes) memcpy(to + record.path + record.path2, bytes, record.bytes);
}

/* Inode of an open regular file or folder, 0 for all else. */
static uint64_t inode_of(int fd, bool *is_folder) {
    struct stat info;
    if (fstat(fd, &info) != 0) return 0;
    *is_folder = S_ISDIR(info.st_mode);
    return S_ISREG(info.st_mode) || S_ISDIR(info.st_mode) ? info.st_ino : 0;
}

static uint64_t inode_at(int folder, const char *path, bool *is_folder) {
    struct stat info;
    if (fstatat(folder, path, &info, AT_SYMLINK_NOFOLLOW) != 0) return 0;
    *is_folder = S_ISDIR(info.st_mode);
    return info.st_ino;
}

/* A path from the program's own folder, with the inode of the folder that it is in. */
static uint64_t path_at(char out[PATH_MAX], int folder, const char *path) {
    char link[64], parent[PATH_MAX];
    ssize_t length = 0;
    struct stat info;
    if (path[0] != '/' && folder != AT_FDCWD) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        length = readlink(link, out, PATH_MAX - 2);
        if (length < 0) length = 0;
        out[length++] = '/';
    }
    snprintf(out + length, (size_t)(PATH_MAX - length), "%s", path);
    snprintf(parent, sizeof parent, "%s", out);
    char *slash = strrchr(parent, '/');
    if (slash) *slash = 0;
    if (stat(slash ? *parent ? parent : "/" : ".", &info) != 0) return 0;
    return info.st_ino;
}

static void note_write(int fd, const void *data, ssize_t done, off_t at) {
    if (!shim.logging || !shim.counting || done <= 0) return;
    const int kept = errno;
    LogRecord record = {.kind = LOG_WRITE, .at = (uint64_t)at, .bytes = (uint64_t)done};
    bool is_folder;
    record.inode = inode_of(fd, &is_folder);
    if (record.inode != 0) note(record, NULL, NULL, data);
    errno = kept;
}

static void note_file(LogKind kind, int fd, off_t at) {
    if (!shim.logging || !shim.counting) return;
    const int kept = errno;
    LogRecord record = {.kind = kind, .at = (uint64_t)at};
    bool is_folder = false;
    record.inode = inode_of(fd, &is_folder);
    record.is_folder = is_folder;
    if (record.inode != 0) note(record, NULL, NULL, NULL);
    errno = kept;
}

static void note_name(LogKind kind, int folder, const char *path, int folder2,
                      const char *path2) {
    if (!shim.logging || !shim.counting) return;
    const int kept = errno;
    char first[PATH_MAX], second[PATH_MAX];
    LogRecord record = {.kind = kind};
    bool is_folder = false;
    record.folder = path_at(first, folder, path);
    if (path2) record.folder2 = path_at(second, folder2, path2);
    record.inode = inode_at(path2 ? folder2 : folder, path2 ? path2 : path, &is_folder);
    record.is_folder = is_folder;
    note(record, first, path2 ? second : NULL, NULL);
    errno = kept;
}

/* ---- the start ---- */

static int number_of_kind(const char *name) {
#define FAULT_KIND(kind, text, calls)                                                    \
    if (strcmp(name, #text) == 0) return FAULT_##kind;
    FAULT_KINDS(FAULT_KIND)
#undef FAULT_KIND
    return ALL_KINDS;
}

static int number_of_error(const char *name) {
    static const struct {
        const char *name;
        int code;
    } ERRORS[] = {{"ENOMEM", ENOMEM}, {"ENOSPC", ENOSPC}, {"EIO", EIO},
                  {"EDQUOT", EDQUOT}, {"EROFS", EROFS},   {"EMFILE", EMFILE},
                  {"EAGAIN", EAGAIN}, {"KILL", KILL}};
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
        if (strcmp(name, ERRORS[i].name) == 0) return ERRORS[i].code;
    return EIO;
}

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

static void begin(void) {
    const char *path = setting("FAULTS_FILE", NULL);
    if (!path) return;
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, path,
                                O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || syscall(SYS_ftruncate, fd, FAULT_FILE_BYTES) != 0) _exit(98);
    void *data = (void *)syscall(SYS_mmap, NULL, FAULT_FILE_BYTES, PROT_READ | PROT_WRITE,
                                 MAP_SHARED, fd, 0);
    close(fd);
    if (data == MAP_FAILED) _exit(98);
    shim.file = data;
    shim.log = (char *)(shim.file + 1);
    shim.program = getpid();
    shim.kind = number_of_kind(setting("FAULTS_KIND", "files"));
    shim.code = number_of_error(setting("FAULTS_ERROR", "EIO"));
    shim.at = strtoull(setting("FAULTS_AT", "0"), NULL, 10);
    shim.for_good = strcmp(setting("FAULTS_FOR", "once"), "good") == 0;
    shim.logging = strcmp(setting("FAULTS_LOG", "0"), "1") == 0;
}

static int (*real_main)(int, char **, char **);

static int counted_main(int argc, char **argv, char **environment) {
    begin();
    shim.counting = true;
    return real_main(argc, argv, environment);
}

#define NEXT(name)                                                                       \
    static __typeof__(&name) next;                                                       \
    if (!next) next = (__typeof__(next))dlsym(RTLD_NEXT, #name)

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv,
                      void (*start)(void), void (*end)(void), void (*loader)(void),
                      void *stack);
int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv,
                      void (*start)(void), void (*end)(void), void (*loader)(void),
                      void *stack) {
    NEXT(__libc_start_main);
    real_main = main;
    return next(counted_main, argc, argv, start, end, loader, stack);
}

/* ---- memory ---- */

void *malloc(size_t bytes) {
    return strikes(FAULT_MEMORY) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    return strikes(FAULT_MEMORY) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes) {
    return strikes(FAULT_MEMORY) ? NULL : __libc_realloc(old, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    return strikes(FAULT_MEMORY) ? NULL : __libc_memalign(alignment, bytes);
}

void *memalign(size_t alignment, size_t bytes) {
    return strikes(FAULT_MEMORY) ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes) {
    if (strikes(FAULT_MEMORY)) return ENOMEM;
    *out = __libc_memalign(alignment, bytes);
    return *out ? 0 : ENOMEM;
}

/* ---- opening and making ---- */

static int open_file(int folder, const char *path, int flags, mode_t mode) {
    if (strikes(FAULT_OPEN)) return -1;
    bool is_folder;
    const bool is_new = shim.logging && flags & O_CREAT &&
                        (flags & O_TMPFILE) != O_TMPFILE &&
                        inode_at(folder, path, &is_folder) == 0;
    const int fd = (int)syscall(SYS_openat, folder, path, flags, mode);
    if (fd >= 0 && is_new) note_name(LOG_CREATE, folder, path, 0, NULL);
    if (fd >= 0 && !is_new && flags & O_TRUNC) note_file(LOG_TRUNCATE, fd, 0);
    return fd;
}

#define OPEN_MODE                                                                        \
    va_list more;                                                                        \
    va_start(more, flags);                                                               \
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;        \
    va_end(more)

int open(const char *path, int flags, ...) {
    OPEN_MODE;
    return open_file(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    OPEN_MODE;
    return open_file(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...) {
    OPEN_MODE;
    return open_file(folder, path, flags, mode);
}

int openat64(int folder, const char *path, int flags, ...) {
    OPEN_MODE;
    return open_file(folder, path, flags, mode);
}

/* A stream's writes go past the shim: files that matter after a loss of power are written
 * by descriptors. */
FILE *fopen(const char *path, const char *mode) {
    NEXT(fopen);
    return strikes(FAULT_OPEN) ? NULL : next(path, mode);
}

FILE *fopen64(const char *path, const char *mode) {
    NEXT(fopen64);
    return strikes(FAULT_OPEN) ? NULL : next(path, mode);
}

DIR *opendir(const char *path) {
    NEXT(opendir);
    return strikes(FAULT_OPEN) ? NULL : next(path);
}

int pipe2(int ends[2], int flags) {
    return strikes(FAULT_OPEN) ? -1 : (int)syscall(SYS_pipe2, ends, flags);
}

int memfd_create(const char *name, unsigned flags) {
    return strikes(FAULT_OPEN) ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}

int dup2(int from, int to) {
    NEXT(dup2);
    return strikes(FAULT_OPEN) ? -1 : next(from, to);
}

int mkdir(const char *path, mode_t mode) {
    if (strikes(FAULT_OPEN)) return -1;
    const int code = (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    if (code == 0) note_name(LOG_CREATE, AT_FDCWD, path, 0, NULL);
    return code;
}

/* ---- reading ---- */

ssize_t read(int fd, void *data, size_t bytes) {
    return strikes(FAULT_READ) ? -1 : syscall(SYS_read, fd, data, bytes);
}

ssize_t pread(int fd, void *data, size_t bytes, off_t at) {
    return strikes(FAULT_READ) ? -1 : syscall(SYS_pread64, fd, data, bytes, at);
}

ssize_t pread64(int fd, void *data, size_t bytes, off_t at) {
    return strikes(FAULT_READ) ? -1 : syscall(SYS_pread64, fd, data, bytes, at);
}

size_t fread(void *data, size_t size, size_t count, FILE *file) {
    NEXT(fread);
    if (!strikes(FAULT_READ)) return next(data, size, count, file);
    file->_flags |= _IO_ERR_SEEN;
    return 0;
}

/* ---- writing ---- */

ssize_t write(int fd, const void *data, size_t bytes) {
    if (strikes(FAULT_WRITE)) return -1;
    const off_t at = shim.logging ? lseek(fd, 0, SEEK_CUR) : 0;
    const ssize_t done = syscall(SYS_write, fd, data, bytes);
    note_write(fd, data, done, at);
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at) {
    if (strikes(FAULT_WRITE)) return -1;
    const ssize_t done = syscall(SYS_pwrite64, fd, data, bytes, at);
    note_write(fd, data, done, at);
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t at) {
    return pwrite(fd, data, bytes, at);
}

/* Whether a stream is of a file, and not where messages go. */
static bool is_file(FILE *file) {
    return file && file != stderr && fileno(file) >= 0;
}

size_t fwrite(const void *data, size_t size, size_t count, FILE *file) {
    NEXT(fwrite);
    if (!is_file(file) || !strikes(FAULT_WRITE)) return next(data, size, count, file);
    file->_flags |= _IO_ERR_SEEN;
    return 0;
}

int fflush(FILE *file) {
    NEXT(fflush);
    if (!is_file(file) || !strikes(FAULT_WRITE)) return next(file);
    file->_flags |= _IO_ERR_SEEN;
    return EOF;
}

int ftruncate(int fd, off_t bytes) {
    if (strikes(FAULT_WRITE)) return -1;
    const int code = (int)syscall(SYS_ftruncate, fd, bytes);
    if (code == 0) note_file(LOG_TRUNCATE, fd, bytes);
    return code;
}

int ftruncate64(int fd, off_t bytes) {
    return ftruncate(fd, bytes);
}

int posix_fallocate(int fd, off_t at, off_t bytes) {
    NEXT(posix_fallocate);
    return strikes(FAULT_WRITE) ? errno : next(fd, at, bytes);
}

int posix_fallocate64(int fd, off_t at, off_t bytes) {
    return posix_fallocate(fd, at, bytes);
}

int fsync(int fd) {
    if (strikes(FAULT_SYNC)) return -1;
    const int code = (int)syscall(SYS_fsync, fd);
    if (code == 0) note_file(LOG_SYNC, fd, 0);
    return code;
}

int fdatasync(int fd) {
    return fsync(fd);
}

/* ---- names ---- */

static int rename_file(int from, const char *old, int to, const char *new,
                       unsigned flags) {
    if (strikes(FAULT_RENAME)) return -1;
    const int code = (int)syscall(SYS_renameat2, from, old, to, new, flags);
    if (code == 0)
        note_name(flags & RENAME_EXCHANGE ? LOG_EXCHANGE : LOG_RENAME, from, old, to,
                  new);
    return code;
}

int rename(const char *old, const char *new) {
    return rename_file(AT_FDCWD, old, AT_FDCWD, new, 0);
}

int renameat(int from, const char *old, int to, const char *new) {
    return rename_file(from, old, to, new, 0);
}

int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    return rename_file(from, old, to, new, flags);
}

int linkat(int from, const char *old, int to, const char *new, int flags) {
    NEXT(linkat);
    return strikes(FAULT_RENAME) ? -1 : next(from, old, to, new, flags);
}

int link(const char *old, const char *new) {
    return linkat(AT_FDCWD, old, AT_FDCWD, new, 0);
}

static int remove_file(int folder, const char *path, int flags) {
    if (strikes(FAULT_REMOVE)) return -1;
    char whole[PATH_MAX];
    LogRecord record = {.kind = LOG_REMOVE};
    bool is_folder = false;
    if (shim.logging) {
        record.folder = path_at(whole, folder, path);
        record.inode = inode_at(folder, path, &is_folder);
        record.is_folder = is_folder;
    }
    const int code = (int)syscall(SYS_unlinkat, folder, path, flags);
    if (code == 0 && shim.logging && shim.counting) note(record, whole, NULL, NULL);
    return code;
}

int unlink(const char *path) {
    return remove_file(AT_FDCWD, path, 0);
}

int unlinkat(int folder, const char *path, int flags) {
    return remove_file(folder, path, flags);
}

int rmdir(const char *path) {
    return remove_file(AT_FDCWD, path, AT_REMOVEDIR);
}

/* ---- maps, processes, threads ---- */

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if (strikes(FAULT_MAP)) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    return mmap(at, bytes, protection, flags, fd, offset);
}

pid_t fork(void) {
    NEXT(fork);
    return strikes(FAULT_FORK) ? -1 : next();
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                   void *(*body)(void *), void *self) {
    NEXT(pthread_create);
    return strikes(FAULT_THREAD) ? errno : next(thread, attributes, body, self);
}
