/* Reserve: threads and address space that a run needs, taken before it begins. The
 * linear-algebra library waits for ever if it lacks them later. */
#ifndef COMPRESS_EXEC_RUN_RESERVE_H
#define COMPRESS_EXEC_RUN_RESERVE_H

#include "ir/status.h"

/* Restarts the program once, with the linear-algebra library limited to one thread:
 * otherwise, once loaded, each further thread of the library maps a buffer and retries
 * for ever if there is no room, as does a fork that waits for it. `arguments` are
 * main's. Returns if the library is limited already, or the program cannot be
 * restarted. */
void threads_hold_library(char **arguments);

/* The same, if the address space of the process is limited (`ulimit -v`). Call in
 * main. */
void threads_hold_in_limits(char **arguments);

/* Starts the threads of parallel_for, and lets the linear-algebra library (after
 * blas_init) map its buffers, one for each: `threads` is at most blas_threads_most
 * (exec/linalg/blas.h). Fails with STATUS_MEMORY, for instance if `ulimit -v` or the
 * limit on processes does not allow it. */
Status threads_reserve(int threads, Diag *diag);

#endif
