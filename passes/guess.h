/* Guessed shapes: what a plan does not know of units that leave by scores which do not
 * exist yet.
 *
 * Where all units are of one size, the model's numbers are the same whichever go, and the
 * plan's are exact. Which layer keeps how many of them is a guess all the same, and a
 * step behind that takes one layer away, or factors some, makes guesses of the numbers.
 * So the plan notes the weights whose shapes are guessed and follows them from step to
 * step; ctx->guessed says that numbers are. */
#ifndef COMPRESS_PASSES_GUESS_H
#define COMPRESS_PASSES_GUESS_H

#include "passes/context.h"

/* Notes that the shape that a weight has now is guessed. Nothing where the context has
 * nowhere to note it: runs guess nothing. */
void guess_note(PassContext *ctx, const Storage *storage);

/* The shape of a weight will be the one that the plan gives it, whatever it was. */
void guess_settle(PassContext *ctx, const Storage *storage);

/* Whether the shape of a weight is guessed, and whether that of any is. */
bool guess_has(const PassContext *ctx, const Storage *storage);
bool guess_any(const PassContext *ctx);

/* Looks, behind a step, for noted weights that it changed otherwise than all in one way:
 * the graph's numbers are guesses from then on, which the first such step is warned of.
 */
void guess_follow(PassContext *ctx, const Graph *graph, Diag *diag);

#endif
