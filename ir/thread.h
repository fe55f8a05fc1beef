/* Thread: starting one in addition to the caller's. */
#ifndef COMPRESS_IR_THREAD_H
#define COMPRESS_IR_THREAD_H

#include <pthread.h>

/* Starts a thread that runs `work(self)`, to be joined. All signals are blocked in it
 * except faults (SIGSEGV and the like), so a host's handlers never run there. Returns 0,
 * or errno's value if the system gives no thread. */
int thread_start(pthread_t *thread, void *(*work)(void *self), void *self);

#endif
