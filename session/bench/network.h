/* Network: how fast the ranks of a job communicate, if there are several
 * (exec/run/ranks.h): the time to agree, to gather all parts of an array, and to give
 * each its part of the sum over all, as training does with weights and gradients. */
#ifndef COMPRESS_SESSION_BENCH_NETWORK_H
#define COMPRESS_SESSION_BENCH_NETWORK_H

#include "session/bench/machine.h"
#include "session/bench/rank_model.h"

/* Bytes that are gathered and summed; every rank brings and gets its share of them. */
#define NETWORK_BYTES ((size_t)16 << 20)

/* Collective. Measures for about `seconds`, by the clock of rank 0, and puts the rates
 * of the group "ranks" into `out`; does nothing with one rank. Rates are bytes that a
 * rank sends per second. Fails with STATUS_MEMORY, STATUS_INTERRUPTED, and as the other
 * ranks do.
 */
Status network_measure(Machine *out, double seconds, const Watch *watch, Diag *diag);

/* Bandwidth and latency for the model, from measurements on `ranks` ranks: an agreement
 * is log2 ranks round trips, and bytes go at the rate of gather and sum together. False
 * if nothing was measured. */
bool network_fit(RankCluster *out, const Machine *machine);

#endif
