/* Reserve: see reserve.h. */
#include "exec/run/reserve.h"

#include "exec/run/parallel.h"
#include "ir/arena.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Bytes of OpenBLAS's buffer for a thread, as it maps them on x86-64, a little more. */
#define BUFFER_BYTES ((size_t)136 << 20)

/* OpenBLAS's own functions, which it does not declare; NULL where they are hidden. */
__attribute__((weak)) void *blas_memory_alloc(int kind);
__attribute__((weak)) void blas_memory_free(void *buffer);

/* Whether the address space has room for the buffers: OpenBLAS tries for ever where it
 * has not. */
static Status find_room(int threads, Diag *diag) {
    const size_t bytes = (size_t)threads * BUFFER_BYTES;
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) {
        diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                  "no address space for the buffers of %d %s, %zu MiB: %s", threads,
                  threads == 1 ? "thread" : "threads", bytes >> 20, strerror(errno));
        diag_hint(diag, "fewer threads need less address space than `ulimit -v` allows");
        return STATUS_MEMORY;
    }
    munmap(room, bytes);
    return STATUS_OK;
}

/* OpenBLAS maps them, and keeps them. */
static void map_buffers(int threads) {
    if (!blas_memory_alloc || !blas_memory_free) return;
    void **buffers = memory_alloc((size_t)threads, sizeof *buffers);
    for (int i = 0; i < threads; i++) buffers[i] = blas_memory_alloc(0);
    for (int i = 0; i < threads; i++) blas_memory_free(buffers[i]);
    free(buffers);
}

/* One after the other: what one finds room for is another's otherwise. */
static Status reserve_buffers(int threads, Diag *diag) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    const Status status = find_room(threads, diag);
    if (status == STATUS_OK) map_buffers(threads);
    pthread_mutex_unlock(&lock);
    return status;
}

/* The library reads this when it is loaded. */
#define LIBRARY_THREADS "OPENBLAS_NUM_THREADS"

void threads_hold_library(char **arguments) {
    const char *held = getenv(LIBRARY_THREADS);
    if (held && strcmp(held, "1") == 0) return;
    if (setenv(LIBRARY_THREADS, "1", 1) == 0) execv("/proc/self/exe", arguments);
}

void threads_hold_in_limits(char **arguments) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        threads_hold_library(arguments);
}

Status threads_reserve(int threads, Diag *diag) {
    TRY(reserve_buffers(threads, diag));
    const int given = parallel_reserve(threads);
    if (given >= threads) return STATUS_OK;
    diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL, "cannot start thread %d of %d",
              given + 1, threads);
    diag_hint(diag, "%d %s may go", given, given == 1 ? "thread" : "threads");
    return STATUS_MEMORY;
}
