/* History: what a training run remembers about its steps for its report. */
#ifndef COMPRESS_EXEC_TRAIN_HISTORY_H
#define COMPRESS_EXEC_TRAIN_HISTORY_H

#include "exec/train/train.h"
#include "exec/train/train_state.h"

typedef struct History History;

/* The history of a run of `total` steps, `epoch` per epoch, whose loss has `parts`
 * further parts. Rows of the curve end every `log_every` steps; with 0, at the end of
 * every epoch, or of parts of an epoch if there would be fewer than HISTORY_ROWS_LEAST
 * rows, or of several epochs if there would be more than HISTORY_ROWS_MOST. */
#define HISTORY_ROWS_LEAST 20
#define HISTORY_ROWS_MOST  200
History *history_create(int64_t total, int64_t epoch, int64_t log_every, int parts);
void history_destroy(History *history);

/* One step. */
typedef struct HistoryStep {
    int64_t step;         /* from 0 */
    int64_t samples;      /* of its mini-batch */
    const double *losses; /* the loss, then the parts; means */
    double prior;         /* what priors add to the loss */
    double norm;          /* of the gradient before clipping */
    double rate;          /* the learning rate, for lr_groups with factor 1 */
} HistoryStep;

/* Adds a step. */
void history_add(History *history, const HistoryStep *step);

/* What was measured on the development set after `step` steps, finite or not: ends the
 * row. */
void history_measured(History *history, int64_t step, double value);

/* The report after `steps` steps, which ended the run, in the arena. */
void history_report(const History *history, int64_t steps, Arena *arena,
                    TrainReport *report);

/* Puts the history into a state, as views; and takes it back, after `steps` steps. Fails
 * with STATUS_MODEL, the history unchanged, if the state belongs to another run. */
void history_save(const History *history, TrainState *state);
Status history_load(History *history, TrainState *state, int64_t steps, Diag *diag);

#endif
