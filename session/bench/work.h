/* Work: the work that is timed when a machine is measured. Private to session/bench/. */
#ifndef COMPRESS_SESSION_BENCH_WORK_H
#define COMPRESS_SESSION_BENCH_WORK_H

#include "exec/run/team.h"
#include "session/bench/machine.h"

typedef struct Work Work;

/* Prepares the data for `threads` threads: about 25 MB for each, and 128 MB to 1 GB that
 * they share. Fails with STATUS_MEMORY. */
Status work_create(Work **out, int threads, Diag *diag);

/* NULL is allowed. */
void work_destroy(Work *work);

/* Whether there is work of a kind, on one thread or on several: products in bf16 need
 * the processor's instructions, meetings more than one thread; ranks and the disk have
 * no work here.
 */
bool work_has(const Work *work, RateKind kind, int threads);

/* Does the work of a kind `times` times on all threads of the team, of which there are
 * `threads`. Returns seconds. */
double work_do(Work *work, RateKind kind, Team *team, int threads, int64_t times);

/* Units (FLOPs, bytes; for meetings 1) of one repetition on `threads` threads. */
double work_units(const Work *work, RateKind kind, int threads);

#endif
