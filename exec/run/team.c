/* Team: see exec/run/team.h. */
#include "exec/run/team.h"

#include "exec/linalg/blas.h"
#include "exec/run/parallel.h"
#include "ir/arena.h"
#include "ir/thread.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Looks before a waiting thread yields the processor (some 50 microseconds), and before
 * it goes to sleep. Where other work shares the processors whoever is waited for may have
 * none: one that is waited for in circles for milliseconds, as OpenMP's threads are,
 * makes a training of small batches five times slower (docs/speed.md). */
enum { SPINS = 2000, LOOKS = SPINS + 500 };

/* Of Team.runs: how many have begun; in the low bits how many threads run the last. */
enum { MEMBER_BITS = 16 };

struct Team {
    int threads;
    pthread_t *workers;
    void (*body)(void *self, int me);
    void *self;
    int members; /* threads that run it */

    /* in lines of their own: other threads look at them all the time */
    _Alignas(64) atomic_uint_least64_t runs;
    _Alignas(64) atomic_uint_least64_t meetings;
    _Alignas(64) atomic_int arrived;
    _Alignas(64) atomic_int asleep;
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

typedef struct Worker {
    Team *team;
    int me;
} Worker;

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Waits until `count` is no longer `old`; returns what it is. */
static uint64_t wait_for(Team *team, atomic_uint_least64_t *count, uint64_t old) {
    uint64_t found = old;
    for (int looks = 0; looks < LOOKS; looks++) {
        found = atomic_load_explicit(count, memory_order_acquire);
        if (found != old) return found;
        if (looks < SPINS)
            relax();
        else
            sched_yield();
    }
    pthread_mutex_lock(&team->lock);
    atomic_fetch_add(&team->asleep, 1);
    while ((found = atomic_load(count)) == old)
        pthread_cond_wait(&team->wake, &team->lock);
    atomic_fetch_sub(&team->asleep, 1);
    pthread_mutex_unlock(&team->lock);
    return found;
}

/* Counts on: what was written before is seen by those who waited. A thread that is about
 * to sleep says so before its last look, so one of the two sees the other. */
static void count_on(Team *team, atomic_uint_least64_t *count, uint64_t next) {
    atomic_store(count, next);
    if (atomic_load(&team->asleep) == 0) return;
    pthread_mutex_lock(&team->lock);
    pthread_cond_broadcast(&team->wake);
    pthread_mutex_unlock(&team->lock);
}

void team_meet(Team *team) {
    const int members = team->members; /* the next run's once all have arrived */
    if (members == 1) return;
    const uint64_t meeting = atomic_load_explicit(&team->meetings, memory_order_relaxed);
    const int before = atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel);
    if (before < members - 1) {
        wait_for(team, &team->meetings, meeting);
        return;
    }
    atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
    count_on(team, &team->meetings, meeting + 1);
}

/* Lets the other threads begin a run of so many. */
static void begin(Team *team, int members) {
    const uint64_t runs = atomic_load_explicit(&team->runs, memory_order_relaxed);
    count_on(team, &team->runs,
             ((runs >> MEMBER_BITS) + 1) << MEMBER_BITS | (uint64_t)members);
}

/* A thread that is no member of a run touches nothing of it: the next may have begun
 * when it looks. */
static void *work(void *self) {
    const Worker worker = *(Worker *)self;
    Team *team = worker.team;
    free(self);
    if (blas_by_openmp()) parallel_alone(); /* oneDNN's calls see to it themselves */
    for (uint64_t run = 0;;) {
        run = wait_for(team, &team->runs, run);
        const int members = (int)(run & ((1U << MEMBER_BITS) - 1));
        if (members == 0) return NULL;
        if (worker.me >= members) continue;
        team->body(team->self, worker.me);
        team_meet(team);
    }
}

void team_run_some(Team *team, int threads, void (*body)(void *self, int me),
                   void *self) {
    team->body = body;
    team->self = self;
    team->members = threads;
    if (threads > 1) begin(team, threads);
    body(self, 0);
    team_meet(team);
}

void team_run(Team *team, void (*body)(void *self, int me), void *self) {
    team_run_some(team, team->threads, body, self);
}

static Status start_worker(Team *team, int me, Diag *diag) {
    Worker *worker = memory_alloc(1, sizeof *worker);
    *worker = (Worker){team, me};
    const int error = thread_start(&team->workers[me - 1], work, worker);
    if (error == 0) {
        team->threads++;
        return STATUS_OK;
    }
    free(worker);
    return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL, "cannot start thread %d: %s",
                     me + 1, strerror(error));
}

Status team_create(Team **out, int threads, Diag *diag) {
    Team *team = aligned_alloc(64, sizeof *team);
    if (!team)
        return diag_fail(diag, STATUS_MEMORY, LOC_NONE, NULL, "cannot allocate a team");
    memset(team, 0, sizeof *team);
    team->threads = 1;
    team->workers = memory_alloc((size_t)threads, sizeof *team->workers);
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->wake, NULL);
    *out = team;
    Status status = STATUS_OK;
    for (int i = 1; i < threads && status == STATUS_OK; i++)
        status = start_worker(team, i, diag);
    return status;
}

int team_threads(const Team *team) {
    return team->threads;
}

void team_destroy(Team *team) {
    if (!team) return;
    begin(team, 0);
    for (int i = 0; i < team->threads - 1; i++) pthread_join(team->workers[i], NULL);
    pthread_cond_destroy(&team->wake);
    pthread_mutex_destroy(&team->lock);
    free(team->workers);
    free(team);
}
