/* Network: how fast the ranks of a job talk, where there are several (exec/run/ranks.h):
 * what it takes them to agree, to gather all parts of an array, and to hand each its part
 * of everybody's sum, as training does with weights and gradients. */
#ifndef COMPRESS_SESSION_BENCH_NETWORK_H
#define COMPRESS_SESSION_BENCH_NETWORK_H

#include "session/bench/machine.h"
#include "session/bench/rank_model.h"

/* Bytes that are gathered and summed; every rank brings and gets its share of them. */
#define NETWORK_BYTES ((size_t)16 << 20)

/* Collective. Measures, in `seconds` about, by the clock of rank 0, and puts the rates of
 * the group "ranks" into `out`; nothing with one rank. Rates are bytes that a rank sends
 * in a second. Fails with STATUS_MEMORY, STATUS_INTERRUPTED, and as the other ranks do.
 */
Status network_measure(Machine *out, double seconds, const Watch *watch, Diag *diag);

/* Bandwidth and latency of the model by what was measured on so many ranks: an agreement
 * is log2 ranks messages there and back, and bytes go at the rate of gather and sum
 * together. False where nothing was measured. */
bool network_fit(RankCluster *out, const Machine *machine);

#endif
