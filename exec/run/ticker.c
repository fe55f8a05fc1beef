/* Ticker: see exec/run/ticker.h. */
#include "exec/run/ticker.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

#define INTERVAL 0.2 /* seconds */

double ticker_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Whether the interval since *last is over; then a new one starts. */
static bool is_due(double *last) {
    double now = ticker_seconds();
    if (*last > 0 && now - *last < INTERVAL) return false;
    *last = now;
    return true;
}

bool ticker_cancelled(Ticker *ticker) {
    const Watch *watch = ticker->watch;
    if (!watch || !watch->cancelled || !is_due(&ticker->asked)) return false;
    return watch->cancelled(watch->self);
}

Status ticker_go_on(Ticker *ticker, Diag *diag) {
    return ticker_cancelled(ticker)
               ? diag_fail(diag, STATUS_INTERRUPTED, LOC_NONE, NULL, "interrupted")
               : STATUS_OK;
}

void ticker_progress(Ticker *ticker, int64_t done, int64_t total, double loss, bool now) {
    const Watch *watch = ticker->watch;
    if (!watch || !watch->progress) return;
    if (!is_due(&ticker->told) && !now) return;
    char text[80] = "", used[40] = "";
    if (ticker->used < ticker->threads)
        snprintf(used, sizeof used, ", %d of %d threads", ticker->used, ticker->threads);
    if (!isnan(loss)) snprintf(text, sizeof text, "loss %.4g%s", loss, used);
    watch->progress(watch->self, done, total, text);
}
