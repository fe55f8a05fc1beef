/* Reserve: threads and address space that a run needs, taken before it begins. The
 * linear-algebra library waits for ever where it lacks them later. */
#ifndef COMPRESS_EXEC_RUN_RESERVE_H
#define COMPRESS_EXEC_RUN_RESERVE_H

#include "ir/status.h"

/* Starts the program anew, once, with the linear-algebra library held to one thread: from
 * its loading on each other thread of the library maps a buffer, and tries for ever where
 * there is no room, as does a fork that waits for it. `arguments` are main's. Returns
 * where the library is held already, or the program cannot be started anew. */
void threads_hold_library(char **arguments);

/* The same where the process may use no more than so much address space (`ulimit -v`).
 * Call in main. */
void threads_hold_in_limits(char **arguments);

/* Starts the threads of parallel_for, and lets the linear-algebra library (after
 * blas_init) map its buffers, one for each: `threads` is at most blas_threads_most
 * (exec/linalg/blas.h). Fails with STATUS_MEMORY, as where `ulimit -v` or the number of
 * processes does not allow it. */
Status threads_reserve(int threads, Diag *diag);

#endif
