/* Resident: see resident.h. */
#include "ir/resident.h"

#include "ir/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Uses are counted in blocks of this size, which is what the kernel maps at once. */
#define BLOCK_BITS 16
#define BLOCK      ((uintptr_t)1 << BLOCK_BITS)
/* Uses that are remembered, so that none is counted twice. */
enum { REMEMBERED = 1 << 12 };
/* Smaller buffers do not spill. */
#define SPILL_LEAST ((size_t)64 << 10)

typedef struct Mapping {
    const void *data;
    size_t bytes;
} Mapping;

/* Of the process: buffers belong to no model, and their users know of none. */
static struct {
    atomic_size_t bound, used, largest, owned;
    atomic_int held;        /* new buffers stay in memory while it is not 0 */
    _Atomic uint64_t round; /* how often pages were given back */
    _Atomic uint64_t remembered[REMEMBERED];
    pthread_mutex_t lock; /* of the mappings */
    Mapping *mappings;
    int count, capacity;
    char *folder;
} resident = {.lock = PTHREAD_MUTEX_INITIALIZER};

void resident_bound(size_t bytes, const char *folder) {
    free(resident.folder);
    resident.folder = NULL;
    if (folder) {
        resident.folder = memory_alloc(strlen(folder) + 1, 1);
        memcpy(resident.folder, folder, strlen(folder));
    }
    atomic_store(&resident.used, 0);
    atomic_store(&resident.largest, 0);
    atomic_store(&resident.bound, bytes);
}

void resident_hold(bool hold) {
    atomic_fetch_add(&resident.held, hold ? 1 : -1);
}

size_t resident_bounded(void) {
    return atomic_load_explicit(&resident.bound, memory_order_relaxed);
}

/* ---- mappings ---- */

void resident_add(const void *data, size_t bytes) {
    pthread_mutex_lock(&resident.lock);
    if (resident.count == resident.capacity) {
        resident.capacity = resident.capacity ? 2 * resident.capacity : 16;
        resident.mappings = memory_grow(resident.mappings, (size_t)resident.capacity,
                                        sizeof *resident.mappings);
    }
    resident.mappings[resident.count++] = (Mapping){data, bytes};
    pthread_mutex_unlock(&resident.lock);
}

void resident_remove(const void *data) {
    pthread_mutex_lock(&resident.lock);
    int i = resident.count - 1;
    while (i >= 0 && resident.mappings[i].data != data) i--;
    if (i >= 0) resident.mappings[i] = resident.mappings[--resident.count];
    pthread_mutex_unlock(&resident.lock);
}

/* Gives all pages back and begins a round, unless another thread did so while this one
 * waited for it: none may go on using pages while those before are still to be given. */
static void give_back(size_t limit) {
    pthread_mutex_lock(&resident.lock);
    if (atomic_load(&resident.used) > limit) {
        for (int i = 0; i < resident.count; i++)
            madvise((void *)(uintptr_t)resident.mappings[i].data,
                    resident.mappings[i].bytes, MADV_DONTNEED);
        atomic_store(&resident.used, 0);
        atomic_fetch_add(&resident.round, 1);
    }
    pthread_mutex_unlock(&resident.lock);
}

/* ---- uses ---- */

/* Whether a use is the first since pages were given back. Two that fall on one place
 * forget each other: then one of them counts again. */
static bool is_new(uintptr_t start, size_t bytes) {
    const uint64_t round = atomic_load_explicit(&resident.round, memory_order_relaxed);
    uint64_t key = (start >> 6 ^ (uint64_t)bytes << 20 ^ round << 44) + 1;
    key *= UINT64_C(0x9e3779b97f4a7c15); /* Fibonacci hashing */
    _Atomic uint64_t *place = &resident.remembered[key >> 52];
    if (atomic_load_explicit(place, memory_order_relaxed) == key) return false;
    atomic_store_explicit(place, key, memory_order_relaxed);
    return true;
}

/* Counts a piece that is about to be used. */
static void count_use(uintptr_t start, size_t bytes) {
    if (!is_new(start, bytes)) return;
    size_t largest = atomic_load(&resident.largest);
    while (bytes > largest &&
           !atomic_compare_exchange_weak(&resident.largest, &largest, bytes))
        ;
    if (bytes > largest) largest = bytes;
    const size_t limit = resident_bounded() + 2 * largest;
    if (atomic_fetch_add(&resident.used, bytes) + bytes <= limit) return;
    give_back(limit);
    if (is_new(start, bytes)) atomic_fetch_add(&resident.used, bytes);
}

void resident_use(const void *data, size_t bytes) {
    if (resident_bounded() == 0 || bytes == 0) return;
    const uintptr_t start = (uintptr_t)data;
    if (bytes > BLOCK) {
        count_use(start, bytes);
        return;
    }
    const uintptr_t last = (start + bytes - 1) >> BLOCK_BITS;
    for (uintptr_t block = start >> BLOCK_BITS; block <= last; block++)
        count_use(block << BLOCK_BITS, BLOCK);
}

void resident_ahead(const void *data, size_t bytes) {
    if (resident_bounded() == 0 || bytes == 0) return;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t start = (uintptr_t)data / page * page, end = (uintptr_t)data + bytes;
    madvise((void *)start, end - start, MADV_WILLNEED); /* a wish */
}

/* ---- spilling ---- */

void resident_own(size_t bytes) {
    atomic_fetch_add_explicit(&resident.owned, bytes, memory_order_relaxed);
}

void resident_disown(size_t bytes) {
    atomic_fetch_sub_explicit(&resident.owned, bytes, memory_order_relaxed);
}

bool resident_spills(size_t bytes) {
    return resident.folder && bytes >= SPILL_LEAST &&
           atomic_load_explicit(&resident.held, memory_order_relaxed) == 0 &&
           atomic_load_explicit(&resident.owned, memory_order_relaxed) + bytes >
               resident_bounded();
}

/* A file that no name leads to, so that nothing is left however the program ends. */
static int open_unnamed(const char *folder) {
    const int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
    static const char NAME[] = "/.compress-spill-XXXXXX";
    char *path = memory_alloc(strlen(folder) + sizeof NAME, 1);
    memcpy(path, folder, strlen(folder));
    memcpy(path + strlen(folder), NAME, sizeof NAME);
    const int named = mkostemp(path, O_CLOEXEC);
    if (named >= 0) unlink(path);
    free(path);
    return named;
}

Status resident_spill(void **out, size_t bytes, Diag *diag) {
    const int fd = open_unnamed(resident.folder);
    void *data = MAP_FAILED;
    int code = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)bytes);
    if (code == 0) {
        data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED) code = errno;
    }
    if (fd >= 0) close(fd);
    if (data != MAP_FAILED) {
        *out = data;
        return STATUS_OK;
    }
    return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                     "cannot keep %zu bytes (%.1f MiB) in a file in %s: %s", bytes,
                     (double)bytes / (1 << 20), resident.folder, strerror(code));
}
