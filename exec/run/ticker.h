/* Ticker: lets long work communicate with its caller a few times a second, from one
 * thread. */
#ifndef COMPRESS_EXEC_RUN_TICKER_H
#define COMPRESS_EXEC_RUN_TICKER_H

#include "ir/status.h"

#include <stdbool.h>
#include <stdint.h>

/* What long work reports to its caller, and asks: both may be NULL. */
typedef struct Watch {
    void *self;
    /* `done` of `total` units; `text` is a short state like "loss 0.412"; at most a few
     * calls a second. */
    void (*progress)(void *self, int64_t done, int64_t total, const char *text);
    bool (*cancelled)(void *self); /* true: stop with STATUS_INTERRUPTED */
} Watch;

typedef struct Ticker {
    const Watch *watch; /* may be NULL */
    double asked, told; /* times of the last calls; 0 = never */
    int used, threads;  /* threads that the work can use, out of those it was given */
} Ticker;

/* Seconds on a clock that only goes forward, from an arbitrary start. */
double ticker_seconds(void);

/* Whether the caller wants the work to stop; checks at most a few times a second. */
bool ticker_cancelled(Ticker *ticker);

/* The same for work that ends there: fails with STATUS_INTERRUPTED, "interrupted". */
Status ticker_go_on(Ticker *ticker, Diag *diag);

/* Reports progress if it is time to, or always with `now`. The text is "loss <loss>",
 * with ", 2 of 16 threads" if not all are used; empty when the loss is NaN. */
void ticker_progress(Ticker *ticker, int64_t done, int64_t total, double loss, bool now);

#endif
