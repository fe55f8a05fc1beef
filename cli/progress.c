/* Progress lines with the time left. */
#include "cli/progress.h"

#include "cli/signals.h"
#include "cli/text_table.h"
#include "exec/run/ticker.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

Progress progress_create(bool quiet) {
    bool live = !quiet && isatty(STDERR_FILENO) && !getenv("CI");
    return (Progress){.live = live, .quiet = quiet, .start = ticker_seconds()};
}

void progress_clear(Progress *progress) {
    if (progress->shown) fputs("\r\033[K", stderr);
    progress->shown = false;
}

void progress_warn(void *self, const char *line) {
    if (self) progress_clear(self);
    fprintf(stderr, "%s\n", line);
}

void progress_begin(Progress *progress, int step, int steps, const char *name) {
    progress->step = step;
    progress->steps = steps;
    progress->name = name;
    progress->start = ticker_seconds();
    if (!progress->live) return;
    progress_clear(progress);
    fprintf(stderr, "[%d/%d] %s ...", step + 1, steps, name);
    fflush(stderr);
    progress->shown = true;
}

void progress_end(Progress *progress, const char *fmt, ...) {
    progress_clear(progress);
    if (progress->quiet) return;
    va_list list;
    va_start(list, fmt);
    fprintf(stderr, "[%d/%d] %s: ", progress->step + 1, progress->steps, progress->name);
    vfprintf(stderr, fmt, list);
    fputc('\n', stderr);
    va_end(list);
}

static int terminal_width(void) {
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return 80;
    return size.ws_col < 200 ? size.ws_col : 200;
}

void progress_update(void *self, int64_t done, int64_t total, const char *text) {
    Progress *progress = self;
    if (!progress->live || total <= 0) return;
    double elapsed = ticker_seconds() - progress->start;
    Arena *arena = arena_create();
    char *line = arena_printf(arena, "[%d/%d] %s %3.0f%% %s", progress->step + 1,
                              progress->steps, progress->name,
                              100.0 * (double)done / (double)total, text ? text : "");
    if (done > 0 && done < total && elapsed > 1)
        line = arena_printf(
            arena, "%s, %s left", line,
            text_seconds(arena, elapsed * (double)(total - done) / (double)done));
    fprintf(stderr, "\r%.*s\033[K", terminal_width() - 1, line);
    fflush(stderr);
    progress->shown = true;
    arena_destroy(arena);
}

Watch progress_watch(Progress *progress) {
    return (Watch){
        .self = progress, .progress = progress_update, .cancelled = signals_interrupted};
}
