/* Reserve: see reserve.h. */
#include "exec/run/reserve.h"

#include "exec/run/parallel.h"
#include "ir/arena.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
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

static void *wait_for_end(void *lock) {
    pthread_mutex_lock(lock);
    pthread_mutex_unlock(lock);
    return NULL;
}

static void do_nothing(void *self, int64_t i, int worker) {
    (void)self, (void)i, (void)worker;
}

/* Whether so many threads can live at a time: OpenMP ends the program where they cannot.
 */
static Status try_threads(int threads, Diag *diag) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t *started = memory_alloc((size_t)threads, sizeof *started);
    int count = 0, error = 0;
    pthread_mutex_lock(&lock);
    while (count < threads - 1 && error == 0) {
        error = pthread_create(&started[count], NULL, wait_for_end, &lock);
        count += error == 0;
    }
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < count; i++) pthread_join(started[i], NULL);
    free(started);
    if (error == 0) return STATUS_OK;
    diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL, "cannot start thread %d of %d: %s",
              count + 2, threads, strerror(error));
    diag_hint(diag, "--threads %d may go", count + 1);
    return STATUS_MEMORY;
}

/* Whether the address space has room for the buffers: OpenBLAS tries for ever where it
 * has not. Then it maps them, and keeps them. */
static Status map_buffers(int threads, Diag *diag) {
    const size_t bytes = (size_t)threads * BUFFER_BYTES;
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) {
        diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL,
                  "no address space for the buffers of %d %s, %zu MiB: %s", threads,
                  threads == 1 ? "thread" : "threads", bytes >> 20, strerror(errno));
        diag_hint(diag,
                  "fewer --threads need less address space than `ulimit -v` allows");
        return STATUS_MEMORY;
    }
    munmap(room, bytes);
    if (!blas_memory_alloc || !blas_memory_free) return STATUS_OK;
    void **buffers = memory_alloc((size_t)threads, sizeof *buffers);
    for (int i = 0; i < threads; i++) buffers[i] = blas_memory_alloc(0);
    for (int i = 0; i < threads; i++) blas_memory_free(buffers[i]);
    free(buffers);
    return STATUS_OK;
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

/* Whether OpenMP starts its threads. */
static atomic_bool is_starting;

/* OpenMP ends the program by exit(1) where it cannot start its threads, which there were
 * a moment before. */
static void name_cause(int code, void *self) {
    (void)self;
    if (code == EXIT_FAILURE && atomic_load(&is_starting))
        _exit(status_exit_code(STATUS_MEMORY));
}

static void watch_exit(void) {
    on_exit(name_cause, NULL);
}

Status threads_reserve(int threads, Diag *diag) {
    TRY(map_buffers(threads, diag));
    TRY(try_threads(threads, diag));
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_exit);
    atomic_store(&is_starting, true);
    parallel_for(threads, threads, do_nothing, NULL);
    atomic_store(&is_starting, false);
    return STATUS_OK;
}
