/* Reproducers: what is needed to rerun a step that failed because of a defect in the
 * program: a pass whose model does not verify, or that changes what it promised to
 * keep. */
#ifndef COMPRESS_SESSION_REPORT_REPRODUCER_H
#define COMPRESS_SESSION_REPORT_REPRODUCER_H

#include "session/session.h"

/* Its files. */
#define REPRODUCER_REPORT "report.json"
#define REPRODUCER_RECIPE "recipe.yaml"
#define REPRODUCER_MODEL  "before.h5"
#define REPRODUCER_GRAPH  "before.ir"

/* Writes the folder compress-reproducer-HASH, in the folder for dumps, else beside the
 * first output, else in the working directory: report.json (session/report/run_report.h)
 * with the errors so far, which are in `told`, recipe.yaml, and for the input model of
 * step `index` (`before`, NULL = not known) the IR text with its values, before.ir, and,
 * up to 1 GiB of weights, the model itself, before.h5. The same failure gives the same
 * name. The folder's path is stored in `path`, in the session's arena. Fails with
 * STATUS_IO. */
Status reproducer_write(const char **path, const Session *session, int index,
                        Model *before, const Diag *told, Diag *diag);

/* Reruns the step of such a folder. `with` holds further options of the session:
 * threads, sets, watch. `step` receives its name, "step 2 of 3, prune_ffn", in the
 * arena. Succeeds if the failure does not recur; fails with STATUS_INTERNAL and its
 * message if it does, with STATUS_MODEL for a folder without the model, and as the
 * reading of the recipe's data and models does. */
Status reproducer_replay(const char **step, Arena *arena, const char *folder,
                         const SessionOptions *with, Diag *diag);

#endif
