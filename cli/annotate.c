/* Annotations: collecting errors and warnings with what stands below them, and the two
 * forms. */
#include "cli/annotate.h"

#include "io/files/json.h"
#include "io/files/path.h"
#include "ir/tensor.h"
#include "ir/tree.h"
#include "session/output_files.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* One error or warning. */
typedef struct Annotation {
    bool warning;
    const char *path; /* NULL = of no file */
    int line, column; /* 0 = of the whole file */
    bool placed;      /* in a file that there is */
    const char *key;  /* NULL = none */
    Text message;     /* notes and hints on lines of their own */
    struct Annotation *next;
} Annotation;

typedef struct Annotations {
    Arena *arena;
    const char *root;   /* of the checkout, NULL = not known */
    const char *recipe; /* NULL = not known */
    Annotation *first, *last;
} Annotations;

/* ---- collecting ---- */

/* A path relative to the root, where it lies below it. */
static const char *below_root(const Annotations *all, const char *path) {
    char whole[PATH_MAX], root[PATH_MAX];
    if (!all->root || !realpath(all->root, root) || !realpath(path, whole)) return path;
    const size_t length = strlen(root);
    if (strncmp(whole, root, length) != 0 || whole[length] != '/') return path;
    return arena_strdup(all->arena, whole + length + 1);
}

/* Whether there is such a file, under a name of its own: no stream, nothing in memory. */
static bool is_named_file(const char *path) {
    char whole[PATH_MAX];
    return path && realpath(path, whole) && path_is_file(whole);
}

/* Places an annotation in a file, where there is such a file. */
static void place(const Annotations *all, Annotation *one, Loc at) {
    one->placed = is_named_file(at.file);
    if (!one->placed) return;
    one->path = below_root(all, at.file);
    one->line = at.line;
    one->column = at.line > 0 ? at.column : 0;
}

/* DiagVisit. */
static void collect(void *self, const DiagEntry *entry) {
    Annotations *all = self;
    const bool below = entry->kind == DIAG_NOTE || entry->kind == DIAG_HINT;
    if (below && !all->last) return;
    if (below) { /* a note may know the line that names a missing file */
        if (!all->last->placed) place(all, all->last, entry->at);
        text_add(&all->last->message, "\n%s: %s",
                 entry->kind == DIAG_HINT ? "hint" : "note", entry->message);
        return;
    }
    Annotation *one = ARENA_NEW(all->arena, Annotation);
    one->warning = entry->kind == DIAG_WARNING;
    one->key = entry->key && *entry->key ? entry->key : NULL;
    if (is_named_file(all->recipe)) one->path = below_root(all, all->recipe);
    place(all, one, entry->at);
    if (entry->at.file && !one->placed) text_add(&one->message, "%s: ", entry->at.file);
    text_add(&one->message, "%s", entry->message);
    if (all->last)
        all->last->next = one;
    else
        all->first = one;
    all->last = one;
}

/* ---- GitHub ---- */

/* Appends text as a workflow command needs it: its message, or the value of a property.
 */
static void add_escaped(Text *text, const char *value, bool property) {
    for (; *value; value++) {
        const unsigned char byte = (unsigned char)*value;
        if (byte == '%' || byte < 0x20 || byte == 0x7f ||
            (property && (byte == ':' || byte == ',')))
            text_add(text, "%%%02X", byte);
        else
            text_bytes(text, value, 1);
    }
}

static void tell_github(const Annotation *one) {
    Text text = {0};
    text_add(&text, "::%s ", one->warning ? "warning" : "error");
    if (one->path) {
        text_add(&text, "file=");
        add_escaped(&text, one->path, true);
        if (one->line > 0) text_add(&text, ",line=%d", one->line);
        if (one->column > 0) text_add(&text, ",col=%d", one->column);
        text_add(&text, ",");
    }
    text_add(&text, "title=");
    add_escaped(&text, one->key ? one->key : "compress", true);
    text_add(&text, "::");
    add_escaped(&text, one->message.data, false);
    fprintf(stderr, "%s\n", text.data);
    text_free(&text);
}

/* ---- GitLab ---- */

/* A number that stays the same as long as the finding does, wherever it moves to. */
static const char *fingerprint(Arena *arena, const Annotation *one) {
    char hash[HASH_TEXT_BYTES];
    Text text = {0};
    text_add(&text, "%s\n%s\n%s", one->path ? one->path : "", one->key ? one->key : "",
             one->message.data);
    bytes_hash(text.data, text.length, hash);
    text_free(&text);
    return arena_strdup(arena, hash);
}

static void add_gitlab(Arena *arena, Tree *list, const Annotation *one) {
    Tree *map = tree_add_map(arena, list);
    tree_put_string(arena, map, "description",
                    arena_printf(arena, "%s%s%s", one->key ? one->key : "",
                                 one->key ? ": " : "", one->message.data));
    tree_put_string(arena, map, "check_name", one->warning ? "warning" : "error");
    tree_put_string(arena, map, "fingerprint", fingerprint(arena, one));
    tree_put_string(arena, map, "severity", one->warning ? "minor" : "critical");
    Tree *location = tree_put_map(arena, map, "location");
    tree_put_string(arena, location, "path", one->path ? one->path : "compress");
    tree_put_int(arena, tree_put_map(arena, location, "lines"), "begin",
                 one->line > 0 ? one->line : 1);
}

/* ---- both ---- */

static bool is_set(const char *name) {
    const char *value = getenv(name);
    return value && strcmp(value, "true") == 0;
}

/* The service that is meant, on the one that this runs on. */
static Annotate service_of(Annotate how) {
    if (how != ANNOTATE_AUTO) return how;
    return is_set("GITHUB_ACTIONS") ? ANNOTATE_GITHUB
           : is_set("GITLAB_CI")    ? ANNOTATE_GITLAB
                                    : ANNOTATE_NEVER;
}

Status annotate_check(const Cli *cli, Diag *diag) {
    static const char FLAG[] = "--annotate-file";
    const Flags *flags = &cli->flags;
    const char *path = flags->annotate_file ? flags->annotate_file : ANNOTATE_FILE;
    if (service_of((Annotate)flags->annotate) != ANNOTATE_GITLAB) return STATUS_OK;
    TRY(output_check(cli->arena, FLAG, path, diag));
    const char *others[] = {flags->report, flags->events, flags->output};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i] && same_file(path, others[i]))
            return diag_fail(diag, STATUS_USAGE, LOC_NONE, FLAG,
                             "expected another file than '%s', which is written as well",
                             others[i]);
    const char *items[] = {flags->recipe, flags->model, flags->input};
    const StringList read = {items, sizeof items / sizeof *items};
    if (flags->force) return STATUS_OK;
    return output_replace_check(FLAG, path, OUTPUT_ISSUES, &read, diag);
}

Status annotate(const Diag *told, Annotate how, const char *file, const char *recipe,
                Diag *diag) {
    how = service_of(how);
    if (how == ANNOTATE_NEVER) return STATUS_OK;
    const bool github = how == ANNOTATE_GITHUB;
    Annotations all = {.arena = arena_create(), .recipe = recipe};
    all.root = getenv(github ? "GITHUB_WORKSPACE" : "CI_PROJECT_DIR");
    diag_visit(told, collect, &all);
    Tree *list = tree_new(all.arena, TREE_LIST, LOC_NONE);
    for (Annotation *one = all.first; one; one = one->next) {
        if (github)
            tell_github(one);
        else
            add_gitlab(all.arena, list, one);
        text_free(&one->message);
    }
    const Status status =
        github ? STATUS_OK : json_write(list, file ? file : ANNOTATE_FILE, diag);
    arena_destroy(all.arena);
    return status;
}
