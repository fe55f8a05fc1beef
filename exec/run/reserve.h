/* Reserve: threads and address space that a run needs, taken before it begins. The OpenMP
 * and linear-algebra libraries end the program, or wait for ever, where they are missing
 * later. */
#ifndef COMPRESS_EXEC_RUN_RESERVE_H
#define COMPRESS_EXEC_RUN_RESERVE_H

#include "ir/status.h"

/* Starts the threads of parallel_for, and lets the linear-algebra library (after
 * blas_init) map its buffers, one for each. Fails with STATUS_MEMORY, as where `ulimit
 * -v` or the number of processes does not allow it. */
Status threads_reserve(int threads, Diag *diag);

#endif
