/* Estimated shapes: what a plan does not know about units removed by scores that do not
 * exist yet.
 *
 * If all units have the same size, the model's totals are the same whichever are
 * removed, and the plan's totals are exact. How many each layer keeps is still an
 * estimate, and a later step that removes one layer, or factors some, turns the totals
 * into estimates. So the plan tracks the weights whose shapes are estimates from step to
 * step; ctx->guessed says that the totals are. */
#ifndef COMPRESS_PASSES_GUESS_H
#define COMPRESS_PASSES_GUESS_H

#include "passes/context.h"

/* Notes that the present shape of a weight is an estimate. Does nothing if the context
 * does not track this: runs estimate nothing. */
void guess_note(PassContext *ctx, const Storage *storage);

/* The shape of a weight is exact from now on, whatever it was. */
void guess_settle(PassContext *ctx, const Storage *storage);

/* Whether the shape of a weight is an estimate, and whether that of any is. */
bool guess_has(const PassContext *ctx, const Storage *storage);
bool guess_any(const PassContext *ctx);

/* After a step, looks for tracked weights that it did not all change in the same way:
 * the graph's totals are estimates from then on, and the first such step gives a
 * warning.
 */
void guess_follow(PassContext *ctx, const Graph *graph, Diag *diag);

#endif
