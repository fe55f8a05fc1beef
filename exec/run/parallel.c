/* Parallel: see exec/run/parallel.h.
 *
 * A container gets a share of the processors as a quota of time, which no count of
 * processors shows; threads beyond it are stopped in turn and wait for each other. The
 * kernel's documentation: admin-guide/cgroup-v2 (cpu.max) and scheduler/sched-bwc. */
#include "exec/run/parallel.h"

#include "exec/run/team.h"
#include "ir/arena.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- loops ---- */

/* Teams that no loop has: a loop takes one, or a new one, and brings it back. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Team **idle;
static int idle_count, team_count;

static _Thread_local bool in_loop; /* a body's own loop has no threads */

/* A fork has none of the threads, and makes its own. */
static void forked(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    idle_count = 0;
    in_loop = false;
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, forked);
}

static int most_given = INT_MAX; /* threads by the system; loops ask for no more */

/* With the lock: a team of so many threads, or of as many as the system gives. */
static Team *make_team(int threads) {
    Team *team = NULL;
    Diag *diag = diag_create();
    if (team_create(&team, threads, diag) != STATUS_OK)
        most_given = team ? team_threads(team) : 1;
    diag_destroy(diag);
    if (!team) return NULL;
    idle = memory_grow(idle, (size_t)++team_count, sizeof *idle);
    return team;
}

static void bring_team(Team *team) {
    pthread_mutex_lock(&lock);
    if (team) idle[idle_count++] = team;
    pthread_mutex_unlock(&lock);
}

/* A team for up to so many threads until it is brought back; NULL = the calling thread is
 * alone. */
static Team *take_team(int threads) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    Team *team = NULL;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    if (threads > most_given) threads = most_given;
    if (threads > 1 && idle_count > 0) team = idle[--idle_count];
    if (team && team_threads(team) < threads) {
        team_destroy(team);
        team_count--;
        team = NULL;
    }
    if (threads > 1 && !team) team = make_team(threads);
    pthread_mutex_unlock(&lock);
    return team;
}

typedef struct Loop {
    int64_t count;
    int threads;
    void (*body)(void *self, int64_t i, int worker);
    void *self;
} Loop;

static void run_range(void *self, int me) {
    const Loop *loop = self;
    const int64_t each = loop->count / loop->threads, more = loop->count % loop->threads;
    const int64_t first = me * each + (me < more ? me : more);
    const int64_t end = first + each + (me < more);
    in_loop = true;
    for (int64_t i = first; i < end; i++) loop->body(loop->self, i, me);
    in_loop = false;
}

void parallel_for(int64_t count, int threads,
                  void (*body)(void *self, int64_t i, int worker), void *self) {
    Loop loop = {count, threads < count ? threads : (int)count, body, self};
    Team *team = loop.threads > 1 && !in_loop ? take_team(loop.threads) : NULL;
    if (team) {
        if (loop.threads > team_threads(team)) loop.threads = team_threads(team);
        team_run_some(team, loop.threads, run_range, &loop);
        bring_team(team);
    } else {
        for (int64_t i = 0; i < count; i++) body(self, i, 0);
    }
}

int parallel_reserve(int threads) {
    pthread_mutex_lock(&lock);
    most_given = INT_MAX;
    pthread_mutex_unlock(&lock);
    Team *team = take_team(threads);
    const int given = team ? team_threads(team) : 1;
    bring_team(team);
    return given < threads ? given : threads;
}

/* OpenMP's, which another library may have brought along; NULL where none has. */
static void (*set_openmp_threads)(int threads);
static int (*openmp_threads)(void);

static void find_openmp(void) {
    *(void **)&set_openmp_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    *(void **)&openmp_threads = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
}

/* More than OpenMP's notes of a thread, and than what malloc keeps back for requests of
 * the same size. */
enum { OPENMP_BYTES = 4096 };

/* OpenMP takes memory at a thread's first call, and ends the program in its own way where
 * there is none: then ours ends it first. */
static void set_openmp(int threads) {
    free(memory_alloc(1, OPENMP_BYTES));
    set_openmp_threads(threads);
}

int parallel_alone(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_openmp);
    if (!set_openmp_threads || !openmp_threads) return 1;
    const int threads = openmp_threads();
    if (threads != 1) set_openmp(1);
    return threads;
}

void parallel_together(int threads) {
    if (openmp_threads && openmp_threads() != threads) set_openmp(threads);
}

/* ---- how many there may be ---- */

enum { PATH_MOST = 4096 };

/* Reads a number or the word "max" (as -1) from a file of a group; false where there is
 * no such file. `period` stays as it is where a second number is missing. */
static bool read_quota(const char *folder, const char *file, double *quota,
                       double *period) {
    char path[2 * PATH_MOST], word[32];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *stream = fopen(path, "r");
    if (!stream) return false;
    const bool found = fscanf(stream, "%31s", word) == 1;
    if (found && sscanf(word, "%lf", quota) != 1) *quota = -1;
    if (found && period && fscanf(stream, "%lf", period) != 1) *period = 100000;
    fclose(stream);
    return found;
}

/* Processors that one group allows; infinite where it has no limit. */
static double group_limit(const char *folder) {
    double quota = -1, period = 100000;
    if (!read_quota(folder, "cpu.max", &quota, &period) &&
        read_quota(folder, "cpu.cfs_quota_us", &quota, NULL))
        read_quota(folder, "cpu.cfs_period_us", &period, NULL);
    return quota > 0 && period > 0 ? quota / period : (double)INFINITY;
}

/* The least that a group and those above it allow. A container may see its group's path
 * from outside, with its own group at the mount's root: paths that are not there count
 * for nothing. */
static double groups_limit(const char *mount, const char *group) {
    char folder[2 * PATH_MOST];
    snprintf(folder, sizeof folder, "%s%s", mount, group);
    double limit = group_limit(folder);
    const size_t root = strlen(mount);
    for (char *slash; (slash = strrchr(folder + root, '/'));) {
        *slash = '\0';
        limit = fmin(limit, group_limit(folder));
    }
    return limit;
}

/* Whether a list "cpu,cpuacct" has "cpu". */
static bool has_cpu(const char *controllers) {
    for (const char *at = controllers; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, "cpu", 3) == 0 && (at[3] == ',' || !at[3])) return true;
    }
    return false;
}

double threads_quota(const char *root) {
    char path[PATH_MOST], line[PATH_MOST];
    double limit = INFINITY;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *stream = fopen(path, "r");
    while (stream && fgets(line, sizeof line, stream)) {
        /* "4:cpu,cpuacct:/group", or of version 2 "0::/group" */
        char *controllers = strchr(line, ':'), *group = NULL;
        if (controllers) group = strchr(++controllers, ':');
        if (!group) continue;
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        const char *mounts[] = {*controllers ? controllers : "",
                                *controllers ? "cpu" : "unified"};
        if (*controllers && !has_cpu(controllers)) continue;
        for (int i = 0; i < 2; i++) {
            snprintf(path, sizeof path, "%s/sys/fs/cgroup%s%s", root,
                     *mounts[i] ? "/" : "", mounts[i]);
            limit = fmin(limit, groups_limit(path, strcmp(group, "/") == 0 ? "" : group));
        }
    }
    if (stream) fclose(stream);
    return limit;
}

/* Processors that the process may run on: the kernel's set may be larger than glibc's. */
static int processors_allowed(void) {
    enum { PROCESSORS_MOST = 1 << 20 };
    for (int room = CPU_SETSIZE; room <= PROCESSORS_MOST; room *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)room);
        if (!set) break;
        const size_t bytes = CPU_ALLOC_SIZE((size_t)room);
        const int failed = sched_getaffinity(0, bytes, set) != 0 ? errno : 0;
        const int count = failed ? 0 : CPU_COUNT_S(bytes, set);
        CPU_FREE(set);
        if (count > 0) return count;
        if (failed != EINVAL) break;
    }
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

int threads_available(void) {
    const double most = fmin(processors_allowed(), ceil(threads_quota("")));
    return most > 1 ? (int)most : 1;
}
