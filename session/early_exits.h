/* Inference that leaves at exits by the model's own rule: `compress run --leave-early`
 * and compress_predict. */
#ifndef COMPRESS_SESSION_EARLY_EXITS_H
#define COMPRESS_SESSION_EARLY_EXITS_H

#include "io/formats/safetensors.h"
#include "passes/exits/exits.h"

typedef struct EarlyRun {
    Exits exits;
    Node **logits; /* of the exits */
    ExitRule rule;
    NamedTensor
        results[2]; /* "logits" f32[N, classes] of the exit at which a sample left;
                       "exit_layer" i32[N], the layer that it reads, from 1 */
    DynamicReport report;
} EarlyRun;

/* Finds, in the arena, the exits of a model and the rule that calibrate_exits, or
 * add_exits, stored in it; call before its sizes are bound. A rule that was stored for
 * other weights gives a warning. Fails with STATUS_MODEL, at `path` and `key`, if there
 * are no early exits or no rule. */
Status early_find(EarlyRun *run, Arena *arena, Model *model, const char *path,
                  const char *key, Diag *diag);

/* Makes the model's graph ready for about `runs` batches; both are borrowed. Fails as
 * dynamic_open does. */
Status early_open(Dynamic **out, const EarlyRun *run, Graph *graph, int64_t runs,
                  Diag *diag);

/* Runs all samples of `data`; to be released in any case. Fails as dynamic_over does. */
Status early_run(EarlyRun *run, Dynamic *ready, const Batches *data, int threads,
                 const Watch *watch, Diag *diag);

/* Samples per batch, before some leave it. */
enum { EARLY_SAMPLES = 16 };

/* Drops the results. */
void early_release(EarlyRun *run);

/* Mean of "exit_layer". */
double early_mean_depth(const EarlyRun *run);

#endif
