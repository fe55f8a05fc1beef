/* OBS: the order in which units are removed from linear layers when the remaining units
 * take over (passes/oneshot/reconstruct.h), the cheapest first.
 *
 * A unit u owns columns of W. With P the inverse of C + lambda I over what is left, the
 * least change of the outputs that its removal causes is
 *
 *     tr(W_u (P_uu)^-1 W_u^T)
 *
 * and block elimination gives W and P without it. So the costs of the removals so far
 * add up to the least squares of removing them together. ZipLM (Kurtic et al., NeurIPS
 * 2023); Optimal Brain Compression (Frantar, Singh, Alistarh, NeurIPS 2022). */
#ifndef COMPRESS_PASSES_ONESHOT_OBS_H
#define COMPRESS_PASSES_ONESHOT_OBS_H

#include "exec/run/ticker.h"
#include "passes/oneshot/reconstruct.h"

typedef struct ObsRemoval {
    int64_t unit;
    double cost; /* squares, as shares of fit->scale, summed over the layers */
} ObsRemoval;

/* Removes `count` units from `layers` layers that lose the same units, one after
 * another, each time the one that costs least (of equals, the last); unit u owns the
 * columns [u * w, (u + 1) * w) of a layer of K = units * w inputs. Fits are not changed
 * except that lambda may grow (fit_invert). The result is the same for any number of
 * threads; the watch (may be NULL) is checked between removals. Fails with STATUS_MEMORY
 * and STATUS_INTERRUPTED. */
Status obs_remove(ObsRemoval *removals, int64_t count, LinearFit *fits, int layers,
                  int64_t units, int threads, const Watch *watch, Diag *diag);

#endif
