/* Reading reports, which may come from any source. */
#ifndef COMPRESS_SESSION_REPORT_REPORT_READ_H
#define COMPRESS_SESSION_REPORT_REPORT_READ_H

#include "ir/tree.h"

/* Reads the report of a run (session/report/run_report.h): JSON of at most 256 MiB that
 * has a status, an input or a list of steps; nothing else is guaranteed. In the arena.
 * Fails with STATUS_IO, and with STATUS_FORMAT for another file. */
Status report_read(Tree **out, Arena *arena, const char *path, Diag *diag);

#endif
