/* Unfinished outputs: see unfinished.h. */
#include "io/files/unfinished.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OUT_SLOTS = 16, DEPTH_MAX = 8, REMOVALS_MAX = 4 };
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

bool unfinished_holds(const char *path) {
    for (int i = 0; i < OUT_SLOTS; i++) {
        const OutSlot *slot = &out_slots[i];
        if (atomic_load(&slot->state) == SLOT_USED && slot->owner == getpid() &&
            strcmp(slot->path, path) == 0)
            return true;
    }
    return false;
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
        if (fd < 0) return;
        empty_folder(fd, depth + 1);
        close(fd);
        if (unlinkat(folder, name, AT_REMOVEDIR) == 0) return;
    }
}

void path_remove(const char *path) {
    remove_at(AT_FDCWD, path, 0);
}

pid_t unfinished_owner(const char *name, const char *base) {
    const size_t length = strlen(base);
    if (name[0] != '.' || strncmp(name + 1, base, length) != 0) return 0;
    const char *digits = name + 1 + length;
    if (digits[0] != '.' || !isdigit((unsigned char)digits[1])) return 0;
    char *end;
    errno = 0;
    const long pid = strtol(digits + 1, &end, 10);
    const bool good = !errno && pid > 0 && pid <= INT_MAX && strcmp(end, ".tmp") == 0;
    return good ? (pid_t)pid : 0;
}
