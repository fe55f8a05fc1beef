/* Team: see exec/run/team.h. */
#include "exec/run/team.h"

#include "ir/arena.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Looks before a waiting thread yields the processor (some 50 microseconds), and before
 * it goes to sleep: on a busy machine a thread that wakes up gets a processor sooner than
 * one that has been turning in circles. */
enum { SPINS = 2000, LOOKS = SPINS + 20 };

struct Team {
    int threads;
    pthread_t *workers;
    int started;
    void (*body)(void *self, int me);
    void *self;

    /* in lines of their own: other threads look at them all the time */
    _Alignas(64) atomic_uint runs; /* begun */
    _Alignas(64) atomic_uint meetings;
    _Alignas(64) atomic_int arrived;
    _Alignas(64) atomic_int asleep;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool quit;
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

/* Waits until `count` is no longer `old`. */
static void wait_for(Team *team, atomic_uint *count, unsigned old) {
    for (int looks = 0; looks < LOOKS; looks++) {
        if (atomic_load_explicit(count, memory_order_acquire) != old) return;
        if (looks < SPINS)
            relax();
        else
            sched_yield();
    }
    pthread_mutex_lock(&team->lock);
    atomic_fetch_add(&team->asleep, 1);
    while (atomic_load(count) == old) pthread_cond_wait(&team->wake, &team->lock);
    atomic_fetch_sub(&team->asleep, 1);
    pthread_mutex_unlock(&team->lock);
}

/* Counts on: what was written before is seen by those who waited. A thread that is about
 * to sleep says so before its last look, so one of the two sees the other. */
static void count_on(Team *team, atomic_uint *count) {
    atomic_fetch_add(count, 1);
    if (atomic_load(&team->asleep) == 0) return;
    pthread_mutex_lock(&team->lock);
    pthread_cond_broadcast(&team->wake);
    pthread_mutex_unlock(&team->lock);
}

void team_meet(Team *team) {
    if (team->threads == 1) return;
    const unsigned meeting = atomic_load_explicit(&team->meetings, memory_order_relaxed);
    const int before = atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel);
    if (before < team->threads - 1) {
        wait_for(team, &team->meetings, meeting);
        return;
    }
    atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
    count_on(team, &team->meetings);
}

static void *work(void *self) {
    const Worker worker = *(Worker *)self;
    Team *team = worker.team;
    free(self);
    for (unsigned run = 0;; run++) {
        wait_for(team, &team->runs, run);
        if (team->quit) return NULL;
        team->body(team->self, worker.me);
        team_meet(team);
    }
}

void team_run(Team *team, void (*body)(void *self, int me), void *self) {
    team->body = body;
    team->self = self;
    if (team->threads > 1) count_on(team, &team->runs);
    body(self, 0);
    team_meet(team);
}

static Status start_worker(Team *team, int me, Diag *diag) {
    Worker *worker = memory_alloc(1, sizeof *worker);
    *worker = (Worker){team, me};
    const int error = pthread_create(&team->workers[me - 1], NULL, work, worker);
    if (error == 0) {
        team->started++;
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
    team->threads = threads;
    team->workers = memory_alloc((size_t)threads, sizeof *team->workers);
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->wake, NULL);
    *out = team;
    for (int i = 1; i < threads; i++) TRY(start_worker(team, i, diag));
    return STATUS_OK;
}

int team_threads(const Team *team) {
    return team->threads;
}

void team_destroy(Team *team) {
    if (!team) return;
    team->quit = true;
    count_on(team, &team->runs);
    for (int i = 0; i < team->started; i++) pthread_join(team->workers[i], NULL);
    pthread_cond_destroy(&team->wake);
    pthread_mutex_destroy(&team->lock);
    free(team->workers);
    free(team);
}
