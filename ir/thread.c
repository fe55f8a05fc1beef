/* Thread: see ir/thread.h. */
#include "ir/thread.h"

#include <signal.h>
#include <stddef.h>

/* Signals that a thread raises by what it does. */
static const int FAULTS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};

int thread_start(pthread_t *thread, void *(*work)(void *self), void *self) {
    sigset_t others, before;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++)
        sigdelset(&others, FAULTS[i]);
    pthread_sigmask(SIG_BLOCK, &others, &before); /* which the thread inherits */
    const int error = pthread_create(thread, NULL, work, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
