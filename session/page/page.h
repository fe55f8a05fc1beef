/* Page: the output of `compress report`. */
#ifndef COMPRESS_SESSION_PAGE_PAGE_H
#define COMPRESS_SESSION_PAGE_PAGE_H

#include "ir/status.h"
#include "ir/text.h"

/* Reads `count` reports of runs or models, from 1 to RUNS_MAX (session/page/runs.h), and
 * writes, depending on the ending of the output's path:
 *
 *     .html   one page that needs nothing but itself
 *     .md     Markdown, for the comment of a pull request
 *     name/   a folder: both (index.html, report.md), every picture as SVG and the
 *             numbers of each as CSV
 *
 * Without a path the Markdown is appended to `text`. What was written is appended to
 * `text` as a line. Fails with STATUS_USAGE for another path, with STATUS_IO, and as
 * runs_read does. */
Status page_make(const char *const *files, int count, const char *output, Text *text,
                 Diag *diag);

#endif
