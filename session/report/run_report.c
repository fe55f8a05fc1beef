/* Run report: see run_report.h. */
#include "session/report/run_report.h"

#include "exec/linalg/products.h"
#include "exec/run/parallel.h"
#include "exec/run/ranks.h"
#include "exec/run/ticker.h"
#include "io/files/json.h"
#include "ir/version.h"
#include "session/companions.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>

const char *run_status_name(Status status) {
    switch (status) {
    case STATUS_OK: return "done";
    case STATUS_GATE: return "gate";
    case STATUS_INTERRUPTED: return "interrupted";
    default: return "error";
    }
}

/* ---- how it ended ---- */

/* Errors and warnings as they become maps and lines. */
typedef struct Told {
    Arena *arena;
    Tree *errors;
    Tree *error; /* the latest; notes and hints are about it */
} Told;

static void put_place(Arena *arena, Tree *map, const DiagEntry *entry) {
    if (entry->at.file) tree_put_string(arena, map, "file", entry->at.file);
    if (entry->at.line > 0) tree_put_int(arena, map, "line", entry->at.line);
    if (entry->at.line > 0 && entry->at.column > 0)
        tree_put_int(arena, map, "column", entry->at.column);
    if (entry->key && *entry->key) tree_put_string(arena, map, "key", entry->key);
}

/* Adds a line to the text under a key: an error may have several notes. */
static void put_line(Arena *arena, Tree *map, const char *key, const char *line) {
    const Tree *before = tree_get(map, key);
    tree_put_string(arena, map, key,
                    before ? arena_printf(arena, "%s\n%s", before->string, line) : line);
}

static void tell(void *self, const DiagEntry *entry) {
    Told *told = self;
    switch (entry->kind) {
    case DIAG_ERROR:
        told->error = tree_add_map(told->arena, told->errors);
        tree_put_string(told->arena, told->error, "message", entry->message);
        put_place(told->arena, told->error, entry);
        break;
    case DIAG_NOTE:
        if (told->error) put_line(told->arena, told->error, "note", entry->message);
        break;
    case DIAG_HINT:
        if (told->error) put_line(told->arena, told->error, "hint", entry->message);
        break;
    case DIAG_WARNING: break;
    }
}

/* The first error, by which the run ended, and all of them where there are several. */
static void put_errors(Arena *arena, Tree *map, const Diag *diag) {
    Told told = {.arena = arena, .errors = tree_new(arena, TREE_LIST, LOC_NONE)};
    diag_visit(diag, tell, &told);
    if (told.errors->count == 0) return;
    tree_put(arena, map, "error", tree_copy(arena, told.errors->first));
    if (told.errors->count > 1) tree_put(arena, map, "errors", told.errors);
}

static void put_gate(Arena *arena, Tree *map, const Session *session) {
    const GateFault *gate = &session->failed.gate;
    if (!gate->metric) return;
    Tree *row = tree_put_map(arena, map, "gate");
    tree_put_int(arena, row, "step", session->failed.step + 1);
    tree_put_string(arena, row, "metric", gate->metric);
    tree_put_string(arena, row, "bound", gate->bound);
    tree_put_real(arena, row, "expected", gate->expected);
    tree_put_real(arena, row, "found", gate->found);
}

static void keep_warning(void *self, const char *line) {
    const Told *told = self;
    tree_add_string(told->arena, told->errors, line);
}

static void put_warnings(Arena *arena, Tree *map, const Diag *diag) {
    Told told = {.arena = arena, .errors = tree_put_list(arena, map, "warnings")};
    diag_warnings(diag, keep_warning, &told);
}

/* ---- what ran, and on what ---- */

static void put_tool(Arena *arena, Tree *map) {
    Tree *tool = tree_put_map(arena, map, "tool");
    tree_put_string(arena, tool, "name", "compress");
    tree_put_string(arena, tool, "version", COMPRESS_VERSION_TEXT);
}

/* The recipe as it is after all changes; and what it says of the whole run. */
static void put_recipe(const Session *session, Tree *map) {
    Arena *arena = session->arena;
    const Tree *document = session->recipe.source;
    const Tree *name = tree_get_nonnull(document, "name");
    Tree *recipe = tree_put_map(arena, map, "recipe");
    tree_put_string(arena, recipe, "path", session->options.recipe);
    if (name && name->kind == TREE_STRING)
        tree_put_string(arena, recipe, "name", name->string);
    if (document) tree_put(arena, recipe, "resolved", tree_copy(arena, document));
    if (!session->bound) return;
    tree_put_int(arena, map, "seed", session->recipe.seed);
    tree_put_int(arena, map, "threads", session->threads);
}

/* What the processor calls itself, NULL where the system does not say. */
static const char *processor_model(Arena *arena) {
    FILE *file = fopen("/proc/cpuinfo", "re");
    const char *found = NULL;
    char line[256];
    while (file && !found && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        line[strcspn(line, "\n")] = 0;
        found = arena_strdup(arena, colon + 1 + strspn(colon + 1, " "));
    }
    if (file) fclose(file);
    return found;
}

static void put_host(Arena *arena, Tree *map) {
    struct utsname system;
    const char *model = processor_model(arena);
    tree_put_string(arena, map, "processor", processor_name(processor_level()));
    if (products_name()) tree_put_string(arena, map, "products", products_name());
    Tree *host = tree_put_map(arena, map, "host");
    if (uname(&system) == 0) tree_put_string(arena, host, "architecture", system.machine);
    if (model) tree_put_string(arena, host, "model", model);
    tree_put_int(arena, host, "cores", threads_available());
}

static void put_input(const Session *session, Tree *map) {
    Arena *arena = session->arena;
    if (!session->model) return;
    Tree *input = tree_put_map(arena, map, "input");
    tree_put_string(arena, input, "path", session->input.path);
    if (*session->input.hash) tree_put_string(arena, input, "hash", session->input.hash);
    if (session->input.bytes > 0)
        tree_put_int(arena, input, "file_bytes", session->input.bytes);
    if (session->measured) report_put_start(&session->report, input);
}

static void put_data(const Session *session, Tree *map) {
    Arena *arena = session->arena;
    Tree *sets = tree_put_map(arena, map, "data");
    for (int i = 0; i < session->data.count; i++) {
        const DataEntry *entry = &session->data.entries[i];
        if (!entry->format) continue;
        Tree *row = tree_put_map(arena, sets, entry->name);
        tree_put_string(arena, row, "format", entry->format->name);
        if (entry->batches) tree_put_int(arena, row, "samples", entry->batches->count);
        if (*entry->hash) tree_put_string(arena, row, "hash", entry->hash);
    }
}

/* ---- what came of it ---- */

/* The model's hash and the files that were written. */
static void put_output(const Session *session, Tree *map) {
    Arena *arena = session->arena;
    Tree *output = tree_put_map(arena, map, "output");
    if (*session->outputs.hash)
        tree_put_string(arena, output, "hash", session->outputs.hash);
    companions_report(session, output);
    Tree *files = tree_put_list(arena, output, "files");
    for (int i = 0; i < session->outputs.count; i++) {
        const ModelOutput *file = &session->outputs.items[i];
        if (file->written.files == 0) continue;
        Tree *row = tree_add_map(arena, files);
        tree_put_string(arena, row, "path", file->path);
        tree_put_string(arena, row, "format", file->format->name);
        tree_put_string(arena, row, "dtype", file->options.dtype);
        if (*file->hash) tree_put_string(arena, row, "hash", file->hash);
        tree_put_int(arena, row, "bytes", file->written.bytes);
    }
}

static void put_cost(const Session *session, Tree *map) {
    struct rusage used;
    tree_put_real(session->arena, map, "seconds", ticker_seconds() - session->start);
    if (getrusage(RUSAGE_SELF, &used) == 0) /* in KiB */
        tree_put_int(session->arena, map, "peak_memory", (int64_t)used.ru_maxrss * 1024);
}

Tree *run_report(const Session *session, Status status, const Diag *diag) {
    Arena *arena = session->arena;
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    put_tool(arena, map);
    tree_put_string(arena, map, "status", run_status_name(status));
    tree_put_int(arena, map, "exit_code", status_exit_code(status));
    if (status != STATUS_OK) put_errors(arena, map, diag);
    put_gate(arena, map, session);
    put_recipe(session, map);
    if (session->bound) tree_put_int(arena, map, "ranks", ranks_count());
    put_host(arena, map);
    put_input(session, map);
    put_data(session, map);
    tree_put(arena, map, "steps", report_steps(&session->report, true));
    put_output(session, map);
    put_warnings(arena, map, diag);
    put_cost(session, map);
    return map;
}

Tree *run_report_plan(const Session *session) {
    Arena *arena = session->arena;
    Tree *map = tree_new(arena, TREE_MAP, LOC_NONE);
    put_tool(arena, map);
    put_recipe(session, map);
    report_put_start(&session->planned, tree_put_map(arena, map, "input"));
    tree_put(arena, map, "steps", report_steps(&session->planned, false));
    tree_put_int(arena, map, "memory_bytes", session->planned.memory);
    return map;
}

Status run_report_write(const Tree *report, const char *path, Diag *diag) {
    if (strcmp(path, "-") != 0) return json_write(report, path, diag);
    Text text = {0};
    tree_print_json(&text, report, 2);
    text_add(&text, "\n");
    errno = 0;
    const bool written =
        fwrite(text.data, 1, text.length, stdout) == text.length && fflush(stdout) == 0;
    text_free(&text);
    if (written) return STATUS_OK;
    return diag_fail(diag, STATUS_IO, LOC_NONE, "--report",
                     "cannot write to standard output: %s", strerror(errno));
}
