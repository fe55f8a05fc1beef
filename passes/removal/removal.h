/* Removal: which layers of a stack are removed, whole or one block of each, and what
 * that says about the remaining weights. Shared by remove_layer and remove_block. */
#ifndef COMPRESS_PASSES_REMOVAL_REMOVAL_H
#define COMPRESS_PASSES_REMOVAL_REMOVAL_H

#include "passes/block.h"
#include "passes/oneshot/calibration.h"
#include "passes/posterior/prior.h"

#define REMOVAL_ORDERS "spread|relevance|random|influence"
typedef enum RemovalOrder {
    ORDER_SPREAD,
    ORDER_RELEVANCE,
    ORDER_RANDOM,
    ORDER_INFLUENCE
} RemovalOrder;

#define REMOVAL_ORDER_HELP                                                               \
    "which go when only their number is given: such that those that stay are spread "    \
    "over the depth; those whose removal the posterior finds most plausible (see "       \
    "estimate_posterior), one after another; random ones; or those that change what "    \
    "they read least on data (see data)"

typedef struct Removal {
    PassContext *ctx;
    Graph *graph;
    const char *stack;
    int part;                /* of the layers: BLOCK_ALL or a BlockKind */
    const double *influence; /* by layer (removal_influence); NULL = not known */
} Removal;

/* Checks that options about data come with an order or a bridge that uses them. */
Status removal_check_data(const CalibrationOptions *options, bool used,
                          const StepSource *source, Diag *diag);

/* Opens the calibration set for the inputs and outputs of the removed parts of `layers`,
 * also used for bridges in their place; NULL if the options name none, and when
 * planning. Fails as calibration_open does. */
Status removal_calibrate(Calibration **out, const Removal *removal, IntList layers,
                         const CalibrationOptions *options, bool bridge, Diag *diag);

/* Finds the influence of `layers`, or of their blocks: 1 - cos(x, y) of input x and
 * output y, averaged over the rows of the calibration set (Men et al., ShortGPT, 2024);
 * 0 for a row that is 0 on one side. Recorded as "influence"; not known if `calibration`
 * is NULL. Fails as calibration_rows does. */
Status removal_influence(Removal *removal, IntList layers, Calibration *calibration,
                         Diag *diag);

/* The input and output of the removed part of a layer. Fails as layer_ends does, or
 * layer_blocks. */
Status removal_ends(LayerEnds *ends, const Removal *removal, int layer, Diag *diag);

/* Chooses `count` of `layers` (ascending) into `drop`, ascending. `influence` takes
 * those with the smallest influence, the first of equals. `relevance` takes them one
 * after another, each time the one with the smallest relevance
 * (passes/posterior/relevance.h), conditions on its zeros and continues; it records its
 * choices as "relevance". When planning, the choice is spread over the depth, and the
 * record says "approximate". Fails with STATUS_MODEL. */
Status removal_choose(IntList *drop, const Removal *removal, IntList layers,
                      int64_t count, RemovalOrder order, Diag *diag);

/* The entries (v2) that are set so that the removed part of `layers` is the identity.
 * `approximate` receives whether that holds only for normalised values. Fails with
 * STATUS_MODEL when a layer is not a chain of blocks, or a parameter is also used by
 * what stays. */
Status removal_given(SliceList *given, bool *approximate, const Removal *removal,
                     IntList layers, Diag *diag);

/* After `layers` (or their blocks) left `model`: what `prior` says about its weights.
 * `before` is a copy of the earlier model; PRIOR_GAUSSIAN uses up its Gaussians; for the
 * other kinds it may be NULL. Fails with STATUS_MODEL. */
Status removal_finish(const Removal *removal, Model *model, Model *before, IntList layers,
                      PriorKind prior, Diag *diag);

/* `count` of `depth` layers to keep, spread over the depth including both ends, rounded;
 * for 12, those that DistilBERT's authors keep. In `arena`. */
IntList removal_spread(Arena *arena, int count, int depth);

/* The numbers below `depth` that are not in `list`; ascending, in `arena`. */
IntList removal_others(Arena *arena, IntList list, int depth);

#endif
