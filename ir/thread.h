/* Thread: starting one beside the caller's. */
#ifndef COMPRESS_IR_THREAD_H
#define COMPRESS_IR_THREAD_H

#include <pthread.h>

/* Starts a thread that runs `work(self)`, to be joined. It takes none of the signals that
 * are sent to the process, those of a host above all, but such as it raises itself by
 * what it does. Returns 0, or errno's value where the system gives no thread. */
int thread_start(pthread_t *thread, void *(*work)(void *self), void *self);

#endif
