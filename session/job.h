/* Jobs: a session that several ranks run (exec/run/ranks.h).
 *
 * Every rank opens the same recipe and does the same steps; only rank 0 writes files and
 * reports what happens. The session's functions are collective: each ends with an
 * agreement, so that all ranks continue, or all fail with one message. With one rank
 * none of the following does anything. */
#ifndef COMPRESS_SESSION_JOB_H
#define COMPRESS_SESSION_JOB_H

#include "ir/text.h"
#include "session/session.h"

/* Whether this rank writes and reports for all: rank 0 does. */
bool job_leads(void);

/* Joins the job of the mpirun that started the program, if any (ranks_open), and agrees
 * on each rank's earlier status, `mine`. Fails with STATUS_USAGE, and as any rank
 * did. */
Status job_join(Status mine, Diag *diag);

/* Collective. ranks_agree for one of the session's functions; a failure ends the
 * session.
 */
Status job_agree(Session *session, Status mine, Diag *diag);

/* Collective. Every rank passes its text for the same thing, usually a hash; fails with
 * `status` in a job if one differs from rank 0's: "`what` is another one than on rank 0"
 * at `at`. `hint` may be NULL. */
Status job_same(const char *text, Status status, Loc at, const char *what,
                const char *hint, Diag *diag);

/* Collective. Sends rank 0's text to all, whose own must be empty. Fails as the other
 * ranks do. */
Status job_send_text(Text *text, Diag *diag);

/* Warns about ranks without a shard in the step of the plan that trains with the fewest,
 * and says how many shards would use all threads if every rank has as many as this one.
 */
void job_warn_idle(const Session *session, Diag *diag);

/* A file of rank 0 that all ranks can read. */
typedef struct JobFile {
    const char *path; /* NULL = rank 0 sent none */
    int descriptor;   /* of a copy in memory, -1 = the file itself */
    char copy[32];    /* its path */
} JobFile;

/* Collective. Sends the file at rank 0's `path`, NULL = none; other ranks' paths are
 * ignored. To be closed. Fails with STATUS_IO, STATUS_MEMORY, and as the other ranks
 * do. */
Status job_send_file(JobFile *file, const char *path, Diag *diag);

/* Mappings of the file stay valid. */
void job_file_close(JobFile *file);

#endif
