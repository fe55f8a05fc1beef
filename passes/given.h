/* Given: what a recipe gives a step, so that a fault points at the option it is about. */
#ifndef COMPRESS_PASSES_GIVEN_H
#define COMPRESS_PASSES_GIVEN_H

#include "ir/tree.h"

typedef struct Given {
    Loc at;              /* of the step */
    const char *key;     /* path of the step: "passes[2]" */
    const Tree *options; /* the options as written, a map; NULL or null = none */
} Given;

/* Place of an option, or of the last given of several joined by '|'; the step's where the
 * recipe gives none of them. */
Loc given_loc(const Given *given, const char *options);

/* Reports a fault of an option at its place, under its path ("passes[2].distill.every").
 * `options` is one name or several, as above; NULL: the fault is the step's. A
 * single option that the recipe does not give is named in the message. Returns `status`.
 */
Status given_fail(const Given *given, const char *options, Status status, Diag *diag,
                  const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Warns in the same way. */
void given_warn(const Given *given, const char *options, Diag *diag, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* given_fail with arguments in a list. */
Status given_fail_list(const Given *given, const char *options, Status status, Diag *diag,
                       const char *fmt, va_list args);

#endif
