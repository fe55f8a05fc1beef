/* OBS: the order in which units leave linear layers when the units that stay take over
 * (passes/oneshot/reconstruct.h), the cheapest first.
 *
 * A unit u owns columns of W. With P the inverse of C + lambda I over what is left, the
 * least change of the outputs that its removal brings is
 *
 *     tr(W_u (P_uu)^-1 W_u^T)
 *
 * and W and P without it follow by block elimination. So the costs of the removals so far
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

/* Takes `count` units out of `layers` layers that lose the same ones, one after the
 * other, each time that which costs least, of equals the last; unit u owns the columns [u
 * * w, (u + 1) * w) of a layer of K = units * w inputs. Fits are not changed but for a
 * lambda that grows (fit_invert). The result is the same at any number of threads; the
 * watch (may be NULL) is asked between removals. Fails with STATUS_MEMORY and
 * STATUS_INTERRUPTED. */
Status obs_remove(ObsRemoval *removals, int64_t count, LinearFit *fits, int layers,
                  int64_t units, int threads, const Watch *watch, Diag *diag);

#endif
