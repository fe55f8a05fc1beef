/* `compress run --leave-early`: inference that leaves at exits by the model's own rule.
 */
#ifndef COMPRESS_SESSION_EARLY_EXITS_H
#define COMPRESS_SESSION_EARLY_EXITS_H

#include "io/formats/safetensors.h"
#include "passes/exits/exits.h"

typedef struct EarlyRun {
    Arena *arena;
    Exits exits;
    ExitRule rule;
    NamedTensor results[2]; /* "logits" f32[N, classes] of the exit that a sample left at;
                               "exit_layer" i32[N], the layer that it reads, from 1 */
    DynamicReport report;
} EarlyRun;

/* Finds the exits of a model and the rule that calibrate_exits, or add_exits, stored in
 * it; call before its sizes are bound. A rule that was stored for other weights gives a
 * warning. Fails with STATUS_MODEL, at `path`, when there are no early exits or no rule.
 */
Status early_find(EarlyRun *run, Arena *arena, Model *model, const char *path,
                  Diag *diag);

/* Runs all samples of `data`; release both results in any case (tensor_release). Fails as
 * dynamic_batches does. */
Status early_run(EarlyRun *run, Graph *graph, const Batches *data, int threads,
                 const Watch *watch, Diag *diag);

/* Mean of "exit_layer". */
double early_mean_depth(const EarlyRun *run);

#endif
