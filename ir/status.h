/* Status and diagnostics: how functions fail and what is reported to the user.
 *
 * Every fallible function returns a Status and takes `Diag *` last. The function that
 * finds the fault calls diag_fail once and returns its result; callers pass the status
 * on and may add notes. Code that can report several faults at once (binding a recipe)
 * continues after diag_fail; the first status is the one returned. */
#ifndef COMPRESS_IR_STATUS_H
#define COMPRESS_IR_STATUS_H

#include <stdbool.h>
#include <stdio.h>

typedef enum Status {
#define STATUS(name, code, help) STATUS_##name,
#include "ir/status.def"
#undef STATUS
    STATUS_COUNT
} Status;

/* Returns early from a function returning Status when `call` fails. */
#define TRY(call)                                                                        \
    do {                                                                                 \
        Status try_status_ = (call);                                                     \
        if (try_status_ != STATUS_OK) return try_status_;                                \
    } while (0)

/* Process exit code of a status, as listed in ir/status.def. */
int status_exit_code(Status status);

/* One-line description of a status, as listed in ir/status.def. */
const char *status_help(Status status);

/* A place in a text file. `file` NULL: no place; line 0: the file as a whole.
 * Lines and columns count from 1. The string is borrowed and must outlive the Loc. */
typedef struct Loc {
    const char *file;
    int line, column;
} Loc;

#define LOC_NONE       ((Loc){0})
#define LOC_FILE(path) ((Loc){(path), 0, 0})

typedef struct Diag Diag;

/* Creates an empty list of diagnostics; never NULL. */
Diag *diag_create(void);

/* Frees the list and its texts. NULL is allowed. */
void diag_destroy(Diag *diag);

/* Records an error at `at` (LOC_NONE if there is no file) about `key` (a path like
 * `passes[2].rank`, or NULL) and returns `status`, so that callers can write `return
 * diag_fail(...)`. The message says what was expected and what was found. */
Status diag_fail(Diag *diag, Status status, Loc at, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Adds a note (context) to the latest error. */
void diag_note(Diag *diag, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Adds a hint (what to do about it) to the latest error. */
void diag_hint(Diag *diag, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Adds a note that the latest error's file is named at `at`, for instance a line of a
 * recipe; does nothing if that is not a line, or is in the error's own file. */
void diag_named(Diag *diag, Loc at);

/* Reports errors in files below `from` as if they were below `to`, for a folder that is
 * written under a temporary name. */
void diag_rename_folder(Diag *diag, const char *from, const char *to);

/* Gives the latest error a place and a key if it has none: for callers that know where a
 * fault is that was found by code that does not. */
void diag_place(Diag *diag, Loc at, const char *key);

/* Receives one line: what diag_print prints for a warning, without the end of line. */
typedef void DiagLine(void *self, const char *line);

/* Calls `warning` with every warning from now on, as soon as it is recorded, on the
 * thread that records it; diag_print leaves those out. NULL: warnings wait for
 * diag_print again. */
void diag_on_warning(Diag *diag, DiagLine *warning, void *self);

/* Calls `line` with every warning recorded so far, in order. */
void diag_warnings(const Diag *diag, DiagLine *line, void *self);

/* What was recorded, as data. Strings belong to the list; file and key may be NULL. A
 * note with a place (diag_named) also has it in its text. */
typedef enum DiagKind { DIAG_ERROR, DIAG_WARNING, DIAG_NOTE, DIAG_HINT } DiagKind;

typedef struct DiagEntry {
    DiagKind kind;
    Loc at;
    const char *key, *message;
} DiagEntry;

/* Number of warnings recorded so far, and one of them, from 0. */
int diag_warning_count(const Diag *diag);
DiagEntry diag_warning(const Diag *diag, int index);

/* Records a warning, once per place in a recipe, at most 100; it does not affect the
 * outcome. */
void diag_warn(Diag *diag, Loc at, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Moves what `from` has recorded to the end of `diag`, in order, and returns the status
 * of the first error among it, STATUS_OK if there is none. For work done separately, for
 * instance by another thread, with its own list. `from` is empty afterwards. */
Status diag_take(Diag *diag, Diag *from);

/* Records the errors of `from` as warnings, without their notes and hints, each as
 * `what` and its message: for work that is not essential. `from` is empty afterwards. */
void diag_take_warnings(Diag *diag, Diag *from, const char *what);

/* Status of the first error, STATUS_OK if there is none. */
Status diag_status(const Diag *diag);

/* Number of errors recorded. */
int diag_errors(const Diag *diag);

/* Calls `visit` with everything recorded so far, including warnings already passed on,
 * in order: notes and hints follow their error. */
typedef void DiagVisit(void *self, const DiagEntry *entry);
void diag_visit(const Diag *diag, DiagVisit *visit, void *self);

/* Prints everything that was not passed on before, in order, as `file:line:col: error:
 * key: message`, with notes and hints indented below. Notes and hints follow their
 * error.
 */
void diag_print(const Diag *diag, FILE *out);

/* Forgets everything recorded, so that the list can be used again. */
void diag_clear(Diag *diag);

#endif
