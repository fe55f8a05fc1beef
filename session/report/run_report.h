/* Run report: one JSON document about a run, however it ended. docs/report.md describes
 * every key. */
#ifndef COMPRESS_SESSION_REPORT_RUN_REPORT_H
#define COMPRESS_SESSION_REPORT_RUN_REPORT_H

#include "session/session.h"

/* How a run ended, as in reports and events: "done", "gate", "interrupted" or
 * "error". */
const char *run_status_name(Status status);

/* The whole report of a session that ended with `status`, with what is known by then:
 * for a recipe that does not bind little more than its errors, which `diag` holds. In
 * the session's arena. */
Tree *run_report(const Session *session, Status status, const Diag *diag);

/* The contents of a plan: the tool, the recipe after all changes, and the sizes of the
 * input and after every step. Likewise. */
Tree *run_report_plan(const Session *session);

/* Writes a tree to a file, or to standard output, "-". Fails with STATUS_IO. */
Status run_report_write(const Tree *report, const char *path, Diag *diag);

#endif
