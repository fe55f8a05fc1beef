/* StepSource: where a step and its options stand in the recipe, so that a fault points at
 * the option it is about. */
#ifndef COMPRESS_PASSES_STEP_SOURCE_H
#define COMPRESS_PASSES_STEP_SOURCE_H

#include "ir/tree.h"

typedef struct StepSource {
    Loc at;              /* of the step */
    const char *key;     /* path of the step: "passes[2]" */
    const Tree *options; /* the options as written, a map; NULL or null = none */
} StepSource;

/* Place of an option, or of the last one written of several joined by '|'; the step's
 * place if the recipe gives none of them. */
Loc option_loc(const StepSource *source, const char *options);

/* Reports a fault of an option at its place, under its path ("passes[2].distill.every").
 * `options` is one name or several, as above; NULL: the fault is the step's. A single
 * option that the recipe does not set is named in the message. Returns `status`.
 */
Status option_fail(const StepSource *source, const char *options, Status status,
                   Diag *diag, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Warns in the same way. */
void option_warn(const StepSource *source, const char *options, Diag *diag,
                 const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* option_fail with arguments in a list. */
Status option_fail_list(const StepSource *source, const char *options, Status status,
                        Diag *diag, const char *fmt, va_list args);

#endif
