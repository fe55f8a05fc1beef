/* Parallel: threads for loops, and how many there may be; those of generation, which are
 * permanent, are in exec/run/team.h. */
#ifndef COMPRESS_EXEC_RUN_PARALLEL_H
#define COMPRESS_EXEC_RUN_PARALLEL_H

#include <stdint.h>

/* Runs body(self, i, worker) for every i in [0, count) on at most `threads` threads.
 * `worker` is below `threads` and names the thread; worker 0 is the calling thread. Each
 * thread gets one contiguous range, in order. The threads stay for the next loop; loops
 * that several threads call at once each have their own threads. Within a body, or if
 * the system gives no threads, the calling thread does all of it. */
void parallel_for(int64_t count, int threads,
                  void (*body)(void *self, int64_t i, int worker), void *self);

/* Starts the threads for loops of `threads` threads, so that none is missing later;
 * returns their number, including the calling one. */
int parallel_reserve(int threads);

/* Makes libraries that would use OpenMP threads run only on the calling thread when it
 * calls them. Loops of parallel_for are unaffected. Returns how many threads they would
 * have used, which parallel_together restores for this thread. */
int parallel_alone(void);
void parallel_together(int threads);

/* Threads that the process may keep busy: the processors it may run on, or fewer if its
 * control group has a quota (rounded up). At least 1. */
int threads_available(void);

/* Processors' worth of time that the control groups of the process allow, of either
 * version; infinite without a limit. `root` is prepended to /proc and /sys; normally
 * "". */
double threads_quota(const char *root);

#endif
