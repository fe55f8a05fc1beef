/* Importance: options of the pass, and the part that differentiates the loss. */
#ifndef COMPRESS_PASSES_PRUNING_IMPORTANCE_TAYLOR_H
#define COMPRESS_PASSES_PRUNING_IMPORTANCE_TAYLOR_H

#include "passes/pruning/prune.h"

enum { ABS_ELEMENT, ABS_BLOCK };
enum { ACCUMULATE_ABS_THEN_SUM, ACCUMULATE_SUM_THEN_ABS };

typedef struct ImportanceOptions {
    const char *data;
    int64_t limit, batch_size;
    int score;      /* index into SCORE_NAMES */
    int abs;        /* ABS_ */
    int accumulate; /* ACCUMULATE_ */
    StringList outputs;
    const char *stack;
} ImportanceOptions;

/* Fills the scores of the model's heads and feed-forward units with first-order Taylor
 * importance: see docs/passes/importance.md. Layers that share weights get scores of
 * their own. `samples` receives the number used. When planning, only what needs no
 * weights is done, and there are no scores. */
Status importance_taylor(Prune *heads, Prune *ffn, Model *model,
                         const ImportanceOptions *options, int64_t *samples, Diag *diag);

#endif
