/* Replay: whether making a file again gives the same result. */
#ifndef COMPRESS_SESSION_REPORT_REPLAY_H
#define COMPRESS_SESSION_REPORT_REPLAY_H

#include "session/session.h"

/* One comparison: what was compared ("step 2 of 5, distill"), the recorded value and the
 * present one. Texts are valid during the call. */
typedef struct ReplayRow {
    const char *what, *then, *now;
    bool same;
} ReplayRow;

typedef struct ReplayOptions {
    const char *path; /* the model file */
    const char
        *folder; /* where the recipe's relative paths begin; NULL = the working folder */
    const char *model; /* what the run was given, or a new place of the input; NULL = as
                          it was named */
    StringList sets;   /* changes of the recipe, for data that have moved */
    int64_t threads;   /* 0 = the recipe's */
    const Watch *watch;
    void *self;
    void (*begin)(void *self, const Recipe *recipe, int index); /* a step begins */
    void (*row)(void *self, const ReplayRow *row); /* something was compared */
} ReplayOptions;

/* The level of processor that was fixed when a model file was made, according to its
 * provenance; PROCESSOR_AUTO if none was. Fails as model_load does. */
Status replay_processor(Processor *out, const char *path, Diag *diag);

/* Makes a model file again, by the recipe in its provenance, into a temporary folder, and
 * compares, in order, and up to the first difference: the input model, the files of the
 * data sets, the model and the record after every step, the model as it is written, and
 * the file's bytes, unless the recipe is changed. Files of older versions contain the
 * recipe's folder, as it was named from the working folder. Fails with STATUS_DIFFERENT
 * if something differs, which row() has received, with STATUS_MODEL for a file without a
 * recipe, and as the recipe does. */
Status replay_check(const ReplayOptions *options, Diag *diag);

#endif
