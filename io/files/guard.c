/* Guard: a table of mappings that a signal handler may read. */
#include "io/files/guard.h"

#include "io/files/outfile.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { GUARD_SLOTS = 1024, GUARD_PATH_BYTES = 256 };

typedef struct GuardSlot {
    atomic_bool taken;
    _Atomic(const char *) base; /* NULL until the rest of the slot is filled in */
    size_t bytes;
    char path[GUARD_PATH_BYTES];
} GuardSlot;

/* Process-wide, because a signal handler has no other way to reach it. Mappings beyond
 * the table are merely not named. */
static GuardSlot guard_slots[GUARD_SLOTS];

void guard_add(const void *base, size_t bytes, const char *path) {
    for (int i = 0; i < GUARD_SLOTS; i++) {
        GuardSlot *slot = &guard_slots[i];
        if (atomic_exchange(&slot->taken, true)) continue;
        size_t length = strlen(path);
        size_t skip = length < GUARD_PATH_BYTES ? 0 : length - (GUARD_PATH_BYTES - 1);
        memcpy(slot->path, path + skip, length - skip + 1);
        slot->bytes = bytes;
        atomic_store(&slot->base, base);
        return;
    }
}

void guard_remove(const void *base) {
    for (int i = 0; i < GUARD_SLOTS; i++) {
        GuardSlot *slot = &guard_slots[i];
        if (atomic_load(&slot->base) != base) continue;
        atomic_store(&slot->base, NULL);
        atomic_store(&slot->taken, false);
        return;
    }
}

static void write_text(const char *text) {
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written; /* nothing is left to be done about it */
}

static void guard_handle(int number, siginfo_t *info, void *context) {
    (void)context;
    const char *address = info->si_addr, *path = NULL;
    for (int i = 0; i < GUARD_SLOTS && !path; i++) {
        const char *base = atomic_load(&guard_slots[i].base);
        if (base && address >= base && address < base + guard_slots[i].bytes)
            path = guard_slots[i].path;
    }
    if (!path) {
        signal(number, SIG_DFL); /* the access is repeated and ends the program */
        return;
    }
    write_text(path);
    write_text(": error: the file became shorter, or could not be read, while in use\n");
    outfile_abandon_all();
    _exit(status_exit_code(STATUS_IO));
}

void guard_install(void) {
    struct sigaction action = {.sa_sigaction = guard_handle, .sa_flags = SA_SIGINFO};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
