/* Progress lines with the time left. */
#include "cli/progress.h"

#include "cli/program.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "cli/text_table.h"
#include "exec/run/ticker.h"

#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

Progress progress_create(bool quiet) {
    const double now = ticker_seconds();
    return (Progress){.live = !quiet && isatty(STDERR_FILENO) && !getenv("CI"),
                      .quiet = quiet,
                      .heartbeat = HEARTBEAT_SECONDS,
                      .start = now,
                      .told = now};
}

void progress_clear(Progress *progress) {
    if (progress->shown) fputs("\r\033[K", stderr);
    progress->shown = false;
}

void progress_warn(void *self, const char *line) {
    if (self) progress_clear(self);
    program_print(line, stderr);
    fputc('\n', stderr);
}

/* What stands in front of a line: the step's number and its name. */
static const char *progress_title(const Progress *progress, Arena *arena) {
    if (progress->steps == 0) return progress->name;
    return arena_printf(arena, "[%d/%d] %s", progress->step + 1, progress->steps,
                        progress->name);
}

void progress_begin(Progress *progress, int step, int steps, const char *name) {
    progress->step = step;
    progress->steps = steps;
    progress->name = name;
    progress->start = progress->told = ticker_seconds();
    progress->done = progress->total = progress->first = 0;
    if (progress->quiet || (!progress->live && steps == 0)) return;
    Arena *arena = arena_create();
    progress_clear(progress);
    fprintf(stderr, "%s ...%s", progress_title(progress, arena),
            progress->live ? "" : "\n");
    fflush(stderr);
    progress->shown = progress->live;
    arena_destroy(arena);
}

void progress_end(Progress *progress, const char *fmt, ...) {
    progress_clear(progress);
    if (progress->quiet) return;
    Arena *arena = arena_create();
    va_list list;
    va_start(list, fmt);
    fprintf(stderr, "%s: ", progress_title(progress, arena));
    vfprintf(stderr, fmt, list);
    fputc('\n', stderr);
    va_end(list);
    arena_destroy(arena);
    progress->name = NULL; /* nothing to tell until the next step */
}

/* What is known of a step that is not over: "[1/3] distill  45% loss 0.52, 1:20 left". */
static const char *progress_line(const Progress *progress, Arena *arena) {
    const char *title = progress_title(progress, arena);
    const double elapsed = ticker_seconds() - progress->start;
    const double done = (double)progress->done, total = (double)progress->total;
    const double since = done - (double)progress->first;
    const double took = ticker_seconds() - progress->first_time;
    if (total <= 0)
        return arena_printf(arena, "%s, %s so far", title, text_seconds(arena, elapsed));
    const char *line = arena_printf(arena, "%s %3.0f%%%s%s", title, 100 * done / total,
                                    *progress->text ? " " : "", progress->text);
    if (since <= 0 || done >= total || elapsed <= 1) return line;
    return arena_printf(arena, "%s, %s left", line,
                        text_seconds(arena, took * (total - done) / since));
}

/* Prints a line in a log when the last one is a heartbeat ago. */
static void progress_beat(Progress *progress) {
    const double now = ticker_seconds();
    if (progress->quiet || progress->live || !progress->name ||
        now - progress->told < progress->heartbeat)
        return;
    progress->told = now;
    Arena *arena = arena_create();
    fprintf(stderr, "%s\n", progress_line(progress, arena));
    arena_destroy(arena);
}

void progress_update(void *self, int64_t done, int64_t total, const char *text) {
    Progress *progress = self;
    if (total <= 0 || !progress->name) return;
    if (progress->total == 0 || done < progress->done) {
        progress->first = done;
        progress->first_time = ticker_seconds();
    }
    progress->done = done;
    progress->total = total;
    snprintf(progress->text, sizeof progress->text, "%s", text ? text : "");
    progress_beat(progress);
    if (!progress->live) return;
    Arena *arena = arena_create();
    const char *line = progress_line(progress, arena);
    fprintf(stderr, "\r%.*s\033[K", terminal_fit(line, terminal_columns(stderr) - 1),
            line);
    fflush(stderr);
    progress->shown = true;
    arena_destroy(arena);
}

/* Fits Watch.cancelled; is asked often, also by work that tells no numbers. */
static bool progress_cancelled(void *self) {
    progress_beat(self);
    return signals_interrupted(NULL);
}

Watch progress_watch(Progress *progress) {
    return (Watch){
        .self = progress, .progress = progress_update, .cancelled = progress_cancelled};
}
