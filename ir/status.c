/* Status: exit codes and the list of diagnostics. */
#include "ir/status.h"

#include "ir/arena.h"
#include "ir/text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char *const KIND_NAMES[] = {"error", "warning", "note", "hint"};

typedef struct Entry {
    DiagEntry what;
    bool told; /* a warning that was handed on */
    struct Entry *next;
} Entry;

struct Diag {
    Arena *arena;
    Entry *first, *last;
    Entry *anchor; /* the latest error, or its latest note or hint */
    Status status;
    int errors;
    int warnings;      /* of them WARNINGS_MOST are kept */
    DiagLine *warning; /* see diag_on_warning */
    void *warned;      /* its self */
};

/* Of each so many are told, of warnings no more are kept; and the bytes of a word. */
enum { ERRORS_MOST = 100, WARNINGS_MOST = 100, WORD_MOST = 200 };

static const struct {
    int code;
    const char *help;
} STATUSES[] = {
#define STATUS(name, code, help) {code, help},
#include "ir/status.def"
#undef STATUS
};

int status_exit_code(Status status) {
    bool known = (unsigned)status < STATUS_COUNT;
    return STATUSES[known ? status : STATUS_INTERNAL].code;
}

const char *status_help(Status status) {
    bool known = (unsigned)status < STATUS_COUNT;
    return STATUSES[known ? status : STATUS_INTERNAL].help;
}

Diag *diag_create(void) {
    Diag *diag = memory_alloc(1, sizeof *diag);
    diag->arena = arena_create();
    return diag;
}

void diag_destroy(Diag *diag) {
    if (!diag) return;
    arena_destroy(diag->arena);
    free(diag);
}

void diag_clear(Diag *diag) {
    arena_destroy(diag->arena);
    *diag =
        (Diag){.arena = arena_create(), .warning = diag->warning, .warned = diag->warned};
}

/* New entry, linked behind `after` (NULL: at the end). */
static Entry *entry_add(Diag *diag, Entry *after, DiagKind kind, const char *message) {
    Entry *entry = ARENA_NEW(diag->arena, Entry);
    entry->what.kind = kind;
    entry->what.message = message;
    if (!after) after = diag->last;
    if (after) {
        entry->next = after->next;
        after->next = entry;
    } else {
        diag->first = entry;
    }
    if (after == diag->last) diag->last = entry;
    return entry;
}

static void entry_place(Diag *diag, Entry *entry, Loc at, const char *key) {
    entry->what.at = at;
    entry->what.at.file = arena_strdup(diag->arena, at.file);
    entry->what.key = arena_strdup(diag->arena, key);
}

Status diag_fail(Diag *diag, Status status, Loc at, const char *key, const char *fmt,
                 ...) {
    va_list args;
    va_start(args, fmt);
    char *message = arena_vprintf(diag->arena, fmt, args);
    va_end(args);
    Entry *entry = entry_add(diag, NULL, DIAG_ERROR, message);
    entry_place(diag, entry, at, key);
    diag->anchor = entry;
    if (diag->errors++ == 0) diag->status = status;
    return status;
}

void diag_note(Diag *diag, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    char *message = arena_vprintf(diag->arena, fmt, args);
    va_end(args);
    Entry *entry = entry_add(diag, diag->anchor, DIAG_NOTE, message);
    if (diag->anchor) diag->anchor = entry;
}

void diag_hint(Diag *diag, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    char *message = arena_vprintf(diag->arena, fmt, args);
    va_end(args);
    Entry *entry = entry_add(diag, diag->anchor, DIAG_HINT, message);
    if (diag->anchor) diag->anchor = entry;
}

static Entry *latest_error(const Diag *diag) {
    Entry *latest = NULL;
    for (Entry *entry = diag->first; entry; entry = entry->next)
        if (entry->what.kind == DIAG_ERROR) latest = entry;
    return latest;
}

void diag_named(Diag *diag, Loc at) {
    const Entry *error = latest_error(diag);
    const char *file = error ? error->what.at.file : NULL;
    if (!at.file || at.line == 0 || (file && strcmp(file, at.file) == 0)) return;
    diag_note(diag, "named in %s:%d", at.file, at.line);
    entry_place(diag, diag->anchor, at, NULL);
}

void diag_rename_folder(Diag *diag, const char *from, const char *to) {
    const size_t length = strlen(from);
    for (Entry *entry = diag->first; entry; entry = entry->next) {
        const char **file = &entry->what.at.file;
        if (entry->what.kind == DIAG_ERROR && *file &&
            strncmp(*file, from, length) == 0 && (*file)[length] == '/')
            *file = arena_printf(diag->arena, "%s%s", to, *file + length);
    }
}

void diag_place(Diag *diag, Loc at, const char *key) {
    Entry *latest = latest_error(diag);
    if (latest && !latest->what.at.file)
        entry_place(diag, latest, at, latest->what.key ? latest->what.key : key);
}

/* ---- printing ---- */

/* Prints text that may come from a damaged file: control characters, and bytes that are
 * no UTF-8, are shown as \xNN, and further lines are indented, so that no line can pass
 * for a message of its own. Words of more than `most` bytes end in "...". */
static void print_safe(FILE *out, const char *text, size_t most, bool lines) {
    size_t length = 0; /* of the word, a name say, that is printed */
    for (size_t bytes; *text; text += bytes) {
        const unsigned char byte = (unsigned char)*text;
        const bool ends = byte == ' ' || byte == '\n';
        const int whole = utf8_bytes(text);
        bytes = whole > 0 ? (size_t)whole : 1;
        if (!ends && length >= most) {
            fputs("...", out);
            bytes = strcspn(text, " \n");
        } else if (byte == '\n' && lines) {
            fputs("\n        ", out);
        } else if (byte < 0x20 || byte == 0x7f || whole == 0) {
            fprintf(out, "\\x%02x", byte);
        } else {
            fwrite(text, 1, bytes, out);
        }
        length = ends ? 0 : length + bytes;
    }
}

static void print_entry(FILE *out, const Entry *entry) {
    const Loc at = entry->what.at;
    if (at.file && entry->what.kind != DIAG_NOTE) {
        print_safe(out, at.file, SIZE_MAX, false);
        if (at.line > 0) fprintf(out, ":%d", at.line);
        if (at.line > 0 && at.column > 0) fprintf(out, ":%d", at.column);
        fputs(": ", out);
    }
    fprintf(out, "%s: ", KIND_NAMES[entry->what.kind]);
    if (entry->what.key && *entry->what.key) {
        print_safe(out, entry->what.key, WORD_MOST, false);
        fputs(": ", out);
    }
    print_safe(out, entry->what.message, WORD_MOST, true);
}

/* Hands an entry's line on. */
static void tell(const Entry *entry, DiagLine *line, void *self) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out) return;
    print_entry(out, entry);
    if (fclose(out) == 0) line(self, text);
    free(text);
}

/* Hands a new warning on, when someone wants it. */
static void tell_warning(Diag *diag, Entry *entry) {
    if (!diag->warning) return;
    entry->told = true;
    tell(entry, diag->warning, diag->warned);
}

/* ---- warnings ---- */

/* Whether a warning was given before at its place in a recipe: a plan and the run behind
 * it find the same. */
static bool warned_before(const Diag *diag, Loc at, const char *key,
                          const char *message) {
    for (const Entry *entry = diag->first; entry && (at.line > 0 || key);
         entry = entry->next)
        if (entry->what.kind == DIAG_WARNING && entry->what.at.line == at.line &&
            entry->what.at.column == at.column &&
            strcmp(entry->what.message, message) == 0 &&
            strcmp(entry->what.key ? entry->what.key : "", key ? key : "") == 0 &&
            entry->what.at.file && at.file && strcmp(entry->what.at.file, at.file) == 0)
            return true;
    return false;
}

void diag_warn(Diag *diag, Loc at, const char *key, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    char *message = arena_vprintf(diag->arena, fmt, args);
    va_end(args);
    if (warned_before(diag, at, key, message)) return;
    if (++diag->warnings > WARNINGS_MOST) return;
    Entry *entry = entry_add(diag, NULL, DIAG_WARNING, message);
    entry_place(diag, entry, at, key);
    tell_warning(diag, entry);
}

void diag_on_warning(Diag *diag, DiagLine *warning, void *self) {
    diag->warning = warning;
    diag->warned = self;
}

void diag_warnings(const Diag *diag, DiagLine *line, void *self) {
    for (const Entry *entry = diag->first; entry; entry = entry->next)
        if (entry->what.kind == DIAG_WARNING) tell(entry, line, self);
}

int diag_warning_count(const Diag *diag) {
    int count = 0;
    for (const Entry *entry = diag->first; entry; entry = entry->next)
        count += entry->what.kind == DIAG_WARNING;
    return count;
}

DiagEntry diag_warning(const Diag *diag, int index) {
    for (const Entry *entry = diag->first; entry; entry = entry->next)
        if (entry->what.kind == DIAG_WARNING && index-- == 0) return entry->what;
    return (DiagEntry){0};
}

Status diag_take(Diag *diag, Diag *from) {
    const Status status = from->status;
    if (!from->first) return status;
    for (const Entry *entry = from->first; entry; entry = entry->next) {
        const bool warning = entry->what.kind == DIAG_WARNING;
        if (warning && ++diag->warnings > WARNINGS_MOST) continue;
        Entry *copy = entry_add(diag, NULL, entry->what.kind,
                                arena_strdup(diag->arena, entry->what.message));
        entry_place(diag, copy, entry->what.at, entry->what.key);
        if (warning)
            tell_warning(diag, copy);
        else
            diag->anchor = copy;
    }
    if (from->warnings > WARNINGS_MOST) diag->warnings += from->warnings - WARNINGS_MOST;
    if (diag->errors == 0) diag->status = status;
    diag->errors += from->errors;
    diag_clear(from);
    return status;
}

void diag_take_warnings(Diag *diag, Diag *from, const char *what) {
    for (const Entry *entry = from->first; entry; entry = entry->next)
        if (entry->what.kind == DIAG_ERROR || entry->what.kind == DIAG_WARNING)
            diag_warn(diag, entry->what.at, entry->what.key, "%s: %s", what,
                      entry->what.message);
    diag_clear(from);
}

Status diag_status(const Diag *diag) {
    return diag->status;
}

int diag_errors(const Diag *diag) {
    return diag->errors;
}

void diag_visit(const Diag *diag, DiagVisit *visit, void *self) {
    for (const Entry *entry = diag->first; entry; entry = entry->next)
        visit(self, &entry->what);
}

/* Prints the errors up to ERRORS_MOST of them, and the rest. */
static void print_all(const Diag *diag, FILE *out) {
    int errors = 0;
    for (const Entry *entry = diag->first; entry; entry = entry->next) {
        errors += entry->what.kind == DIAG_ERROR;
        if (entry->told || (errors > ERRORS_MOST && entry->what.kind != DIAG_WARNING))
            continue;
        if (entry->what.kind == DIAG_NOTE || entry->what.kind == DIAG_HINT)
            fputs("    ", out);
        print_entry(out, entry);
        fputc('\n', out);
    }
    if (errors > ERRORS_MOST) fprintf(out, "and %d more errors\n", errors - ERRORS_MOST);
    if (diag->warnings > WARNINGS_MOST)
        fprintf(out, "and %d more warnings\n", diag->warnings - WARNINGS_MOST);
}

/* Put together first: a stream without a buffer would write byte by byte. */
void diag_print(const Diag *diag, FILE *out) {
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    print_all(diag, memory ? memory : out);
    if (memory && fclose(memory) == 0) fwrite(text, 1, length, out);
    free(text);
}
