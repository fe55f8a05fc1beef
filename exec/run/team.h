/* Team: permanent threads, for work of microseconds between synchronisations.
 *
 * Waiting threads spin for a while, then yield the processor, then sleep. */
#ifndef COMPRESS_EXEC_RUN_TEAM_H
#define COMPRESS_EXEC_RUN_TEAM_H

#include "ir/status.h"

typedef struct Team Team;

/* Starts threads - 1 threads that wait for team_run; with 1 there are none. They take no
 * signals. Fails with STATUS_MEMORY when the system gives no more; `*out` is then a team
 * of those that it gave. */
Status team_create(Team **out, int threads, Diag *diag);

/* Number of its threads, including the calling one. */
int team_threads(const Team *team);

/* Ends the threads. NULL is allowed. */
void team_destroy(Team *team);

/* Runs body(self, me) once in each thread, me = 0 in the calling one; returns when all
 * are done. */
void team_run(Team *team, void (*body)(void *self, int me), void *self);

/* The same in the first `threads` of them; the others keep waiting. */
void team_run_some(Team *team, int threads, void (*body)(void *self, int me), void *self);

/* Within a body: waits until all threads that run it have called this equally often. */
void team_meet(Team *team);

#endif
