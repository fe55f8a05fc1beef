/* Unfinished outputs: see unfinished.h. */
#include "io/files/unfinished.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ENDING ".tmp"

enum { OUT_SLOTS = 16, DEPTH_MAX = 8, REMOVALS_MAX = 4 };
enum { RANDOM_DIGITS = 16, NAMES_MAX = 100, OLD_SECONDS = 3600 };
enum { SLOT_FREE, SLOT_FILLING, SLOT_USED };

typedef struct OutSlot {
    atomic_int state;
    pid_t owner; /* a forked child leaves its parent's files alone */
    char path[PATH_MAX];
} OutSlot;

/* Signal handlers have no other way to reach them. */
static OutSlot out_slots[OUT_SLOTS];

int unfinished_add(const char *path) {
    if (strlen(path) >= PATH_MAX) return -1;
    for (int i = 0; i < OUT_SLOTS; i++) {
        int expected = SLOT_FREE;
        OutSlot *slot = &out_slots[i];
        if (!atomic_compare_exchange_strong(&slot->state, &expected, SLOT_FILLING))
            continue;
        strcpy(slot->path, path);
        slot->owner = getpid();
        atomic_store(&slot->state, SLOT_USED);
        return i;
    }
    return -1;
}

void unfinished_drop(int slot) {
    if (slot >= 0) atomic_store(&out_slots[slot].state, SLOT_FREE);
}

void unfinished_remove_all(void) {
    for (int i = 0; i < OUT_SLOTS; i++) {
        OutSlot *slot = &out_slots[i];
        if (atomic_load(&slot->state) == SLOT_USED && slot->owner == getpid())
            path_remove(slot->path);
    }
}

static void remove_at(int folder, const char *name, int depth);

/* Removes the entries of an open folder. opendir would allocate memory, which a signal
 * handler must not. */
static void empty_folder(int fd, int depth) {
    _Alignas(struct dirent64) char buffer[4096];
    ssize_t length;
    while ((length = getdents64(fd, buffer, sizeof buffer)) > 0)
        for (ssize_t at = 0; at < length;) {
            const struct dirent64 *entry = (const struct dirent64 *)(buffer + at);
            const bool inner =
                strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
            if (inner) remove_at(fd, entry->d_name, depth);
            at += entry->d_reclen;
        }
}

/* A folder that changes while it is read may not show all entries at once. */
static void remove_at(int folder, const char *name, int depth) {
    for (int i = 0; i < REMOVALS_MAX && depth < DEPTH_MAX; i++) {
        if (unlinkat(folder, name, 0) == 0 || errno == ENOENT) return;
        const int fd =
            openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) continue;
        empty_folder(fd, depth + 1);
        close(fd);
        if (unlinkat(folder, name, AT_REMOVEDIR) == 0) return;
    }
}

void path_remove(const char *path) {
    remove_at(AT_FDCWD, path, 0);
}

/* ---- names and locks ---- */

/* Bytes of a base name that a temporary's name repeats: as many as there is room for, and
 * no part of a character. */
static int base_length(const char *base) {
    const size_t most = NAME_MAX - 1 - 1 - RANDOM_DIGITS - (sizeof ENDING - 1);
    size_t length = strlen(base);
    if (length > most) length = most;
    while (length > 0 && ((unsigned char)base[length] & 0xc0) == 0x80) length--;
    return (int)length;
}

static const char *random_name(Arena *arena, const char *base) {
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != sizeof random) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        random =
            ((uint64_t)now.tv_sec << 32 ^ (uint64_t)now.tv_nsec) + (uint64_t)getpid();
    }
    return arena_printf(arena, ".%.*s.%016llx%s", base_length(base), base,
                        (unsigned long long)random, ENDING);
}

typedef enum NameKind { NAME_OTHER, NAME_RANDOM, NAME_NUMBERED } NameKind;

/* What a name in the target's folder is: a temporary of the target's, or of an earlier
 * version's, or something else. */
static NameKind name_kind(const char *name, const char *base) {
    const size_t length = (size_t)base_length(base);
    if (name[0] != '.' || strncmp(name + 1, base, length) != 0) return NAME_OTHER;
    const char *digits = name + 1 + length;
    if (*digits++ != '.') return NAME_OTHER;
    const size_t hex = strspn(digits, "0123456789abcdef");
    const size_t decimal = strspn(digits, "0123456789");
    if (hex == RANDOM_DIGITS && strcmp(digits + hex, ENDING) == 0) return NAME_RANDOM;
    const bool numbered = decimal > 0 && decimal < RANDOM_DIGITS && *digits != '0';
    return numbered && strcmp(digits + decimal, ENDING) == 0 ? NAME_NUMBERED : NAME_OTHER;
}

typedef enum LockEnd { LOCK_TAKEN, LOCK_HELD, LOCK_NONE } LockEnd;

/* Takes the lock of a file that is open for writing: LOCK_HELD where somebody else has
 * it, LOCK_NONE where there are no locks. */
static LockEnd lock_take(int fd) {
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_SETLK, &whole) == 0) return LOCK_TAKEN;
    return errno == EAGAIN || errno == EACCES ? LOCK_HELD : LOCK_NONE;
}

/* Whether no process has a file open, other than by `fd`. */
static bool is_closed(int fd) {
    fcntl(fd, F_SETSIG, SIGURG); /* what ends a lease raises SIGIO, which ends programs */
    return fcntl(fd, F_SETLEASE, F_WRLCK) == 0;
}

static bool is_open_at(int fd, const char *path) {
    struct stat info;
    return fstat(fd, &info) == 0 &&
           path_same(path, &(FileIdentity){info.st_dev, info.st_ino});
}

/* ---- making ---- */

/* Makes the file at `path` and locks it. Who looks whether it is stale can have taken the
 * lock, or removed the file, before that: EEXIST then asks for another name. */
static int make_locked(int *fd, const char *path, mode_t mode) {
    *fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (*fd < 0) return errno;
    if (lock_take(*fd) != LOCK_HELD && is_open_at(*fd, path)) return 0;
    close(*fd);
    *fd = -1;
    return EEXIST;
}

/* The same of a folder; an empty one is taken for stale. */
static int make_locked_folder(int *fd, Arena *arena, const char *path, mode_t mode) {
    if (mkdir(path, mode) != 0) return errno;
    const int code = make_locked(fd, path_join(arena, path, UNFINISHED_LOCK), 0666);
    if (code != 0) path_remove(path);
    return code == ENOENT ? EEXIST : code;
}

int unfinished_make(const char **path, int *fd, FileIdentity *identity, Arena *arena,
                    const char *folder, const char *base, bool is_folder, mode_t mode) {
    int code = EEXIST;
    for (int i = 0; i < NAMES_MAX && code == EEXIST; i++) {
        *fd = -1;
        *path = path_join(arena, folder, random_name(arena, base));
        code = is_folder ? make_locked_folder(fd, arena, *path, mode)
                         : make_locked(fd, *path, mode);
        if (code == 0 && !path_identify(identity, *path)) {
            close(*fd);
            code = EEXIST;
        }
    }
    return code;
}

/* ---- what others left ---- */

/* Whether a folder without its lock is nobody's: one that a program is about to put in
 * place is without for a moment, one that was being removed stays so. */
static bool is_old_folder(const struct stat *info) {
    return S_ISDIR(info->st_mode) && time(NULL) - info->st_mtime > OLD_SECONDS;
}

/* Whether nobody writes a temporary any more; then it is gone. `lock`: the file that its
 * writer has locked. */
static bool remove_dead(const char *path, const char *lock, const struct stat *info,
                        NameKind kind) {
    const int fd = open(lock, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        if (errno != ENOENT || kind != NAME_RANDOM) return false;
        if (rmdir(path) != 0 && is_old_folder(info)) path_remove(path);
        return access(path, F_OK) != 0;
    }
    const bool dead = is_open_at(fd, lock) && lock_take(fd) == LOCK_TAKEN &&
                      (kind == NAME_RANDOM || is_closed(fd));
    if (dead) path_remove(path);
    close(fd);
    return dead;
}

void unfinished_remove_stale(const char *folder, const char *base, const char *path,
                             Diag *diag) {
    Arena *scratch = arena_create();
    DIR *list = opendir(folder); /* making a temporary reports what is wrong with it */
    bool told = false;
    for (struct dirent *entry; list && (entry = readdir(list));) {
        struct stat info;
        const NameKind kind = name_kind(entry->d_name, base);
        const char *found = path_join(scratch, folder, entry->d_name);
        if (kind == NAME_OTHER || lstat(found, &info) != 0) continue;
        const bool is_folder = S_ISDIR(info.st_mode);
        if (!is_folder && !S_ISREG(info.st_mode)) continue;
        const char *lock = is_folder ? path_join(scratch, found, UNFINISHED_LOCK) : found;
        if (remove_dead(found, lock, &info, kind) || lstat(found, &info) != 0) continue;
        if (kind == NAME_RANDOM && !told)
            diag_warn(diag, LOC_FILE(path), NULL,
                      "another program is writing it too, as %s; what is put in place "
                      "last stays",
                      entry->d_name);
        else if (kind == NAME_NUMBERED)
            diag_warn(diag, LOC_FILE(path), NULL,
                      "%s beside it is unfinished: an earlier version of compress writes "
                      "it, or has left it",
                      entry->d_name);
        told |= kind == NAME_RANDOM;
    }
    if (list) closedir(list);
    arena_destroy(scratch);
}
