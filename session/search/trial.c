/* Processes of `compress` started, waited for, and ended; their reports, which another
 * program may have written, read with nothing taken for granted. */
#include "session/search/trial.h"

#include "io/files/json.h"
#include "session/page/runs.h"
#include "session/report/report_read.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- reports ---- */

/* Takes the value of a metric from a step's record: of the wanted one, or of the first of
 * all kinds that the record has. */
static void read_metric(TrialResult *out, const RunStep *step, const char *wanted) {
    out->metric = wanted;
    out->value = wanted ? run_number(step->record, wanted) : (double)NAN;
    for (const RunMetricKind *kind = run_metric_kinds; !out->metric && kind->key;
         kind++) {
        out->value = run_number(step->record, kind->key);
        if (!isnan(out->value)) out->metric = kind->key;
    }
}

/* The metric that an evaluate step is about: its option, NULL = the task's usual one. */
static const char *metric_of(const RunStep *step) {
    const char *name = tree_string(step->options, "metric");
    return name && strcmp(name, "auto") != 0 ? name : NULL;
}

static void read_steps(TrialResult *out, const Run *run, const char *metric) {
    double share = 1;
    for (int i = 0; i < run->count; i++) {
        const RunStep *step = &run->steps[i];
        if (!isnan(step->size.flops)) out->flops = step->size.flops;
        if (!isnan(step->size.parameters))
            out->parameters = (int64_t)step->size.parameters;
        if (strcmp(step->pass, "evaluate") != 0) continue;
        read_metric(out, step, metric ? metric : metric_of(step));
        share = run_number(step->record, "flops_share");
        if (isnan(share)) share = 1;
    }
    out->flops *= share;
}

void trial_read(TrialResult *out, Arena *arena, const char *report, const char *metric) {
    static const struct {
        const char *name;
        TrialStatus status;
    } ENDS[] = {{"done", TRIAL_DONE}, {"gate", TRIAL_GATE}, {"error", TRIAL_FAILED}};
    Tree *map = NULL;
    Diag *none = diag_create();
    *out = (TrialResult){.value = NAN};
    if (report_read(&map, arena, report, none) == STATUS_OK) {
        Run run;
        run_of_report(&run, arena, report, map);
        for (size_t i = 0; i < sizeof ENDS / sizeof *ENDS; i++)
            if (strcmp(run.status, ENDS[i].name) == 0) out->status = ENDS[i].status;
        read_steps(out, &run, metric);
        if (!isnan(run.seconds)) out->seconds = run.seconds;
        out->message = tree_string(tree_get(map, "error"), "message");
    }
    diag_destroy(none);
}

/* ---- processes ---- */

typedef struct Worker {
    pid_t pid; /* 0 = idle */
    Trial *trial;
} Worker;

/* The arguments of a trial's process, ended by NULL; in the arena. */
static char **trial_arguments(const TrialRunner *runner, const Trial *trial) {
    const char *fixed[] = {runner->program, "--recipe",  trial->recipe, "--report",
                           trial->report,   "--threads", NULL,          "--quiet"};
    const size_t count = sizeof fixed / sizeof *fixed;
    char **argv =
        ARENA_ARRAY(runner->arena, char *, count + (size_t)runner->flags.count + 5);
    int n = 0;
    fixed[6] = arena_printf(runner->arena, "%d", runner->threads);
    for (size_t i = 0; i < count; i++) argv[n++] = arena_strdup(runner->arena, fixed[i]);
    for (int i = 0; i < runner->flags.count; i++)
        argv[n++] = arena_strdup(runner->arena, runner->flags.items[i]);
    if (runner->cache) {
        argv[n++] = arena_strdup(runner->arena, "--cache");
        argv[n++] = arena_strdup(runner->arena, runner->cache);
    }
    if (trial->output) {
        argv[n++] = arena_strdup(runner->arena, "--output");
        argv[n++] = arena_strdup(runner->arena, trial->output);
    }
    return argv;
}

/* Starts a trial, with no input, its messages in the log. */
static Status start_trial(const TrialRunner *runner, Worker *worker, Trial *trial,
                          Diag *diag) {
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, trial->log,
                                     O_WRONLY | O_CREAT | O_TRUNC, 0666);
    const int failed = posix_spawn(&worker->pid, runner->program, &files, NULL,
                                   trial_arguments(runner, trial), environ);
    posix_spawn_file_actions_destroy(&files);
    worker->trial = trial;
    if (!failed) return STATUS_OK;
    worker->pid = 0;
    return diag_fail(diag, STATUS_IO, LOC_FILE(trial->recipe), NULL,
                     "cannot start %s for it: %s", runner->program, strerror(failed));
}

/* The last line of a log, "nothing in its log" where there is none. */
static const char *last_line(Arena *arena, const char *path) {
    char line[512];
    const char *last = "nothing in its log";
    FILE *log = fopen(path, "r");
    while (log && fgets(line, sizeof line, log)) {
        line[strcspn(line, "\n")] = 0;
        if (line[strspn(line, " ")]) last = arena_strdup(arena, line + strspn(line, " "));
    }
    if (log) fclose(log);
    return last;
}

/* A trial whose process ended without a report has failed: the signal, or the end of its
 * log, tells why. */
static void end_trial(const TrialRunner *runner, Worker *worker, int how) {
    Trial *trial = worker->trial;
    TrialResult *result = &trial->result;
    trial_read(result, runner->arena, trial->report, runner->metric);
    worker->pid = 0;
    if (result->status != TRIAL_WAITS) return;
    result->status = TRIAL_FAILED;
    result->message =
        WIFSIGNALED(how)
            ? arena_printf(runner->arena, "ended by signal %d", WTERMSIG(how))
            : arena_printf(runner->arena, "ended with exit code %d without a report: %s",
                           WEXITSTATUS(how), last_line(runner->arena, trial->log));
}

/* Whether a worker's process has ended by now. */
static bool reap(const TrialRunner *runner, Worker *worker) {
    int how = 0;
    if (!worker->pid || waitpid(worker->pid, &how, WNOHANG) == 0) return false;
    end_trial(runner, worker, how);
    return true;
}

static void end_all(Worker *workers, int count) {
    for (int i = 0; i < count; i++)
        if (workers[i].pid) kill(workers[i].pid, SIGTERM);
    for (int i = 0; i < count; i++)
        while (workers[i].pid && waitpid(workers[i].pid, NULL, 0) < 0 && errno == EINTR)
            ;
}

static bool stopped(const TrialRunner *runner) {
    const Watch *watch = runner->watch;
    return watch && watch->cancelled && watch->cancelled(watch->self);
}

static void tell(const TrialRunner *runner, int done, int count) {
    const Watch *watch = runner->watch;
    if (watch && watch->progress) watch->progress(watch->self, done, count, "");
}

/* Starts what waits and takes in what ended, until all have. */
static Status run_all(const TrialRunner *runner, Worker *workers, Trial *trials,
                      int count, Diag *diag) {
    const struct timespec nap = {.tv_nsec = 20 * 1000 * 1000};
    int next = 0, ended = 0;
    while (ended < count) {
        for (int i = 0; i < runner->jobs; i++) {
            if (reap(runner, &workers[i])) tell(runner, ++ended, count);
            while (next < count && trials[next].result.status != TRIAL_WAITS)
                next++, ended++;
            if (!workers[i].pid && next < count)
                TRY(start_trial(runner, &workers[i], &trials[next++], diag));
        }
        if (stopped(runner))
            return diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL, "interrupted");
        if (ended < count) nanosleep(&nap, NULL);
    }
    return STATUS_OK;
}

Status trials_run(const TrialRunner *runner, Trial *trials, int count, Diag *diag) {
    Worker *workers = memory_alloc((size_t)runner->jobs, sizeof *workers);
    for (int i = 0; i < count; i++)
        trial_read(&trials[i].result, runner->arena, trials[i].report, runner->metric);
    const Status status = run_all(runner, workers, trials, count, diag);
    if (status != STATUS_OK) end_all(workers, runner->jobs);
    free(workers);
    return status;
}
