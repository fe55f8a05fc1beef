/* Events: see events.h. */
#include "session/report/events.h"

#include "exec/run/ticker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Seconds between two events of progress. */
#define PROGRESS_PAUSE 1.0

struct Events {
    Arena *arena;
    const char *path;
    FILE *file;
    bool standard;   /* it is standard output */
    int error;       /* errno of the first line that could not be written */
    bool told;       /* it was reported */
    double progress; /* when progress was last written */
};

Status events_open(Events **out, const char *path, Diag *diag) {
    const bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdout : fopen(path, "we");
    if (!file)
        return diag_fail(diag, STATUS_IO, LOC_FILE(path), "--events",
                         "cannot open the file: %s", strerror(errno));
    Arena *arena = arena_create();
    *out = ARENA_NEW(arena, Events);
    **out = (Events){.arena = arena,
                     .path = arena_strdup(arena, path),
                     .file = file,
                     .standard = standard};
    return STATUS_OK;
}

Status events_check(Events *events, Diag *diag) {
    if (!events || !events->error || events->told) return STATUS_OK;
    events->told = true;
    return diag_fail(diag, STATUS_IO, LOC_FILE(events->path), "--events",
                     "cannot write: %s", strerror(events->error));
}

void events_close(Events *events) {
    if (!events) return;
    if (!events->standard) fclose(events->file);
    arena_destroy(events->arena);
}

static const char *now(Arena *arena) {
    char text[32];
    struct tm parts;
    const time_t seconds = time(NULL);
    gmtime_r(&seconds, &parts);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return arena_strdup(arena, text);
}

void events_put(Events *events, const char *name, const Tree *values) {
    if (!events || events->error) return;
    Arena *arena = arena_create();
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    Text line = {0};
    tree_put_string(arena, map, "event", name);
    tree_put_string(arena, map, "time", now(arena));
    for (const Tree *value = values ? values->first : NULL; value; value = value->next)
        tree_put(arena, map, value->key, tree_copy(arena, value));
    tree_print_json(&line, map, 0);
    text_add(&line, "\n");
    if (fwrite(line.data, 1, line.length, events->file) != line.length ||
        fflush(events->file) != 0)
        events->error = errno ? errno : EIO;
    text_free(&line);
    arena_destroy(arena);
}

void events_warning(Events *events, const char *line) {
    if (!events) return;
    Arena *arena = arena_create();
    Tree *values = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_string(arena, values, "message", line);
    events_put(events, "warning", values);
    arena_destroy(arena);
}

void events_progress(Events *events, int step, int64_t done, int64_t total,
                     const char *text, double seconds) {
    const double moment = ticker_seconds();
    if (!events || total <= 0 || moment - events->progress < PROGRESS_PAUSE) return;
    events->progress = moment;
    Arena *arena = arena_create();
    Tree *values = tree_new(arena, TREE_MAP, LOC_NONE);
    tree_put_int(arena, values, "step", step);
    tree_put_int(arena, values, "done", done);
    tree_put_int(arena, values, "total", total);
    if (text) tree_put_string(arena, values, "text", text);
    tree_put_real(arena, values, "seconds", seconds);
    if (done > 0)
        tree_put_real(arena, values, "eta",
                      seconds * (double)(total - done) / (double)done);
    events_put(events, "progress", values);
    arena_destroy(arena);
}
