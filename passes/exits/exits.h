/* Exits: the classifiers of a model at which inference may leave early.
 *
 * Early exits stand in stack "exits", layer l reading the output of layer l of the main
 * stack (graph_main_stack; both from 0), or the bridge behind it, factored or not,
 * that stands for blocks which were removed from its end, with role head on the
 * classifier; their results are the outputs "exit.1", "exit.2", ... numbered by layer
 * from 1, as the papers number them. The last exit is the model's output "logits". All
 * give [N, classes]. */
#ifndef COMPRESS_PASSES_EXITS_EXITS_H
#define COMPRESS_PASSES_EXITS_EXITS_H

#include "exec/run/dynamic.h"
#include "ir/storage.h"
#include "passes/fault.h"
#include "passes/nodes.h"
#include "passes/training/label_loss.h"

typedef struct Exit {
    const char *output; /* "exit.3", or "logits" */
    Node *logits;
    int layer; /* number of the layer it reads, from 1; the last exit: the depth */
} Exit;

typedef struct Exits {
    Exit *items; /* by layer; the last is "logits" */
    int count;
} Exits;

/* Whether a graph has early exits. */
bool exits_any(const Graph *graph);

/* The exits of a graph, in `arena`; just the last one when it has no early exits. Fails
 * with STATUS_MODEL, at the step's place, when there is no output "logits", or an output
 * "exit.K" is not as described at the top of this file. */
Status exits_find(Exits *out, Arena *arena, PassContext *ctx, const Graph *graph,
                  Diag *diag);

/* After layers were removed: removes their exits and renumbers the others. `kept` lists
 * the remaining layers as they were numbered before, ascending. An exit of the last
 * remaining layer is removed as well: "logits" reads that layer. Drops a stored rule.
 * Called by layers_keep before the layers are renumbered. */
Status exits_keep(PassContext *ctx, Model *model, IntList kept, Diag *diag);

/* Gradient equilibrium (Li et al., "Improved Techniques for Training Adaptive Deep
 * Networks", ICCV 2019; used by COST-EFF): scale_gradient nodes on a training graph, such
 * that layer k receives the mean, not the sum, of the gradients of the exits after it.
 * With c_i the number of exits at layer i or later, exit i's input is scaled by 1 / c_i,
 * and the trunk after an exit at layer i by c_{i+1} / c_i. */
Status exits_equilibrium(Graph *graph, const Exits *exits, Diag *diag);

/* Sum of the label losses of all exits. */
Status exits_label_loss(Node **out, Graph *graph, const Exits *exits,
                        const LabelLossOptions *options, Diag *diag);

/* The rule for leaving that calibrate_exits (or add_exits) stored in the model's
 * provenance under "exits"; in `arena`. `rule->criterion` is EXIT_NEVER when there is
 * none. Fails with STATUS_MODEL when it does not fit the exits. */
Status exits_read_rule(ExitRule *rule, Arena *arena, PassContext *ctx, const Model *model,
                       const Exits *exits, Diag *diag);

/* Warns about a stale rule at the step's place; returns whether it is stale. Not for
 * planning. */
bool exits_warn_stale(PassContext *ctx, Model *model, Diag *diag);

/* Stores a rule, thresholds by output name, with the model's hash. */
Status exits_store_rule(const ExitRule *rule, Model *model, const Exits *exits,
                        Diag *diag);

#endif
